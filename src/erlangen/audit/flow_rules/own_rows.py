"""Rows that are the positions of the input: edges too many, edges missing, and the steps of hidden layers."""

from __future__ import annotations

import numpy as np

from erlangen.audit.calls.real import kept
from erlangen.audit.expect import AtMost, expected_of, in_words, overall
from erlangen.audit.findings import Finding
from erlangen.audit.flow_rules.bounds import bounds, by_head, columns, edge, single, within_closure
from erlangen.audit.flow_verdict import FlowVerdict, Scene
from erlangen.audit.inputs import Content
from erlangen.audit.obligations import Compared
from erlangen.audit.support import of_item
from erlangen.audit.witnesses.rounding import differs
from erlangen.audit.witnesses.runs import Runner
from erlangen.errors import ErlangenError
from erlangen.relations import Identity, Neighborhoods, Relation

SHARP = 1e-4
"""Where rows move by more than this just beside a missing edge, the edge is missing and not merely small."""


def judge_own(verdict: FlowVerdict, scene: Scene) -> None:
    flow = verdict.flow
    extra: Finding | None = None
    missing: Finding | None = None
    reason: str | None = None
    # Rows that are taken before attention lack nothing: the pooled output beside them shows that it is used.
    exact, text, by_calls = scene.exact and not (scene.early and verdict.role == "own"), "", False
    if verdict.role == "inner" and scene.feeding.mode.autocast:
        exact = False  # rows inside are seen in bfloat16 alone, which does not show what is small
    later = joins_later(verdict, scene)
    for b, seen in enumerate(flow.relations):
        bound = bounds(verdict, scene, b)
        if isinstance(bound, str):
            verdict.opened(Compared.EDGES, bound)
            return
        upper, lower, expected, text, by_calls = bound
        exact = exact and not isinstance(expected, AtMost)
        over = kept(seen - upper, verdict.real, b)
        if over.num_edges and extra is None:
            extra = edge(verdict, b, over, text, True)
        if lower is None or not exact or missing is not None or later:
            continue
        if b < len(scene.seen) and (scene.seen[b].queries, scene.seen[b].keys) == (seen.queries, seen.keys):
            seen = seen | scene.seen[b]
        under = kept(columns(lower, flow) - seen, verdict.real, b)
        if under.num_edges:
            found, why = _missing(verdict, scene, b, under, lower, upper, text)
            missing, reason = found, reason or why
    # Beyond what the seen calls carry there may be a layer that was not seen and is right.
    step = _stepwise(verdict, scene, text, by_calls and extra is not None)
    if extra is not None and (step is not None or not within_closure(verdict, scene)):
        verdict.settle(Compared.EXTRA, step if isinstance(step, Finding) else extra)
    elif isinstance(step, str):
        verdict.opened(Compared.EXTRA, step)
    else:
        verdict.unseen = extra is not None
        verdict.settle(Compared.EXTRA, step)
    if not exact:
        return
    if later:
        verdict.notes.append(
            f"attention reads nothing of {scene.content.name}, which joins the rows behind it"
        )
        verdict.missing = None
        return
    # Missing edges of calls that were seen are found call by call; the flow shows whether they arrive at all.
    compared = Compared.REACHED if by_calls else Compared.MISSING
    if missing is not None or reason is None:
        verdict.settle(compared, missing)
    else:
        verdict.opened(compared, reason)


def _missing(
    verdict: FlowVerdict,
    scene: Scene,
    item: int,
    under: Neighborhoods,
    lower: Neighborhoods,
    upper: Neighborhoods,
    text: str,
) -> tuple[Finding | None, str | None]:
    """Whether edges that are not seen are missing (a finding), merely too small (a reason), or asleep
    (neither)."""
    flow = verdict.flow
    seen, sizes = flow.relations[item], None if flow.sizes is None else flow.sizes[item]
    if verdict.role == "inner":
        return None, (
            f"{flow.output} is pooled, and the rows before it do not show all that is read: give a model "
            "that returns rows"
        )
    if scene.awake is not None:
        awake = scene.awake(scene.content, flow.output)
        if awake is None and scene.feeding.mode.autocast:
            i, j = under.edges()[0].tolist()
            return None, (
                f"row {i} should depend on position {j} and is not seen to in bfloat16, which does not show "
                "what is small; the model cannot be copied, which would show it in double precision"
            )
        if awake is not None:
            reads = of_item(awake.relations, item)
            over = kept(reads - upper, verdict.real, item)
            if over.num_edges:
                found = edge(verdict, item, over, text, True)
                return found.at(detail="where parameters that are zero have other values"), None
            left = kept(columns(lower, flow) - reads, verdict.real, item)
            if not left.num_edges:
                verdict.notes.append(
                    "not all that is expected is seen at these values; with small activations in double "
                    "precision, and other values for parameters that are zero, it is"
                )
                return None, None
            under = left
            if scene.feeding.mode.autocast and awake.sizes is not None:
                # Bfloat16 shows what is large alone; how dependences fade is seen in double precision.
                seen, sizes = reads, of_item(awake.sizes, item)
    if not seen.num_edges:
        detail = f"{flow.output or 'the output'} depends on no position of {flow.content}"
        return verdict.found(kind="silent", item=item, expected=text, measured="Empty()", detail=detail), None
    if sizes is not None and not _sharp(sizes, seen, under):
        i, j = under.edges()[0].tolist()
        return None, (
            f"row {i} should depend on position {j} and is not seen to: dependences fade out there, smaller "
            "than rounding; try a shorter sequence, or double precision"
        )
    return edge(verdict, item, under, text, False), None


def _sharp(sizes: np.ndarray, seen: Neighborhoods, under: Neighborhoods) -> bool:
    """Whether a missing edge lies beside one that is plainly seen, in its row or its column."""
    dense, scale = seen.dense(), float(np.nan_to_num(sizes, posinf=0).max()) or 1.0
    for i, j in under.edges()[:64].tolist():
        row = np.flatnonzero(dense[i])
        column = np.flatnonzero(dense[:, j])
        beside = [sizes[i, row[np.abs(row - j).argmin()]]] if row.size else [0.0]
        beside += [sizes[column[np.abs(column - i).argmin()], j]] if column.size else [0.0]
        if min(beside) > SHARP * scale:
            return True
    return False


def _stepwise(verdict: FlowVerdict, scene: Scene, text: str, beyond: bool) -> Finding | str | None:
    """Whether a hidden stack reads no more than the expected relation in each of its steps.

    Layers that could not be seen may be many: any power of the relation is then allowed of the outputs. How
    many steps the model takes is looked up inside it. None: as expected; a text: why that cannot be said.
    """
    relation = overall(scene.expect)
    spoken = any(expected_of(scene.expect, call) is not None for call in scene.calls)
    if (
        relation is None
        or (scene.covered and spoken and not beyond)
        or verdict.flow.relations[0].queries != scene.content.length
    ):
        return None
    if by_head(relation):
        return (
            "the expectation differs from head to head, and no attention call shows the heads: outputs show "
            "what they read together; expect the union of the heads"
        )
    for item, seen in enumerate(verdict.flow.relations):
        one = single(relation, item).on(scene.content.length) | Identity().on(scene.content.length)
        if kept(seen - one, verdict.real, item).num_edges == 0:
            continue
        if one.compose(one) == one:
            continue
        found = None if scene.steps is None else scene.steps(scene.content, one)
        told = in_words(relation, scene.content.length, scene.content.length)
        if found is None:
            return (
                f"the outputs read further than {told} in one step, and how many layers there are could "
                "not be seen"
            )
        state, what = found
        if state == "open":
            return str(what)
        if state == "broken":
            event, row, key = what
            return verdict.found(
                expected=text, measured=verdict.text(item), item=item, query=row, key=key,
                origin=f"{event.module or 'the model'} ({event.kind})", source=event.source,
                detail=f"one step ({event.label}) reads further than {told}",
            )  # fmt: skip
        return None
    return None


def joins_later(verdict: FlowVerdict, scene: Scene) -> bool:
    """Whether rows take an input at their own positions while attention is about another one.

    No call that was seen has keys of it; where attention is hidden, each row reads its own position of it at
    most, and other positions of another input. Nothing is then missing of it.
    """
    relations = verdict.flow.relations
    if not any(seen.num_edges for seen in relations):
        return False  # it is not used at all
    read = {name for call in scene.calls for name in call.key_inputs}
    if scene.content.name in read:
        return False
    if scene.covered and scene.calls:
        return bool(read)
    own = all(
        seen.queries == seen.keys and not (seen - Identity().on(seen.queries)).num_edges for seen in relations
    )
    return own and scene.others_spread is not None and scene.others_spread(scene.content, verdict.flow.output)


def others_spread(runner: Runner, content: Content, output: str) -> bool:
    """Whether rows of an output move with another position than their own of some other input of this
    length."""
    place = next((one for one in runner.places() if one.name == output), None)
    if place is None:
        return False  # rows inside the model
    for one in runner.reading.sequences:
        if one is content or one.length != content.length or one.length < 2:
            continue
        for j in (0, one.length - 1):
            try:
                moved = differs(place.rows(runner.changed(one, j)), place.rows(runner.base()))[0]
            except Exception:
                continue  # its own flow says why it cannot be changed
            moved[:, j] = False
            if bool(moved.any()):
                return True
    return False


def judge_diagonal(verdict: FlowVerdict, scene: Scene) -> None:
    """Hold rows that read their own position against an expectation without it."""
    relation = overall(scene.expect)
    if relation is None or _judged_by_calls(scene):
        return
    flow, strict = verdict.flow, False
    for item, seen in enumerate(flow.relations):
        without = left_out(single(relation, item), scene.content.length)
        if without is None or not without.any():
            continue
        told = in_words(relation, scene.content.length, scene.content.length)
        if seen.queries != scene.content.length:
            verdict.opened(
                Compared.OWN,
                f"{told} leaves a row's own position out, and which that is of {seen.queries} rows for "
                f"{seen.keys} positions cannot be told: return one row for each position",
            )
            return
        strict = True
        read = kept(Neighborhoods.from_dense(seen.dense() & np.diag(without)), verdict.real, item)
        if not read.num_edges:
            continue
        why = _another_path(verdict, scene, read)
        if why is None:
            verdict.broken(Compared.OWN, edge(verdict, item, read, told, True))
        elif why:
            i = int(read.edges()[0, 0])
            verdict.opened(
                Compared.OWN,
                f"row {i} depends on position {i}, which {told} leaves out, and {why}: expect "
                f"({told.removeprefix('at most ')}) | Identity() if a row may depend on itself",
            )
        else:
            continue
        return
    if strict:
        verdict.held(Compared.OWN)


def left_out(relation: Relation, n: int) -> np.ndarray | None:
    """The rows that do not read themselves in any number of steps; None where the relation has no such
    size.

    >>> from erlangen.relations import Causal, Full, Identity
    >>> left_out(Causal() - Identity(), 3).tolist(), left_out(Full() - Identity(), 3).tolist()
    ([True, True, True], [False, False, False])
    """
    try:
        bound = relation.on(n)
        if np.asarray(bound.contains(np.arange(n), np.arange(n))).all():
            return np.zeros(n, bool)
        closed = relation.closure().on(n)
    except ErlangenError:
        return None
    return ~np.asarray(closed.contains(np.arange(n), np.arange(n)))


def _judged_by_calls(scene: Scene) -> bool:
    """Whether the diagonal was judged call by call: what remains is the query itself or a residual."""
    return scene.covered and any(
        scene.content.name in call.query_inputs and expected_of(scene.expect, call) is not None
        for call in scene.calls
    )


def _another_path(verdict: FlowVerdict, scene: Scene, read: Neighborhoods) -> str | None:
    """Why a row may depend on its own position all the same: a reason that leaves it open, an empty one that
    excuses it, None where there is none."""
    if verdict.role == "inner" or verdict.flow.features == 1:
        return "a loss compares each row with its own position: return what is predicted"
    if scene.hidden or any(scene.content.name in call.query_inputs for call in scene.calls):
        return "whether attention reads it, or the query alone, could not be seen"
    found = None if scene.own_path is None else scene.own_path(read)
    if found == "residual":
        return ""
    if found == "product":
        return "whether a product of rows is attention, whose query is its own row, could not be told"
    return None

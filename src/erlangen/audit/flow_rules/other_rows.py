"""Rows at another rate than the positions of the input, and rows of another sequence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from erlangen.audit.calls.real import kept
from erlangen.audit.calls.streams import predict
from erlangen.audit.expect import AtMost, bind_expected, expected_of, in_words, overall
from erlangen.audit.findings import Finding
from erlangen.audit.flow_rules.bounds import by_calls, closure_of, columns, edge, single, within_closure
from erlangen.audit.flow_rules.following import at_the_end, followed, follows_ratio, offset_of, surely_real
from erlangen.audit.flow_verdict import FlowVerdict, Scene
from erlangen.audit.obligations import Compared
from erlangen.audit.observed import Measured
from erlangen.audit.witnesses.flow import Flow
from erlangen.audit.wording import without_masks
from erlangen.errors import ErlangenError
from erlangen.relations import Full, Neighborhoods


def judge_mapped(verdict: FlowVerdict, scene: Scene, owners: Sequence[Flow] = ()) -> None:
    """Rows at another rate than positions: held against the relation of rows, position by the row it falls
    into."""
    flow, relation = verdict.flow, overall(scene.expect)
    if relation is None:
        calls = _calls_before(flow, scene)
        spoken = [r for r in (expected_of(scene.expect, call) for call in calls) if r is not None]
        relation = spoken[0] if spoken and all(r == spoken[0] for r in spoken) else None
    rows, n = flow.relations[0].queries, flow.relations[0].keys
    if relation is None and _judge_cut(verdict, scene):
        return
    if relation is None:
        verdict.opened(Compared.EDGES, f"{rows} rows for {n} positions: expect one relation of all calls")
        return
    # Rows of other inputs may stand before or behind, such as a condition or features of an image: then all
    # rows are moved by as many, whatever the ratio of rows to positions happens to be.
    beside = _sums(
        [one.length for one in scene.contents if one.axis is not None and one.name != flow.content]
    )
    if rows - n in beside - {0} and offset_of(flow) in beside and not everything(relation):
        _judge_shifted(verdict, relation)
        return
    if not everything(relation) and _judge_placed(verdict, relation, owners):
        return
    fixed = flow.output in scene.kept_rows
    if n > rows and (fixed or n - rows > SHIFTED) and at_the_end(flow, fixed) and not everything(relation):
        _judge_shifted(verdict, relation, rows - n)
        return
    # Where everything may be read it does not matter which row belongs to which position. Nor does it where
    # rows follow the positions late (a frame is read when it is over) and none reads too early.
    slower = not fixed and rows - n > SHIFTED
    late = slower and followed(flow, plainly=False) and _within_rate(verdict, relation)
    if (fixed or not follows_ratio(flow)) and not everything(relation) and not late:
        verdict.opened(
            Compared.EDGES,
            f"{rows} rows for {n} positions, and which row belongs to which position could not be told: "
            "return one row for each position",
        )
        return
    if 0 < abs(rows - n) <= SHIFTED and not everything(relation):
        _judge_shifted(verdict, relation)
        return
    for b, seen in enumerate(flow.relations):
        bound = _allowed(verdict, relation, b, rows)
        if bound is None:
            return
        one, allowed = bound
        if _breaks(verdict, b, seen, allowed[:, np.arange(n) * rows // n], in_words(relation, rows, rows)):
            return
        real_rows, real_keys = surely_real(flow, verdict.real_keys, b)
        if isinstance(relation, AtMost) or not scene.exact or one.num_edges != rows * rows:
            continue
        under = columns(Neighborhoods.from_dense(real_rows[:, None] & real_keys[None, :]), flow) - seen
        if under.num_edges and not _all_reached(seen, real_rows, flow):
            verdict.broken(Compared.MISSING, edge(verdict, b, under, in_words(relation, rows, rows), False))
            return
    verdict.held(Compared.EXTRA, f"extra edges, {rows} rows for {n} positions")


def _breaks(verdict: FlowVerdict, item: int, seen: Neighborhoods, allowed: np.ndarray, text: str) -> bool:
    """Whether a real row reads more than it may, which is then written down."""
    rows, _ = surely_real(verdict.flow, verdict.real_keys, item)
    over = seen.dense() & ~allowed & rows[:, None]
    if over.any():
        verdict.broken(Compared.EXTRA, edge(verdict, item, Neighborhoods.from_dense(over), text, True))
    return bool(over.any())


def _within_rate(verdict: FlowVerdict, relation: Any) -> bool:
    """Whether rows read no more than allowed where each position belongs to the first row that it falls
    into."""
    flow = verdict.flow
    rows, n = flow.relations[0].queries, flow.relations[0].keys
    for b, seen in enumerate(flow.relations):
        try:
            one = single(relation, b)
            allowed = closure_of(one.on(rows), one, rows).dense()
        except ErlangenError:
            return False
        real_rows, _ = surely_real(flow, verdict.real_keys, b)
        if (seen.dense() & ~allowed[:, np.arange(n) * rows // n] & real_rows[:, None]).any():
            return False
    return True


def _judge_placed(verdict: FlowVerdict, relation: Any, owners: Sequence[Flow]) -> bool:
    """Positions put where placeholders stand in another input: of the rows' own sequence these positions move
    nothing. Where not all of them were measured, positions stand where they move a row most, of those
    that may be placeholders. False where that does not tell the places."""
    flow = verdict.flow
    rows = flow.relations[0].queries
    own = next(iter(owners), None)
    if own is None or not flow.complete or len(own.relations) != len(flow.relations):
        return False
    pairs = []
    for b, (mine, other) in enumerate(zip(flow.relations, own.relations, strict=True)):
        put = np.flatnonzero(mine.dense().any(axis=0))
        places = np.flatnonzero(~np.asarray(other.dense().any(axis=0)))
        if not own.complete and flow.sizes is not None and len(put):
            most = np.nan_to_num(flow.sizes[b], posinf=1e300)[:, put].argmax(axis=0)
            places = most if bool((np.diff(most) > 0).all()) and set(most) <= set(places) else places
        if not len(put) or len(put) != len(places):
            return False
        pairs.append((put, places))
    for b, (seen, (put, places)) in enumerate(zip(flow.relations, pairs, strict=True)):
        bound = _allowed(verdict, relation, b, rows)
        if bound is None:
            return True
        over = np.zeros((rows, seen.keys), bool)
        over[:, put] = seen.dense()[:, put] & ~bound[1][:, places]
        if over.any():
            finding = edge(verdict, b, Neighborhoods.from_dense(over), in_words(relation, rows, rows), True)
            verdict.broken(Compared.EXTRA, finding)
            return True
    verdict.held(Compared.EXTRA, f"extra edges, {flow.relations[0].keys} positions among {rows} rows")
    return True


def _sums(lengths: list[int]) -> set[int]:
    """How many rows some of several inputs have together, none of them included."""
    found = {0}
    for length in lengths:
        found |= {length + other for other in found}
    return found


def _judge_cut(verdict: FlowVerdict, scene: Scene) -> bool:
    """Rows of some of the positions, as `logits[:, :-1]`, held against what the calls let all of them read;
    False where the calls do not tell."""
    flow = verdict.flow
    by, rows, n = offset_of(flow), flow.relations[0].queries, scene.content.length
    if by is None or not scene.covered or not 0 <= -by <= n - rows:
        return False
    for b, seen in enumerate(flow.relations):
        bound = by_calls(verdict, scene, b, scene.calls, n)
        if bound is None:
            return False
        if _breaks(verdict, b, seen, bound[0].dense()[-by : rows - by], bound[3]):
            return True
    verdict.held(Compared.EXTRA, f"extra edges, {rows} rows for {n} positions")
    return True


def _calls_before(flow: Flow, scene: Scene) -> list[Measured]:
    """The calls that may lie before an output: of those that read other inputs, too, none does where the
    output reads this one only (the rows of an encoder, beside a decoder's)."""
    if scene.readers.get(flow.output) != {flow.content}:
        return scene.calls
    return [call for call in scene.calls if call.query_inputs | call.key_inputs <= {flow.content}]


def _allowed(
    verdict: FlowVerdict, relation: Any, item: int, size: int
) -> tuple[Neighborhoods, np.ndarray] | None:
    """The relation at a size, and what all its steps reach; None, and open, where it does not fit."""
    one = single(relation, item)
    try:
        bound = one.on(size)
        return bound, closure_of(bound, one, size).dense()
    except ErlangenError as error:
        rows = verdict.flow.relations[0].queries
        verdict.opened(
            Compared.EDGES,
            f"{in_words(relation, rows, rows)} cannot be held against {rows} rows: "
            f"{without_masks(str(error))}",
        )
        return None


SHIFTED = 4
"""With so few rows more or less than positions, rows are positions that were moved, not of another rate."""


def _judge_shifted(verdict: FlowVerdict, relation: Any, by: int | None = None) -> None:
    """Rows of all positions but a few, or of a few tokens more: by how many places they moved is measured."""
    flow = verdict.flow
    rows, n = flow.relations[0].queries, flow.relations[0].keys
    by = offset_of(flow) if by is None else by
    if by is None:
        verdict.opened(
            Compared.EDGES,
            f"{rows} rows for {n} positions, and by how many places they are moved could not be told: return "
            "one row for each position",
        )
        return
    first = max(0, by)  # the place of position 0; row 0 stands at first - by
    size = max(n + first, rows + first - by)
    for b, seen in enumerate(flow.relations):
        bound = _allowed(verdict, relation, b, size)
        if bound is None:
            return
        allowed = bound[1][first - by : first - by + rows, first : first + n]
        if _breaks(verdict, b, seen, allowed, in_words(relation, rows, rows)):
            return
    verdict.held(Compared.EXTRA, f"extra edges, {rows} rows for {n} positions")


def everything(relation: object) -> bool:
    """Whether a relation allows everything, whatever the sizes are."""
    return (relation.relation if isinstance(relation, AtMost) else relation) == Full()


def _all_reached(seen: Neighborhoods, rows: np.ndarray, flow: Flow) -> bool:
    """Whether the rows agree on what they read, and read most of it: at another rate a few positions (a rest,
    a border) may be read by nobody."""
    dense = seen.dense()[rows][:, flow.columns]
    agree = bool((dense.all(axis=0) | ~dense.any(axis=0)).all())
    return agree and float(dense.mean()) > 0.5


def _read_across(scene: Scene) -> bool:
    """Whether a cross-attention call was seen to read this input."""
    return any(call.kind == "cross" and scene.content.name in call.key_inputs for call in scene.calls)


def _judge_ambiguous(verdict: FlowVerdict, scene: Scene) -> None:
    """As many positions as rows, yet rows do not follow them: another sequence, or this one, read wrongly."""
    name = scene.content.name
    silent = not any(seen.num_edges for seen in verdict.flow.relations)
    elsewhere = any(scene.content.name in names for names in scene.readers.values())
    if (silent and elsewhere) or within_closure(verdict, scene):
        verdict.held(Compared.EXTRA)
        return
    ahead = _reads_ahead(verdict, scene)
    if ahead is not None:
        verdict.broken(Compared.EXTRA, ahead)
        return
    verdict.opened(
        Compared.EXTRA,
        f"{name} has as many positions as there are rows, which read it otherwise than expected: if "
        f"it is another sequence, of which anything may be read, say content=[...] without {name!r}",
    )


def _reads_ahead(verdict: FlowVerdict, scene: Scene) -> Finding | None:
    """The first edge too many, where rows are plainly seen to follow the positions, if not each its own: an
    input of the same steps, fed too early."""
    relation = overall(scene.expect)
    if relation is None or not followed(verdict.flow):
        return None
    for b, seen in enumerate(verdict.flow.relations):
        bound = _allowed(verdict, relation, b, seen.queries)
        if bound is None:
            return None
        over = kept(Neighborhoods.from_dense(seen.dense() & ~bound[1]), verdict.real, b)
        if over.num_edges:
            return edge(verdict, b, over, in_words(relation, seen.queries, seen.keys), True)
    return None


def _judge_few(verdict: FlowVerdict, scene: Scene) -> bool:
    """So few positions that rows may follow them, at another rate, or may not: whether that settled it.

    What keeps to the rate is right in both cases. What does not is wrong only where the rows' positions are
    these: the user may have said so, and otherwise more positions tell.
    """
    if scene.content.axis is None or _read_across(scene) or not followed(verdict.flow, plainly=False):
        return False
    # By chance rows seem to follow a condition of few positions: under each feeding others would.
    name = scene.content.name
    pair = name, verdict.flow.output
    if scene.feeding.given:
        scene.may_follow.add(pair)
    if pair not in scene.may_follow:
        return False
    trial = FlowVerdict(verdict.flow, "mapped", verdict.where, real_keys=verdict.real_keys)
    judge_mapped(trial, scene)
    broken = trial.wrong_somewhere
    known = scene.content.name in scene.named or (broken and pair in scene.follow)
    if known or trial.right:
        verdict.settled += trial.settled
        verdict.counterexample = trial.counterexample
        return bool(trial.settled)
    if not broken and (overall(scene.expect) is None or pair in scene.follow):
        return False  # nothing that is expected could be held against it at any rate
    verdict.opened(
        Compared.EXTRA,
        f"{name} has so few positions that rows may follow them at another rate, and would then read "
        f"too much, or {name} may be another sequence, of which anything may be read: give more "
        f"positions, or say content=[...] with {name!r} if they are those of the rows, and without "
        "it if not",
    )
    return True


def judge_foreign(verdict: FlowVerdict, scene: Scene) -> None:
    """Rows of another sequence: what cross-attention may read, where the expectation speaks of it."""
    relations = {call.index: expected_of(scene.expect, call) for call in scene.calls}
    crossing = [call for call in scene.calls if call.kind == "cross" and relations[call.index] is not None]
    rows = verdict.flow.relations[0].queries
    if scene.content.axis is not None and scene.content.length == rows and not _read_across(scene):
        _judge_ambiguous(verdict, scene)
        return
    if _judge_few(verdict, scene):
        return
    if not (scene.covered and crossing) or scene.content.axis is None:
        verdict.notes.append(
            f"nothing is expected of reading {scene.content.name}, which is another sequence"
        )
        verdict.held(Compared.ANOTHER)
        return
    for b, seen in enumerate(verdict.flow.relations):

        def union(call: Measured, b: int = b) -> Neighborhoods:
            relation = relations[call.index]
            if relation is None:
                return Full().on(call.queries, call.keys)
            result = bind_expected(relation, call, b, 0, None)
            for head in range(1, call.heads):
                result = result | bind_expected(relation, call, b, head, None)
            return result

        product = predict(scene.calls, scene.contents, scene.content, seen.queries, union)
        if product is None:
            bound = [union(call) for call in crossing if scene.content.name in call.key_inputs]
            if all(one.num_edges == one.queries * one.keys for one in bound):
                verdict.held(Compared.ANOTHER)
                return
            verdict.opened(
                Compared.EXTRA,
                f"the calls between {verdict.flow.content} and the output do not compose: return one row for "
                "each position of the sequence that reads it",
            )
            return
        over = kept(seen - product, verdict.real, b)
        if over.num_edges:
            names = ", ".join(dict.fromkeys(str(r) for r in relations.values() if r is not None))
            verdict.broken(Compared.EXTRA, edge(verdict, b, over, f"layers of {names}", True))
            return
    verdict.held(Compared.EXTRA)

"""The flows of one feeding, from every input to every output, measured and judged."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from erlangen.audit.calls.over_draws import OTHER_DRAWS, lacks
from erlangen.audit.calls.padding_rows import padding_alone, padding_by_itself
from erlangen.audit.case import Case, in_short
from erlangen.audit.findings import Finding
from erlangen.audit.flow_rules.behind_outputs import before_pooling, judge_integers
from erlangen.audit.flow_rules.beside import Waiting
from erlangen.audit.flow_rules.delimiters import without_delimiters
from erlangen.audit.flow_rules.following import (
    Readers,
    followed,
    kept_rows,
    of_another,
    only_early,
    only_read_across,
    read_by_own_rows,
    readers_of,
    rivals,
    role_of,
    rows_inside,
)
from erlangen.audit.flow_rules.groups import GROUPS, forbidden_by_groups, moves_of_output
from erlangen.audit.flow_rules.hidden_edges import awake, settle_rounded
from erlangen.audit.flow_rules.inside import Inside
from erlangen.audit.flow_rules.invariance import compare_without_padding
from erlangen.audit.flow_rules.judge import fed_labels, judge_flow, labelled_rows, losses_of
from erlangen.audit.flow_rules.own_rows import others_spread
from erlangen.audit.flow_rules.pooled import read_by_any
from erlangen.audit.flow_rules.taken_rows import taken
from erlangen.audit.flow_verdict import WHOLE, FlowVerdict, Scene
from erlangen.audit.inputs import Content
from erlangen.audit.obligations import BROKEN, OPEN, Compared, Subject
from erlangen.audit.witnesses.flow import LEAST, Flow, batch_leaks, measure
from erlangen.audit.witnesses.runs import BATCH_NORM
from erlangen.audit.witnesses.trace import told_of_items
from erlangen.errors import DataError


@dataclass(eq=False)
class Source:
    """One input, or labels, whose content is changed, and all that its flows are judged by."""

    case: Case
    labels: bool
    inside: Inside
    scene: Scene


def judge_flows(case: Case, share: float) -> None:
    """Measure and judge every flow in this share of the time that is left."""
    runner, contents = case.runner, case.reading.contents
    end = case.audit.budget.end(share)
    try:
        output = runner.base()
    except Exception as error:
        case.result.skipped = in_short(error)
        if case.feeding.given:
            case.open(Subject(Compared.OUTPUTS), case.result.skipped)
        return
    for name, what in runner.unread.items():
        reason = f"{name or 'the output'} is {what}, which was not looked into: return its numbers"
        case.open(Subject(Compared.OUTPUTS, told=name or "the output"), reason)
    if contents and not runner.places():
        reason = "the model returns no tensor of numbers, so nothing flows that could be measured"
        case.open(Subject(Compared.OUTPUTS), reason)
        case.note(f"the flow was not measured: {reason}")
        return
    if case.feeding.given:
        case.audit.places = {place.name: place for place in runner.places()}
    _finite(case, output)
    every = [*contents, *case.reading.labels]
    readers = readers_of(runner, output)
    integers = {place.name for place in runner.places() if place.discrete}
    for number, content in enumerate(every):
        runner.end = case.audit.budget.part(end, len(every) - number)
        flows = _measured(case, content, number >= len(contents))
        if not flows:
            continue
        source = _source(case, content, number >= len(contents), flows, readers)
        for flow in flows:
            if flow.output in integers:
                _judge_integers(source, flow, output)
            else:
                _judge(source, flow)
    compare_without_padding(case, output)


def _measured(case: Case, content: Content, labels: bool) -> list[Flow]:
    """The flows from one input; none, and open, where its content cannot be changed."""
    runner, subject = case.runner, Subject(Compared.FLOW, input=content.name)
    positions = _positions(case, content)
    count = content.length if positions is None else len(positions)
    where = "" if case.feeding.given else f" ({case.label})"
    case.audit.tell(f"flow from {content.name}: {count} positions{where}")
    try:
        flows = measure(runner, content, positions)
        flows = padding_by_itself(runner, content, flows, case.real.get(content.name))
        return flows if labels else without_delimiters(case, content, flows)
    except DataError as error:
        case.open(subject, str(error))
    except Exception as error:
        reason = (
            f"changing {content.name} alone is not a valid input ({in_short(error)}): say content=[...] "
            "without it, or vary=... to change what belongs together"
        )
        case.open(subject, reason)
    return []


def _positions(case: Case, content: Content) -> list[int] | None:
    """Which positions to change: all, unless asked for fewer or the budget does not allow it."""
    n, feeding, asked = content.length, case.feeding, case.audit.positions
    if asked is not None:
        return [p for p in asked if p < n] if content.axis is not None else None
    # So short that changing groups as well would take as many runs as changing every position.
    most = n if case.thorough or n <= feeding.spread + GROUPS else feeding.spread
    # Others are the second run, those that change one item, and groups of positions.
    others = 1 + (min(content.batch, 8) if content.batch > 1 else 0)
    affordable = int(min(case.runner.affordable(), 1e9)) - others
    if min(most, affordable) >= n:
        return None
    count = max(LEAST, min(most, affordable - GROUPS))
    return sorted({*(round(k * (n - 1) / (count - 1)) for k in range(count)), *feeding.besides(n)})


def _source(case: Case, content: Content, labels: bool, flows: list[Flow], readers: Readers) -> Source:
    runner, reading, calls = case.runner, case.reading, case.calls
    positions = None if flows[0].positions is None else list(flows[0].positions)
    if positions is not None:
        case.result.sampled = len(positions), content.length
    inside = Inside(runner, content, positions, rows_inside(content, calls))
    scene = Scene(
        case.feeding, content, calls, case.covered, [*reading.contents, *fed_labels(reading.labels, calls)],
        case.expect, case.real, exact=case.feeding.exact, hidden=bool(case.seen.unexplained),
        own_path=inside.own_path, may_follow=case.audit.may_follow, follow=case.audit.follow,
        losses=lambda: losses_of(runner),
        labelled=labelled_rows(reading.labels),
        base=[] if case.feeding.resized else case.audit.base,
        seen=read_by_own_rows(flows, content, [*reading.contents, *reading.labels], readers),
        early=only_early(flows), kept_rows=kept_rows(runner.places(), case.audit.fixed),
        readers=readers,
        pooled=frozenset(flow.output for flow in flows if flow.pooled),
        read_by_any=read_by_any(flows),
        taken=lambda flow, item, at: taken(runner, flow, content, item, at, calls, case.covered),
        steps=lambda one, bound: inside.steps(bound),
        awake=lambda one, name: awake(runner, one, name, positions),
        others_spread=lambda one, name: others_spread(runner, one, name),
        rounds=inside.rounds,
        padding_alone=lambda flow: padding_alone(runner, content, flow, case.real.get(content.name)),
    )  # fmt: skip
    return Source(case, labels, inside, scene)


def _role(source: Source, flow: Flow) -> str:
    """What the rows of an output are to the input."""
    every = [*source.scene.contents, *source.case.reading.labels]
    rows = rivals(flow, source.scene.content, every, source.scene.readers)
    return role_of(flow, source.scene.content, rows, flow.relations[0].queries)


def _judge(source: Source, flow: Flow) -> None:
    case, content, inside, scene = source.case, source.scene.content, source.inside, source.scene
    result, pair, role = case.result, (content.name, flow.output), _role(source, flow)
    if role == "mapped" and not source.labels:
        across = only_read_across(content, scene.calls)
        role = "foreign" if across or of_another(flow, scene) else role
    if case.feeding.given and role == "mapped" and followed(flow):
        scene.may_follow.add(pair)
        scene.follow.add(pair)
    same = [one for one in result.flows if one.role == "own" and one.flow.output == flow.output]
    beside = [one.flow for one in same if one.flow.content != flow.content]
    verdict = judge_flow(flow, "labels" if source.labels else role, scene, beside)
    if case.feeding.mode.train and scene.exact and not source.labels and lacks(verdict):
        other = _at_another_draw(source, flow)
        if other is not None and other.relations != flow.relations:
            scene = replace(scene, exact=False)
            verdict, drawn = (judge_flow(one, role, scene, beside) for one in (flow, other))
            verdict.settled += [one for one in drawn.settled if one.state == BROKEN]
            case.note(f"{case.label}: what is read is drawn at random: nothing is missing there")
    settle_rounded(verdict, scene, inside, case.runner)
    result.flows.append(verdict)
    if verdict.unseen:
        case.audit.unseen.add(pair)
    # At few positions, or where less is read, layers that were not seen may stay so.
    verdict.unseen = pair in case.audit.unseen
    if scene.own_padding:
        case.audit.notes += verdict.notes
    verdicts = [verdict]
    moves = any(bound.num_edges for bound in flow.relations) and content.axis is not None
    opened = role == "mapped" and any(one.state == OPEN for one in verdict.settled)
    # Under other feedings rows that come out of the same model stand for those before pooling.
    thorough = case.thorough or not scene.seen
    looked = (role in ("pooled", "mapped") and thorough) or opened
    if looked and not source.labels and scene.expect is not None and moves:
        inner = before_pooling(case, flow, scene, inside)
        if role == "mapped" and not opened:  # rows at their own rate were compared
            inner.leave_out(OPEN)
        if opened and inner.role == "inner":
            verdict.leave_out(OPEN)
        verdicts.append(inner)
        result.flows.append(inner)
    if flow.positions is not None and scene.expect is not None:
        for one in verdicts:
            _groups(source, one, scene)
    for one in verdicts:
        for ended in one.settled:
            in_time = case.audit.budget.left > 0
            if ended.finding is not None and in_time and one.role in ("own", "labels", "inner"):
                located = inside.origin(ended.finding)
                if one.counterexample is ended.finding:
                    one.counterexample = located
                ended = replace(ended, finding=located)
            case.enter(ended)
    if flow.whole_batch and content.batch > 1:
        # A loss has no items of its own: they are compared in the rows before it, or not at all.
        if scene.expect is None or not thorough or not inside.has_rows():
            return
        flow = replace(flow, batch_leak=inside.batch_leak)
    if flow.batch_leak is not None and _by_statistics(source, flow):
        case.note("in training mode sequences of one batch read each other, by batch statistics")
    elif flow.batch_leak is not None or content.batch > 1:
        case.settle(verdict.subject(Compared.BATCH), _batch_finding(source, flow))


def _at_another_draw(source: Source, flow: Flow) -> Flow | None:
    """The same flow with other random numbers; None where it cannot be measured."""
    case = source.case
    again = case.audit.runner(case.drawn(OTHER_DRAWS[0]))
    again.end = max(case.runner.end, case.audit.budget.end(0.5))
    positions = None if flow.positions is None else list(flow.positions)
    try:
        flows = measure(again, source.scene.content, positions)
    except Exception:
        return None
    same = [one for one in flows if one.output == flow.output and one.positions == flow.positions]
    return same[0] if same else None


def _by_statistics(source: Source, flow: Flow) -> bool:
    """Whether items read each other by batch norms alone, as is meant in training: with the statistics that
    these keep no item moves with another."""
    case, content = source.case, source.scene.content
    norms = any(isinstance(module, BATCH_NORM) for module in case.model.modules())
    if not (case.feeding.mode.train and norms):
        return False
    runner = case.in_mode(replace(case.feeding.mode, statistics=False))
    if flow.whole_batch:
        inside = Inside(runner, content, None, content.length)
        return inside.has_rows() and inside.batch_leak is None
    leaks = batch_leaks(runner, content, runner.places(), runner.base())
    names = [place.name for place in runner.places()]
    return flow.output in names and leaks[names.index(flow.output)] is None


def _batch_finding(source: Source, flow: Flow) -> Finding | None:
    if flow.batch_leak is None:
        return None
    changed, moved = flow.batch_leak
    text = f"sequences of one batch read each other: changing item {changed} moves item {moved}"
    found = Finding(
        "batch", WHOLE, item=moved, where=source.case.label, size=flow.leak_size, content=flow.content,
        output=flow.output or None, detail=text + told_of_items(source.case.model),
    )  # fmt: skip
    return source.inside.origin_of_item(found, changed)


def _groups(source: Source, verdict: FlowVerdict, scene: Scene) -> None:
    """Where not every position was changed by itself: change many at once."""
    case, content, inside = source.case, source.scene.content, source.inside
    told = "extra edges, by groups of positions"
    kept = case.kept.get(content.name, content)
    if verdict.role not in ("own", "inner") or kept is None:
        return
    try:
        moves, double = (
            moves_of_output(case.runner, kept, verdict.flow.output)
            if verdict.role == "own"
            else (inside.moves(), False)
        )
        found, tried = forbidden_by_groups(moves, content, verdict, scene, case.runner, double)
    except DataError as error:
        verdict.opened(Compared.EXTRA, str(error), told)
        return
    case.result.groups = max(case.result.groups, tried)
    if verdict.role == "own" and found is None:
        case.result.waiting.append(Waiting(content, verdict, scene, inside))
    if found is not None or tried:
        verdict.settle(Compared.EXTRA, found, told)


def _judge_integers(source: Source, flow: Flow, output: Any) -> None:
    """Integers are judged by what they are made of; each item reads itself alone, as anywhere."""
    case = source.case
    direct = judge_integers(
        case, flow, _role(source, flow), source.labels, source.scene, source.inside, output
    )
    case.result.flows.append(direct)
    for ended in direct.settled:
        located = None if ended.finding is None else source.inside.origin(ended.finding)
        case.enter(replace(ended, finding=located))
    if flow.batch_leak is not None and not _by_statistics(source, flow):
        case.settle(direct.subject(Compared.BATCH), _batch_finding(source, flow))


def _finite(case: Case, output: Any) -> None:
    """No real row may be NaN, nor infinite throughout."""
    for place in case.runner.places():
        rows = place.rows(output)
        bad = rows.isnan().any(-1) | rows.isinf().all(-1)
        fitting = [m for m in case.real.values() if m is not None and m.shape == tuple(bad.shape)]
        if fitting:
            bad = bad & torch.from_numpy(fitting[0])
        finding = None
        if bool(bad.any()):
            b, i = bad.nonzero()[0].tolist()
            detail = (
                f"{int(bad.sum())} of {bad.numel()} rows of {place.name or 'the output'} are not finite, "
                f"first item {b}, row {i}: they move with nothing, so nothing could be told about them"
            )
            finding = Finding("finite", WHOLE, item=b, query=i, where=case.label, detail=detail)
        case.settle(Subject(Compared.FINITE, output=place.name), finding)

"""Behind outputs without rows, or of integers: the rows before pooling, the numbers before rounding."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from erlangen.audit.case import Case
from erlangen.audit.expect import AtMost, overall
from erlangen.audit.findings import Finding
from erlangen.audit.flow_rules.bounds import closure_of, single
from erlangen.audit.flow_rules.following import asks, each_itself, only_read_across
from erlangen.audit.flow_rules.inside import Inside
from erlangen.audit.flow_rules.judge import judge_flow
from erlangen.audit.flow_rules.other_rows import everything
from erlangen.audit.flow_rules.pooled import must_read_all, unread
from erlangen.audit.flow_verdict import FlowVerdict, Scene
from erlangen.audit.obligations import OPEN, Compared, Obligation
from erlangen.audit.outputs import output_tensors
from erlangen.audit.witnesses.flow import Flow
from erlangen.errors import ErlangenError


def before_pooling(case: Case, flow: Flow, scene: Scene, inside: Inside) -> FlowVerdict:
    """The rows before a pooled output, judged in its place, and whether it reads all that it must."""
    verdict, rows = _before_pooling(case, flow, scene, inside)
    own = scene.content is scene.contents[0] or scene.content.length == scene.contents[0].length
    if not (flow.pooled and own and must_read_all(scene.expect)):
        return verdict
    found = unread(FlowVerdict(flow, "pooled", case.label), scene, inside.runner)
    if isinstance(found, Finding):
        verdict.leave_out(OPEN)
        verdict.broken(Compared.MISSING, found)
    elif isinstance(found, str):
        verdict.opened(Compared.MISSING, found)
    elif not rows and not scene.hidden:
        # Nothing can be too much, and every position is read: it needs no rows to be judged by.
        verdict.settled = []
        verdict.held(Compared.EDGES)
    return verdict


def _before_pooling(case: Case, flow: Flow, scene: Scene, inside: Inside) -> tuple[FlowVerdict, bool]:
    """The rows before a pooled output, judged; False where it has none."""
    relation = overall(scene.expect)
    any_edge = isinstance(relation, AtMost) and everything(relation)
    if inside.rows in case.audit.widths:  # features would be taken for rows: not so at another length
        if any_edge:
            verdict = FlowVerdict(flow, "pooled", case.label)
            verdict.held(Compared.EXTRA)  # nothing could be too much
            return verdict, True
        case.audit.ambiguous[scene.content.name] = case.audit.ambiguous.get(scene.content.name, True)
        return FlowVerdict(flow, "pooled", case.label), True
    case.audit.ambiguous[scene.content.name] = False
    own = scene.content is scene.contents[0] or scene.content.length == scene.contents[0].length
    alone = not each_itself(flow) or must_read_all(scene.expect)
    try:
        inner = inside.before_pooling(flow.output)
    except Exception as error:
        inner, why = None, f"; looking inside failed: {type(error).__name__}"
    else:
        why = ""
    if inner is not None and each_itself(inner) and alone:
        inner, why = None, "; the rows before it read themselves only: others are read behind them"
    if inner is None and not why and scene.content is scene.contents[0]:
        # A wrapper for training gives the model all tokens but the last, and returns the loss alone.
        inner = inside.one_row_less(case.audit.widths, flow.output)
        # Rows that read themselves only say nothing of what is read behind them.
        if inner is not None and not (each_itself(inner) and alone):
            return judge_flow(inner, "mapped", scene), True
        inner = None
    if inner is None:
        verdict = FlowVerdict(flow, "pooled", case.label)
        across = only_read_across(scene.content, scene.calls)
        if across or not (own or asks(scene.content, scene.calls)):
            verdict.notes.append(
                f"nothing is expected of reading {scene.content.name}, which is another sequence"
            )
            verdict.held(Compared.ANOTHER)
            return verdict, True
        if any_edge:
            verdict.held(Compared.EXTRA)  # nothing could be too much
            return verdict, True
        verdict.opened(
            Compared.EDGES,
            "it has no rows, and no tensor with rows was seen before it: give a model that returns rows"
            + why,
        )
        return verdict, "failed" in why
    verdict = judge_flow(inner, "inner", scene)
    if not (own or asks(scene.content, scene.calls)) and verdict.settled:
        if not verdict.right:
            verdict.settled, verdict.counterexample = [], None
            verdict.opened(
                Compared.EXTRA,
                f"rows of {scene.content.name} inside the model read more than expected, and whether it is "
                f"another sequence could not be told: if so, say content=[...] without {flow.content!r}",
            )
        return verdict, True
    if verdict.right:
        _other_branches(verdict, flow, scene, inside)
    return verdict, True


def _other_branches(verdict: FlowVerdict, flow: Flow, scene: Scene, inside: Inside) -> None:
    """Open where rows of some module read too much, although the last rows before pooling do not."""
    relation, real = overall(scene.expect), scene.real.get(scene.content.name)
    if relation is None or everything(relation) or (real is not None and not real.all()):
        return
    n = scene.content.length
    try:
        bound = [single(relation, b) for b in range(len(flow.relations))]
        allowed = [closure_of(one.on(n), one, n).dense() for one in bound]
    except ErlangenError:
        return  # the expectation cannot be held at this length, which is said elsewhere
    module = inside.beyond(allowed)
    if module is not None:
        verdict.opened(
            Compared.EXTRA,
            f"rows of {module} read more than expected, and whether {flow.output or 'the output'} takes "
            "them could not be told: give a model that returns rows",
            "extra edges, in other branches",
        )


def judge_integers(
    case: Case, flow: Flow, role: str, labels: bool, scene: Scene, inside: Inside,
    output: Any,
) -> FlowVerdict:  # fmt: skip
    """Integers that move are evidence; where they stay, the numbers they are made of are looked at."""
    direct = judge_flow(flow, "labels" if labels else role, replace(scene, exact=False))
    if labels:
        direct.settled = [_metric(one, flow) for one in direct.settled]
    elif not direct.wrong_somewhere:
        direct = _rounded(case, direct, scene, inside, output)
    return direct


def _rounded(case: Case, direct: FlowVerdict, scene: Scene, inside: Inside, output: Any) -> FlowVerdict:
    """What the numbers behind an integer output read, in place of the integers."""
    flow, role = direct.flow, direct.role
    nothing = FlowVerdict(flow, role, case.label)
    if scene.expect is None or role == "foreign" or scene.content.axis is None or not case.thorough:
        return direct if role == "foreign" else nothing
    if role == "pooled":  # rows that come out of the same model stand for those before it
        return nothing if scene.seen else before_pooling(case, flow, scene, inside)
    name = flow.output or "the output"
    try:
        tensor = dict(output_tensors(output))[flow.output]
        found = inside.before_rounding(flow.output, tensor)
    except Exception as error:
        nothing.opened(
            Compared.EDGES,
            f"{name} holds integers, and looking inside failed ({type(error).__name__}): return the "
            "numbers that they are made of",
        )
        return nothing
    if found is None:
        return nothing  # a function of integers: what it reads is seen in the flow
    inner, sure = found
    verdict = judge_flow(inner, "inner", scene if sure else replace(scene, exact=False))
    if not sure and verdict.wrong_somewhere:
        verdict.settled = []
        verdict.opened(
            Compared.EXTRA,
            f"{name} holds integers, and which numbers they are made of could not be told: return these",
        )
    return verdict


def _metric(one: Obligation, flow: Flow) -> Obligation:
    """Integers that depend on labels may be a metric, or predictions that read them."""
    if one.finding is None:
        return one
    name = flow.output or "the output"
    reason = (
        f"{name} holds integers that depend on {flow.content}: a metric may, a prediction may not; return "
        f"the numbers that they are made of, or say content=[...] to leave {flow.content} as it is"
    )
    return replace(one, state=OPEN, finding=None, reason=reason)

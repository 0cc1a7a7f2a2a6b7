"""Outputs of integers: what moves them is evidence; what they are made of is looked at inside the model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from erlangen.audit.before_pooling import before_pooling
from erlangen.audit.case import Case
from erlangen.audit.flow_verdict import FlowVerdict, Scene
from erlangen.audit.flows import judge_flow
from erlangen.audit.inputs import Content
from erlangen.audit.inside import Inside
from erlangen.audit.obligations import OPEN, Compared, Obligation
from erlangen.audit.outputs import output_tensors
from erlangen.audit.witnesses.flow import Flow


def judge_integers(
    case: Case, flow: Flow, content: Content, role: str, labels: bool, scene: Scene, inside: Inside,
    output: Any,
) -> FlowVerdict:  # fmt: skip
    """Integers that move are evidence; where they stay, the numbers they are made of are looked at."""
    direct = judge_flow(flow, content, "labels" if labels else role, replace(scene, exact=False))
    if labels:
        direct.settled = [_metric(one, flow) for one in direct.settled]
    elif not direct.wrong_somewhere:
        direct = _rounded(case, direct, content, scene, inside, output)
    return direct


def _rounded(
    case: Case, direct: FlowVerdict, content: Content, scene: Scene, inside: Inside, output: Any
) -> FlowVerdict:
    """What the numbers behind an integer output read, in place of the integers."""
    flow, role = direct.flow, direct.role
    nothing = FlowVerdict(flow, role, case.label)
    if scene.expect is None or role == "foreign" or content.axis is None or not case.thorough:
        return direct if role == "foreign" else nothing
    if role == "pooled":  # rows that come out of the same model stand for those before it
        return nothing if scene.seen else before_pooling(case, flow, content, scene, inside)
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
    verdict = judge_flow(inner, content, "inner", scene if sure else replace(scene, exact=False))
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

"""Outputs of floating type that take few values: rounded numbers, code vectors, spikes, one-hot decisions."""

from __future__ import annotations

import copy
from dataclasses import replace

import torch

from erlangen.audit.bounds import bounds, columns
from erlangen.audit.findings import Finding
from erlangen.audit.flow_verdict import FlowVerdict, Scene
from erlangen.audit.inputs import Content, with_content
from erlangen.audit.inside import Inside
from erlangen.audit.obligations import OPEN
from erlangen.audit.orientation import embedding_of
from erlangen.audit.real import kept
from erlangen.audit.witnesses.flow import differs
from erlangen.audit.witnesses.runs import Runner

STAY = 0.25
"""Where so many of the rows keep every bit though all content changes a little, rows are rounded numbers."""


def settle_rounded(
    verdict: FlowVerdict, content: Content, scene: Scene, inside: Inside, runner: Runner
) -> None:
    """Missing edges of an output of few values, or behind codes inside the model, are looked for in the
    numbers before these are rounded: what is rounded moves with some changes only."""
    if not any(_missing(one.finding) for one in verdict.settled) or verdict.role != "own":
        return
    reason = None
    if stepwise(runner, content, verdict.flow.output):
        if not _read_before(verdict, content, scene, inside):
            name = verdict.flow.output or "the output"
            reason = (
                f"{name} takes few values, as rounded numbers do: return the numbers that they are made of"
            )
    else:
        where = [
            inside.rounds(one.finding.query, one.finding.key or 0)
            for one in verdict.settled
            if one.finding is not None and _missing(one.finding)
        ]
        if None in where:
            return
        # A router that chooses experts makes integers, too, and hides nothing: this excuses, and never holds.
        reason = (
            f"not all that is expected is seen, and {where[0]} makes integers of numbers that read more: "
            "small changes end there; expect AtMost(...) to leave missing edges out"
        )
    verdict.settled = [
        replace(one, state=OPEN, finding=None, reason=reason) if _missing(one.finding) else one
        for one in verdict.settled
    ]
    if _missing(verdict.counterexample):
        verdict.counterexample = None
    verdict.missing, verdict.wrong = None, {b: one for b, one in verdict.wrong.items() if one[1]}


def stepwise(runner: Runner, content: Content, output: str) -> bool:
    """Whether rows that follow the content keep every bit where all of it changes by a thousandth: vectors,
    or what the tokens are embedded as."""
    place = next(one for one in runner.places() if one.name == output)
    base = place.rows(runner.base())
    least = max(1e-3, 4 * torch.finfo(torch.bfloat16 if runner.mode.autocast else base.dtype).eps)
    every = range(content.length)
    try:
        if content.pool is None:
            little = content.tensor + least * (content.changed(every) - content.tensor)
            after = runner.on(with_content(runner.inputs, content, little.to(content.tensor)))
        else:
            name = content.embedding or embedding_of(runner.model, runner.inputs, content, runner.on)
            model = copy.deepcopy(runner.model)
            weight = next(model.get_submodule(name or "").parameters(recurse=False))
            noise = torch.randn(weight.shape, generator=torch.Generator().manual_seed(7), device="cpu")
            weight.data.mul_((1 + least * noise).to(weight))
            after = runner.on(runner.inputs, model=model)
        moved = differs(place.rows(after), base)[0]
        others = [runner.changed(content, every, seed=seed) for seed in range(3)]
        follow = torch.stack([differs(place.rows(other), base)[0] for other in others]).any(0)
    except Exception:
        return False  # tokens that nothing embeds
    return bool(follow.any()) and float((~moved)[follow].float().mean()) > STAY


def _missing(finding: Finding | None) -> bool:
    return finding is not None and (
        finding.kind == "silent" or (finding.kind == "edge" and not finding.extra)
    )


def _read_before(verdict: FlowVerdict, content: Content, scene: Scene, inside: Inside) -> bool:
    """Whether the numbers that were rounded anywhere in the model read all that is expected."""
    try:
        found = inside.before_rounding(verdict.flow.output, torch.empty(0, device="cpu"))
    except Exception:
        return False  # a model that runs only unobserved
    if found is None:
        return False
    for item, seen in enumerate(verdict.flow.relations):
        bound = bounds(verdict, content, scene, item)
        lower = None if isinstance(bound, str) else bound[1]
        if lower is None or item >= len(found[0].relations):
            return False
        before = found[0].relations[item]
        if kept(columns(lower, verdict.flow) - before - seen, verdict.real, item).num_edges:
            return False
    return True

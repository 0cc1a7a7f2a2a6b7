"""What hides edges that are there: gates of zero, saturated scores, outputs rounded to few values."""

from __future__ import annotations

import copy
from dataclasses import replace

import torch
from torch import nn

from erlangen.audit.arguments.orientation import embedding_of
from erlangen.audit.calls.real import kept
from erlangen.audit.findings import Finding
from erlangen.audit.flow_rules.bounds import bounds, columns
from erlangen.audit.flow_rules.inside import Inside
from erlangen.audit.flow_verdict import FlowVerdict, Scene
from erlangen.audit.inputs import Content, with_content
from erlangen.audit.obligations import HELD, OPEN
from erlangen.audit.state import Snapshot
from erlangen.audit.witnesses.double import copied, recast
from erlangen.audit.witnesses.flow import Flow, measure
from erlangen.audit.witnesses.rounding import differs
from erlangen.audit.witnesses.runs import Runner

SMALL = 0.1
"""Activations are shrunk by this much where a saturated softmax may hide edges: scores shrink by its
square."""
SHRUNK = ((SMALL, 1.0), (SMALL**2, SMALL), (SMALL**2, SMALL**2))
"""By how much inputs and embeddings are shrunk, and matrices: behind a norm small activations are large
again, and only smaller matrices make smaller scores."""


def awake(runner: Runner, content: Content, output: str, positions: list[int] | None) -> Flow | None:
    """The flow of copies whose all-zero parameters have other values and whose scores are small; None if it
    cannot be copied."""
    found: Flow | None = None
    for inputs, matrices in SHRUNK:
        one = _awake(runner, content, output, positions, inputs, matrices)
        if one is None:
            continue
        if found is None:
            found = one
            continue
        # What is seen in any of them is read.
        pairs = zip(found.relations, one.relations, strict=True)
        union = tuple(a | b for a, b in pairs)
        if union == found.relations:
            break
        found = replace(found, relations=union)
    return found


def _awake(
    runner: Runner,
    content: Content,
    output: str,
    positions: list[int] | None,
    shrunk: float,
    matrices: float,
) -> Flow | None:
    found = None
    masks = {id(mask.tensor) for mask in runner.reading.masks}
    # In bfloat16 small dependences vanish; double precision is left as it is by autocast.
    for dtype in (torch.float64,) if runner.mode.autocast else (torch.float64, None):
        try:
            model = copied(runner.model, dtype)
        except Exception:
            return None  # a model that cannot be copied
        _fill(model, shrunk, matrices)

        def small(tensor: torch.Tensor, dtype: torch.dtype | None = dtype) -> torch.Tensor:
            if not (tensor.is_floating_point() or tensor.is_complex()) or id(tensor) in masks:
                return tensor
            return recast(tensor * shrunk, dtype) if dtype is not None else tensor * shrunk

        inputs = runner.inputs.map(small)
        reading = runner.reading.of(runner.model, inputs)  # a copy of a script has no names of arguments
        waked = Runner(model, inputs, reading, Snapshot(model), runner.mode)
        waked.random, waked.end = runner.random, runner.end
        waked.fixed, waked.like = runner.fixed, {place.name: place for place in runner.places()}
        same = waked.reading.content(content.name)
        try:
            flows = measure(waked, same, positions) if same is not None else []
        except Exception:
            continue  # no kernels of this type
        found = next((one for one in flows if one.output == output), None)
        if found is not None:
            return found
    return found


def _fill(model: nn.Module, shrunk: float, matrices: float) -> None:
    """Give parameters that are all zero other values, and shrink embeddings and matrices."""
    generator = torch.Generator().manual_seed(11)
    embeddings = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.numel() and parameter.is_floating_point():
                if not bool(parameter.any()):
                    parameter.copy_(
                        (torch.randn(parameter.shape, generator=generator, device="cpu") * 0.2).to(parameter)
                    )
                elif id(parameter) in embeddings:
                    parameter.mul_(shrunk)
                elif parameter.dim() > 1:
                    parameter.mul_(matrices)


STAY = 0.25
"""Where so many of the rows keep every bit though all content changes a little, rows are rounded numbers."""


def settle_rounded(verdict: FlowVerdict, scene: Scene, inside: Inside, runner: Runner) -> None:
    """Missing edges of an output of few values, or behind codes inside the model, are looked for in the
    numbers before these are rounded: what is rounded moves with some changes only."""
    if not any(_missing(one.finding) for one in verdict.settled) or verdict.role != "own":
        return
    reason = None
    if stepwise(runner, scene.content, verdict.flow.output):
        if not _read_before(verdict, scene, inside):
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
    ended = HELD if reason is None else OPEN
    verdict.settled = [
        replace(one, state=ended, finding=None, reason=reason) if _missing(one.finding) else one
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


def _read_before(verdict: FlowVerdict, scene: Scene, inside: Inside) -> bool:
    """Whether the numbers that were rounded anywhere in the model read all that is expected."""
    try:
        found = inside.before_rounding(verdict.flow.output, torch.empty(0, device="cpu"))
    except Exception:
        return False  # a model that runs only unobserved
    if found is None:
        return False
    for item, seen in enumerate(verdict.flow.relations):
        bound = bounds(verdict, scene, item)
        lower = None if isinstance(bound, str) else bound[1]
        if lower is None or item >= len(found[0].relations):
            return False
        before = found[0].relations[item]
        if kept(columns(lower, verdict.flow) - before - seen, verdict.real, item).num_edges:
            return False
    return True

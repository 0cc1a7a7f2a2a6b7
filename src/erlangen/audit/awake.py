"""A copy of a model whose all-zero parameters have other values: a gate of zero hides what it lets pass."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

from erlangen.audit.inputs import Content
from erlangen.audit.state import Snapshot
from erlangen.audit.witnesses.double import copied, recast
from erlangen.audit.witnesses.flow import Flow, measure
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

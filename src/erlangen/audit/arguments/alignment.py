"""Inputs beside a sequence: which have its positions along an axis, and which are one value of a sequence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from erlangen.audit.arguments.reading import INDEX, Reading
from erlangen.audit.arguments.resized import cut
from erlangen.audit.feeding import Given
from erlangen.audit.inputs import Content, Inputs
from erlangen.audit.outputs import floating

Run = Callable[..., Any]


def aligned(model: nn.Module, inputs: Inputs, found: Reading, run: Run) -> Reading:
    """Find the positions of inputs that have an axis as long as the first sequence.

    (batch, n) numbers beside n tokens may be one number for each token, or n features of the sequence. If the
    tokens can be fewer while the numbers stay, they are features; if both must be fewer together, they have
    the same positions.
    """
    first = found.sequences[0] if found.sequences else None
    if first is None or inputs.content is not None or inputs.vary is not None or not first.sequence:
        return found
    n = first.length
    for number, one in enumerate(found.contents):
        if one is first or one.patch is not None or one.block > 1 or n < 3:
            continue
        if one.axis is not None and one.length in {
            other.length for other in found.sequences if other is not one
        }:
            continue
        axes = [axis for axis, size in enumerate(one.tensor.shape) if size == n and axis != one.batch_axis]
        if len(axes) != 1:
            continue
        placed = replace(one, axis=axes[0])
        if _runs(model, inputs, found, run, n):
            continue
        if _runs(model, inputs, _with(found, number, placed), run, n):
            found = _with(found, number, placed)
        elif _moves(inputs, one.tensor, one.changed(range(one.length)), run):
            found.opened[one.name] = (
                f"{one.name} has an axis of {n}, as long as {first.name}, and which of its entries belong to "
                "which position could not be told: give another length, or say content=[...]"
            )
    return found


def indices(model: nn.Module, inputs: Inputs, found: Reading, run: Run) -> Reading:
    """Open what was taken for an index, moves outputs, and is not the offsets of documents."""
    if inputs.content is not None or inputs.vary is not None:
        return found
    for name in [name for name, why in found.ignored.items() if why == INDEX]:
        tensor = inputs.leaves(model)[name]
        offsets = int(tensor[0]) == 0 and bool((tensor.diff() >= 0).all())
        if not offsets and _moves(inputs, tensor, tensor.roll(1), run):
            found.opened[name] = (
                f"{name} has neither an entry for each position nor one for each sequence, and moves "
                f"outputs: say content=[...] with or without {name!r}"
            )
    return found


def _with(found: Reading, number: int, content: Content) -> Reading:
    contents = [content if index == number else one for index, one in enumerate(found.contents)]
    return replace(found, contents=contents)


def _runs(model: nn.Module, inputs: Inputs, found: Reading, run: Run, n: int) -> bool:
    """Whether the model runs when all that has n positions has one less."""
    lengths = {one.name: (0, n - 1) for one in found.sequences if one.sequence and one.length == n}
    try:
        run(cut(Given(model, inputs, found, lambda _: True), lengths, "shorter"))
    except Exception:
        return False
    return True


def _moves(inputs: Inputs, tensor: torch.Tensor, other: torch.Tensor, run: Run) -> bool:
    """Whether an output is another one where this tensor is; not where it may not be."""
    try:
        before = floating(run(inputs))
        after = dict(floating(run(inputs.map(lambda part: other if part is tensor else part))))
    except Exception:
        return False
    return any(name not in after or not torch.equal(after[name], value) for name, value in before)


CLOSE = 1e-3
"""Outputs that agree up to this part of their largest entry are the same."""


def one_sequence(inputs: Inputs, found: Reading, run: Callable[..., Any]) -> Reading:
    """Read queries, keys and values of equal length as one content, changed together.

    They are told by what attention is, a weighted mean of values: where all values are equal, queries and
    keys do not matter; otherwise they do.
    """
    if inputs.content is not None or inputs.vary is not None or found.labels or len(found.contents) != 3:
        return found
    q, k, v = found.contents
    places = {(one.axis, one.batch_axis, one.batch, one.length) for one in (q, k, v)}
    if len(places) != 1 or any(one.pool is not None or not one.sequence for one in (q, k, v)):
        return found
    axis = q.axis or 0
    equal = v.tensor.narrow(axis, 0, 1).expand_as(v.tensor).contiguous()
    try:
        for values, same in ((equal, True), (v.tensor, False)):
            given = _in_place(inputs, {id(v.tensor): values})
            other = {id(one.tensor): one.changed(range(one.length)) for one in (q, k)}
            if _close(run(given), run(_in_place(given, other))) != same:
                return found
    except Exception:
        return found
    note = f"{q.name}, {k.name} and {v.name} were read as queries, keys and values of one sequence"
    return replace(found, contents=[replace(q, together=(k, v))], notes=[*found.notes, note])


def _in_place(inputs: Inputs, others: dict[int, torch.Tensor]) -> Inputs:
    return inputs.map(lambda part: others.get(id(part), part))


def _close(one: Any, other: Any) -> bool:
    pairs = list(zip(floating(one), floating(other), strict=True))
    return all(float((a - b).abs().max()) <= CLOSE * float(a.abs().max()) for (_, a), (_, b) in pairs)

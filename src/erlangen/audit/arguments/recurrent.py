"""States of recurrent layers, (layers, batch, features): their batch is the second axis, and layers are no
positions."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from erlangen.audit.arguments.reading import Reading
from erlangen.audit.inputs import Content, Inputs, with_content
from erlangen.audit.outputs import moved_entries

Run = Callable[..., Any]
_NAMES = re.compile(r"[hc]_?[0xnt]|((initial|init|prev|rnn|last)_)?(hidden|cell|states?|hidden_states?)")
"""What the states of recurrent layers are called: these have one for each item, whatever else would run."""
SHORTEST = 3
"""So few entries are not taken for positions."""


def states(inputs: Inputs, found: Reading, run: Run) -> Reading:
    """Read inputs beside the first as (layers, batch, ...) where their second axis has the size of the batch.

    Where both axes have it, the batch is the one whose first entry moves the first item alone. Where that is
    not seen (a model may mix the states of its items, which is a fault), the batch is the axis that must have
    as many entries as there are items, and may have fewer where these are fewer. The first axis holds
    positions only where it may be shorter.
    """
    if inputs.vary is not None or not found.contents or found.contents[0].batch_axis is None:
        return found
    first = found.contents[0]
    if not any(_may_be(one, first) for one in found.contents[1:]):
        return found
    base = run(inputs)
    items = _items(first, base, inputs, run)

    def told(one: Content) -> Content:
        if not _may_be(one, first):
            return one
        equal = one.tensor.shape[0] == first.batch
        confined = [_confined(one, axis, items, base, inputs, run) for axis in ((0, 1) if equal else (1,))]
        seen = confined[-1] is not False and (not equal or confined == [False, True])
        if not seen and not (confined[0] is not True and _of_items(one, found, inputs, run)):
            return one
        # Beside steps that come first those of a decoder do, too, whose mask may not be shorter.
        steps = first.axis == 0 and not _named(one)
        positions = one.tensor.shape[0] >= SHORTEST and (steps or _runs_shorter(one, inputs, run))
        return replace(one, axis=0 if positions else None, batch_axis=1)

    return replace(found, contents=[first, *map(told, found.contents[1:])])


def _may_be(one: Content, first: Content) -> bool:
    tensor = one.tensor
    if one.pool is not None or one.patch is not None or one.block > 1 or tensor.dim() < 3:
        return False
    own = first.axis == 0 and tensor.shape[0] == first.length  # positions of both, given steps first
    return tensor.shape[1] == first.batch and not own and tensor.shape[:2] != (1, 1)


def _items(first: Content, base: Any, inputs: Inputs, run: Run) -> list[tuple[str, int]]:
    """The outputs with an axis along which only the first entry moves with the first item: (name, axis)."""
    if first.batch < 2:
        return []
    every = range(first.length)
    try:
        moved = moved_entries(base, run(with_content(inputs, first, first.changed(every, 0))))
    except Exception:
        return []  # placeholders may not change alone
    return [
        (name, axis)
        for name, part in moved.items()
        for axis in range(min(2, part.dim()))
        if part.shape[axis] == first.batch and bool(part.any()) and _first_only(part, axis)
    ]


def _confined(
    one: Content,
    axis: int,
    items: list[tuple[str, int]],
    base: Any,
    inputs: Inputs,
    run: Run,
) -> bool | None:
    """Whether the first entry along an axis moves the first item alone; None where that is not seen."""
    changed = replace(one, axis=None, batch_axis=axis).changed(0, 0)
    try:
        moved = moved_entries(base, run(with_content(inputs, one, changed)))
    except Exception:
        return None
    seen = [_first_only(moved[name], along) for name, along in items if name in moved and moved[name].any()]
    return all(seen) if seen else None


def _of_items(one: Content, found: Reading, inputs: Inputs, run: Run) -> bool:
    """Whether the second axis of an input, and not its first, has one entry for each item of the batch: the
    model takes one item with one entry there, and no other number of entries for the same items.

    Inputs of one shape, as the two states of an LSTM, have their axes alike.
    """
    first = found.contents[0]
    if first.batch < 2:
        return False
    shape = one.tensor.shape
    axes = {id(other.tensor): other.batch_axis for other in (*found.contents, *found.labels)}

    def alone(along: int) -> Callable[[torch.Tensor], torch.Tensor]:
        def cut(tensor: torch.Tensor) -> torch.Tensor:
            alike = tensor.shape == shape and tensor is not first.tensor
            axis = along if alike else axes.get(id(tensor), 0 if first.batch_axis == 0 else None)
            square = tensor.dim() == 2 and tensor.shape[0] == tensor.shape[1] and id(tensor) not in axes
            if axis is None or tensor.dim() <= axis or (square and not alike):
                return tensor
            return tensor.narrow(axis, 0, 1).contiguous() if tensor.shape[axis] == first.batch else tensor

        return cut

    def more(tensor: torch.Tensor) -> torch.Tensor:
        return (
            torch.cat([tensor, tensor[:, -1:]], 1)
            if tensor.shape == shape and tensor is not first.tensor
            else tensor
        )

    def runs(change: Callable[[torch.Tensor], torch.Tensor]) -> bool:
        try:
            run(inputs.map(change))
        except Exception:
            return False
        return True

    named = shape[0] != first.batch and _named(one)
    if not runs(alone(1)) or (runs(more) and not named):
        return False
    return shape[0] != first.batch or not runs(alone(0))


def _first_only(moved: torch.Tensor, axis: int) -> bool:
    return not bool(moved.narrow(axis, 1, moved.shape[axis] - 1).any())


def _named(one: Content) -> bool:
    return any(_NAMES.fullmatch(word) for word in one.name.lower().split("."))


def _runs_shorter(one: Content, inputs: Inputs, run: Run) -> bool:
    try:
        run(with_content(inputs, one, one.tensor[:-1]))
    except Exception:
        return False
    return True

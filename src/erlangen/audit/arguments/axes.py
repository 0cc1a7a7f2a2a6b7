"""The axis of positions where an input has two that may be it: (batch, heads, n, dim), (batch, choices, n),
(batch, codebooks, n)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from erlangen.audit.arguments.reading import Reading, place_masks_again
from erlangen.audit.inputs import Content, Inputs, with_content
from erlangen.audit.outputs import floating

Run = Callable[..., Any]


def along_third_axis(model: nn.Module, inputs: Inputs, found: Reading, run: Run) -> Reading:
    """Read positions along the third axis where the second one holds heads, choices or codebooks.

    Inputs of one shape belong together (queries, keys and values) and are cut and changed together. An axis
    that cannot be shorter is no axis of positions. Where both can, nothing is read along an axis of heads or
    of choices, and outputs follow the length of positions, not the number of codebooks. Other inputs may
    stand beside, as the query whose documents are ranked.
    """
    if inputs.content is not None or inputs.vary is not None:
        return found
    for shape in dict.fromkeys(one.tensor.shape for one in found.contents):
        found = _of_shape(model, inputs, found, shape, run)
    return found


def _of_shape(model: nn.Module, inputs: Inputs, found: Reading, shape: torch.Size, run: Run) -> Reading:
    """The same for all inputs of one shape."""
    alike = [one for one in found.contents if one.tensor.shape == shape]
    if not alike:
        return found  # it turned out to be one number for each choice
    first = alike[0]
    ids, masked = first.pool is not None, {mask.content for mask in found.masks}
    if masked & {one.name for one in alike}:
        return found  # it has one entry for each position of the second axis
    if first.batch_axis != 0 or len(shape) != (3 if ids else 4) or first.block > 1:
        return found
    if first.patch is None and first.axis != 1:
        return found
    # One number for each choice, such as the position that is classified.
    each = [one for one in found.contents[1:] if ids and one.pool is not None and _each(one, first.tensor)]
    beside = [one for one in found.contents if not any(one is other for other in (*alike, *each))]
    if min(shape[1:3]) < 1 or shape[2] < 3:
        return found
    if first.patch is not None and len(alike) < 2:
        return found  # an image
    try:
        base = run(inputs)
        if not _third(inputs, alike, beside, base, run):
            return found
    except Exception:
        return found
    note = f"{first.name} was read along its third axis: its second one is of heads, choices or codebooks"
    contents, labels = (
        [replace(one, axis=2, patch=None) if one.tensor.shape == shape else one for one in group]
        for group in (
            [one for one in found.contents if not any(one is other for other in each)],
            found.labels,
        )
    )
    ignored = {**found.ignored, **{one.name: "one number for each choice" for one in each}}
    found = replace(found, contents=contents, labels=labels, ignored=ignored, notes=[*found.notes, note])
    place_masks_again(inputs, inputs.leaves(model), found)
    return found


def _each(one: Content, tensor: torch.Tensor) -> bool:
    return one.tensor.shape == tensor.shape[:2] and bool((one.tensor < tensor.shape[2]).all())


def _third(inputs: Inputs, alike: list[Content], beside: list[Content], base: Any, run: Run) -> bool:
    shorter = [_shorter(inputs, alike, beside, axis, run) for axis in (1, 2)]
    if alike[0].tensor.shape[1] > 1 and (shorter[0] is None) != (shorter[1] is None):
        return shorter[0] is None
    mixed = _mixes(inputs, alike, base, run)
    if mixed is not None and not mixed:
        return bool(_mixes(inputs, alike, base, run, axis=2) is not False)
    shapes = [None if one is None else _shapes(one) for one in shorter]
    return shapes[0] == _shapes(base) and shapes[1] is not None and shapes[1] != shapes[0]


def _shapes(output: Any) -> list[tuple[int, ...]]:
    return [tuple(tensor.shape) for _, tensor in floating(output)]


def _replaced(inputs: Inputs, others: dict[int, torch.Tensor]) -> Inputs:
    return inputs.map(lambda part: others.get(id(part), part))


def _shorter(inputs: Inputs, alike: list[Content], beside: list[Content], axis: int, run: Run) -> Any:
    """The output where an axis is shorter by one, and other inputs of as many positions with it; None where
    the model does not run so."""
    size = alike[0].tensor.shape[axis] - 1
    if size < 1:
        return None
    shape = alike[0].tensor.shape

    axes = {id(one.tensor): one.axis for one in beside if one.sequence and one.length == size + 1}

    def shorter(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.shape == shape:
            return tensor.narrow(axis, 0, size)
        if (other := axes.get(id(tensor))) is not None:
            return tensor.narrow(other, 0, size)
        if tensor.shape != shape[:2] or tensor.is_floating_point() or tensor.dtype == torch.bool:
            return tensor
        return tensor.clamp(max=size - 1) if axis == 2 else tensor[:, :size]  # an index for each choice

    try:
        return run(inputs.map(shorter))
    except Exception:
        return None


def _mixes(inputs: Inputs, alike: list[Content], base: Any, run: Run, axis: int = 1) -> bool | None:
    """Whether entries along an axis move with others; None where no output has such an axis."""
    size, batch = alike[0].tensor.shape[axis], alike[0].tensor.shape[0]
    before, seen = dict(floating(base)), False
    for index in {0, size - 1}:
        others = {}
        for one in alike:
            changed, where = one.tensor.clone(), (slice(None),) * axis + (index,)
            changed[where] = one._fresh(0)[where]
            others[id(one.tensor)] = changed
        for name, after in floating(run(_replaced(inputs, others))):
            moved = after != before[name]
            if axis == 1 and moved.shape[0] == batch * size:
                moved = moved.unflatten(0, (batch, size))
            if moved.dim() > axis and moved.shape[axis] == size:
                seen = True
                moved.select(axis, index).fill_(False)
                if bool(moved.any()):
                    return True
    return False if seen else None


MOST = 1024
"""No more pixels than this are read one by one: pairs of them must fit into memory."""


def as_pixels(model: nn.Module, inputs: Inputs, found: Reading, run: Callable[..., Any]) -> Reading:
    """Read (batch, channels, height, width) pixel by pixel where an output has both of these axes.

    Along one axis alone nothing would be seen of what is read along the other one. Both are axes of positions
    where outputs follow both; a model that takes patches has these for positions.
    """
    one = found.contents[0] if len(found.contents) == 1 else None
    if one is None or inputs.vary is not None or one.pool is not None or one.batch_axis != 0:
        return found
    if one.tensor.dim() != 4 or one.block > 1 or not _convolved(model, one.tensor.shape[1]):
        return found
    height, width = one.tensor.shape[-2:]
    if min(height, width) < 2:
        return found
    try:
        base = run(inputs)
        sizes = [_grids(run(_fewer_pixels(inputs, one, axis))) for axis in (2, 3)]
    except Exception:
        return found  # of one size only
    if (height, width) not in _grids(base) or (height - 1, width) not in sizes[0]:
        return found
    if (height, width - 1) not in sizes[1]:
        return found
    if height * width > MOST:
        found.opened[one.name] = (
            f"{one.name} has {height} x {width} pixels, too many to change each of them, and each has a row "
            f"in what comes out: give an image of {MOST} pixels or fewer"
        )
        return found
    note = f"{one.name} was read pixel by pixel, row after row: outputs follow both of its axes"
    pixels = replace(one, axis=-1, patch=1)
    return replace(found, contents=[pixels], notes=[*found.notes, note])


def _convolved(model: nn.Module, channels: int) -> bool:
    """Whether a convolution takes the channels, and none takes patches."""
    layers = [module for module in model.modules() if isinstance(module, nn.Conv2d)]
    patches = any(one.stride == one.kernel_size and one.stride[0] > 1 for one in layers)
    return not patches and any(one.in_channels == channels for one in layers)


def _fewer_pixels(inputs: Inputs, one: Content, axis: int) -> Inputs:
    return with_content(inputs, one, one.tensor.narrow(axis, 0, one.tensor.shape[axis] - 1).contiguous())


def _grids(output: Any) -> set[tuple[int, int]]:
    """The last two axes of every output that has four."""
    tensors: list[torch.Tensor] = [tensor for _, tensor in floating(output)]
    return {(tensor.shape[-2], tensor.shape[-1]) for tensor in tensors if tensor.dim() == 4}


APART = 1e-3
"""Rows of equal content that differ by this part of the largest entry have positions of their own."""


def length_first(model: nn.Module, inputs: Inputs, one: Content, run: Callable[..., Any]) -> bool | None:
    """Whether the first axis is the length; None where nothing tells.

    Another input of pairs of positions, or of (batch, length), tells; so do positions that the model gives to
    the second axis. Otherwise a first axis that is the longer one is taken for the length.
    """
    n, batch = one.tensor.shape[:2]
    others = [t for t in inputs.leaves(model).values() if t is not one.tensor]
    if n != batch:
        shapes = {tuple(t.shape[-2:]) for t in others if t.dim() >= 2}
        if shapes & {(n, n), (batch, n)}:
            return True
    if not others and _placed(inputs, one, run):
        return False
    return True if n > batch else None


def _placed(inputs: Inputs, one: Content, run: Callable[..., Any]) -> bool:
    """Whether entries of equal content along the second axis come out different."""
    same = one.tensor[:, :1].expand_as(one.tensor).contiguous()
    try:
        outputs = floating(run(with_content(inputs, one, same)))
    except Exception:
        return False
    for _, tensor in outputs:
        if tensor.dim() >= 2 and tensor.shape[:2] == one.tensor.shape[:2]:
            apart = (tensor - tensor[:, :1]).abs().max()
            if bool(apart > APART * tensor.abs().max()):
                return True
    return False


def ask_which_is_length(found: Reading, one: Content) -> None:
    """Open: the verdict would be about another axis than the one that is meant."""
    first, second = one.tensor.shape[:2]
    found.opened[one.name] = (
        f"{one.name} {tuple(one.tensor.shape)} is read along its first axis only: if that is the batch, its "
        f"{first} sequences read each other (is batch_first=True forgotten?); if it is the length, give more "
        f"positions than sequences, here {first} and {second}"
    )


def documented(model: nn.Module, inputs: Inputs, found: Reading, run: Callable[..., Any]) -> Reading:
    """Modules of torch.nn that take (length, batch) by their own account: asked all the same where there are
    no more positions than sequences."""
    one = found.contents[0] if found.contents else None
    if one is None or (one.axis, one.batch_axis) != (0, 1) or inputs.content is not None or one.batch < 2:
        return found
    if one.length > 1 and length_first(model, inputs, one, run) is None:
        ask_which_is_length(found, one)
    return found

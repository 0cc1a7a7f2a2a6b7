"""Images whose positions are pixels: what comes out has a row for each of them, in raster order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from erlangen.audit.inputs import Content, Inputs, with_content
from erlangen.audit.outputs import floating
from erlangen.audit.reading import Reading

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
        sizes = [_grids(run(_shorter(inputs, one, axis))) for axis in (2, 3)]
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


def _shorter(inputs: Inputs, one: Content, axis: int) -> Inputs:
    return with_content(inputs, one, one.tensor.narrow(axis, 0, one.tensor.shape[axis] - 1).contiguous())


def _grids(output: Any) -> set[tuple[int, int]]:
    """The last two axes of every output that has four."""
    tensors: list[torch.Tensor] = [tensor for _, tensor in floating(output)]
    return {(tensor.shape[-2], tensor.shape[-1]) for tensor in tensors if tensor.dim() == 4}

"""Lengths by what they do: numbers, one for each sequence, behind which no other row reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from erlangen.audit.inputs import Content, Inputs, with_content
from erlangen.audit.outputs import floating
from erlangen.audit.reading import Mask, Reading


def measured_lengths(
    inputs: Inputs, leaves: dict[str, torch.Tensor], found: Reading, run: Callable[..., Any]
) -> Reading:
    """Take integers (batch,) for the lengths of the first sequence where they hide what lies behind them.

    Whatever they are called: with a short length no row but its own moves with a position behind it, and with
    the full length one does.
    """
    first = found.sequences[0] if found.sequences else None
    if first is None or inputs.content is not None or inputs.vary is not None or not first.sequence:
        return found
    if first.length < 4 or first.batch_axis is None or found.mask(first.name) is not None:
        return found
    for name, tensor in leaves.items():
        waiting = found.ignored.get(name) == "sizes" or found.content(name) is not None
        if not waiting or tensor.is_floating_point() or tuple(tensor.shape) != (first.batch,):
            continue
        if not bool(((tensor >= 1) & (tensor <= first.length)).all()):
            continue
        try:
            hidden = not _reads(inputs, tensor, first.length // 2, first, run)
            if hidden and _reads(inputs, tensor, first.length, first, run):
                _take(found, name, tensor, first)
                return found
        except Exception:
            continue  # other numbers are refused: they are something else
    return found


def _take(found: Reading, name: str, tensor: torch.Tensor, first: Content) -> None:
    found.ignored.pop(name, None)
    found.contents = [one for one in found.contents if one.name != name]
    found.masks.append(Mask(name, tensor, first.name, False, lengths=first.length, measured=True))
    found.notes.append(
        f"{name} was read as the lengths of {first.name}: what lies behind them is read by no other row"
    )


def _reads(inputs: Inputs, sizes: torch.Tensor, size: int, content: Content, run: Callable[..., Any]) -> bool:
    """Whether anything but its own row moves with the last position but one, where all lengths are `size`."""
    place = content.length - 2
    given = inputs.map(lambda part: torch.full_like(part, size) if part is sizes else part)
    before = dict(floating(run(given)))
    after = dict(floating(run(with_content(given, content, content.changed(place)))))
    axis = content.axis or 0
    for name, tensor in before.items():
        other = after.get(name)
        if other is None or other.shape != tensor.shape:
            return True
        moved = (other != tensor) & ~(other.isnan() & tensor.isnan())
        if moved.dim() > axis and moved.shape[axis] == content.length:
            moved.select(axis, place).fill_(False)
        if bool(moved.any()):
            return True
    return False

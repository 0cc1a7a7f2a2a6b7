"""Which of two leading axes is the length, where a model reads along the first one only.

`batch_first` forgotten looks like a model that takes (length, batch): both read along the first axis and not
along the second. What else there is to tell them apart is looked at, and otherwise it is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from erlangen.audit.inputs import Content, Inputs, with_content
from erlangen.audit.outputs import floating
from erlangen.audit.reading import Reading

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

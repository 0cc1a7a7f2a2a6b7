"""Modules probed as a whole: attention whose softmax does not run over the keys of one product."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from erlangen.audit.capture.calls import ModuleCall
from erlangen.audit.capture.frames import Frame
from erlangen.audit.capture.tape import tensors

if TYPE_CHECKING:
    from erlangen.audit.capture.session import Session


def module_call(session: Session, frame: Frame) -> ModuleCall:
    """The record of one module call: the module as a function of its hidden states (batch, length, dim).

    The hidden states are the first floating tensor of that shape among the arguments.
    """
    candidates = [t for t in tensors((frame.args, frame.kwargs)) if t.is_floating_point() and t.dim() == 3]
    if not candidates:
        raise ValueError("its module takes no hidden states of shape (batch, length, dim)")
    hidden = candidates[0]

    def run(value: torch.Tensor) -> torch.Tensor:
        args, kwargs = (_swap(part, hidden, value) for part in (frame.args, frame.kwargs))
        produced = [
            t
            for t in tensors(frame.module(*args, **kwargs))
            if t.is_floating_point() and t.dim() >= 2 and t.shape[:2] == hidden.shape[:2]
        ]
        if not produced:
            raise ValueError("its module returns nothing of shape (batch, length, ...)")
        return produced[0]

    batch, length, _ = hidden.shape
    return ModuleCall(frame.name, batch, 1, length, length, run, hidden, frame.calls)


def _swap(value: Any, old: torch.Tensor, new: torch.Tensor) -> Any:
    if value is old:
        return new
    if type(value) in (tuple, list):
        return type(value)(_swap(part, old, new) for part in value)
    if isinstance(value, dict):
        return {key: _swap(part, old, new) for key, part in value.items()}
    return value

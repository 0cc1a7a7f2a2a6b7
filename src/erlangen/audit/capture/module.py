"""Modules probed as a whole: attention whose softmax does not run over the keys of one product."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from erlangen.audit.capture.calls import ModuleCall, content_key, fingerprint
from erlangen.audit.capture.frames import Frame
from erlangen.audit.capture.tape import tensors
from erlangen.audit.state import RandomState, holdings_of
from erlangen.errors import DataError

if TYPE_CHECKING:
    from erlangen.audit.capture.session import Session


def hidden_states(frame: Frame) -> torch.Tensor | None:
    """The first floating tensor of shape (batch, length, dim) among the arguments of a module call."""
    candidates = [t for t in tensors((frame.args, frame.kwargs)) if t.is_floating_point() and t.dim() == 3]
    return candidates[0] if candidates else None


def module_call(session: Session, frame: Frame) -> ModuleCall:
    """The record of one module call: the module as a function of its hidden states (batch, length, dim)."""
    hidden = hidden_states(frame)
    if hidden is None or hidden.shape[0] != session.batch:
        raise DataError("its module takes no hidden states of shape (batch, length, dim)")
    given = tensors((frame.args, frame.kwargs))
    if any(t is not hidden and t.is_floating_point() and t.shape == hidden.shape for t in given):
        # Queries, keys and values apart: changing one of them alone would show another relation.
        raise DataError("its module takes queries, keys and values apart: it is no function of one sequence")

    held = holdings_of(frame.module)

    def run(value: torch.Tensor) -> torch.Tensor:
        copies = value.shape[0] // hidden.shape[0]
        args, kwargs = (_swap(part, hidden, value, copies) for part in (frame.args, frame.kwargs))
        random = RandomState.now()
        try:
            out = frame.module(*args, **kwargs)
        finally:
            # The model runs on after the probe: a cache that the probe filled, or a number that it drew,
            # would change what follows.
            held.put_back()
            random.set()
        produced = [
            t
            for t in tensors(out)
            if t.is_floating_point() and t.dim() >= 2 and t.shape[:2] == value.shape[:2]
        ]
        if not produced:
            raise DataError("its module returns nothing of shape (batch, length, ...)")
        return produced[0]

    batch, length, _ = hidden.shape
    others = [content_key(t) for t in tensors((frame.args, frame.kwargs)) if t is not hidden]
    key = ("module", frame.name, frame.module.training, hidden.shape, hidden.dtype, tuple(others))
    source = fingerprint(hidden)
    return ModuleCall(
        frame.name,
        batch,
        1,
        length,
        length,
        run,
        hidden,
        frame.calls,
        key,
        fingerprints=(source, source),
        source=frame.source,
    )


def _swap(value: Any, old: torch.Tensor, new: torch.Tensor, copies: int) -> Any:
    """The arguments with new hidden states; for copies of the batch, all else of a batch is repeated."""
    if value is old:
        return new
    if isinstance(value, torch.Tensor) and copies > 1 and value.dim() and value.shape[0] == old.shape[0]:
        return value.repeat(copies, *[1] * (value.dim() - 1))
    if type(value) in (tuple, list):
        return type(value)(_swap(part, old, new, copies) for part in value)
    if isinstance(value, dict):
        return {key: _swap(part, old, new, copies) for key, part in value.items()}
    return value

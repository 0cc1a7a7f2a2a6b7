"""Leaving no trace: what a model and its process look like, put back and compared after an audit."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

_HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_pre_hooks_with_kwargs",
    "_backward_hooks",
    "_propagate_forward_pre_hooks",
    "_edge_update_forward_pre_hooks",
)


@dataclass(frozen=True, eq=False)
class RandomState:
    """The state of every random generator a forward pass may draw from."""

    torch_cpu: torch.Tensor
    torch_cuda: list[torch.Tensor]
    numpy: Any
    python: Any

    @classmethod
    def now(cls) -> RandomState:
        """The present state."""
        cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
        return cls(torch.get_rng_state(), cuda, np.random.get_state(), random.getstate())  # noqa: NPY002

    def set(self) -> None:
        """Put this state back."""
        torch.set_rng_state(self.torch_cpu)
        if self.torch_cuda:
            torch.cuda.set_rng_state_all(self.torch_cuda)
        np.random.set_state(self.numpy)  # noqa: NPY002
        random.setstate(self.python)


@dataclass(eq=False)
class Snapshot:
    """Everything about a model that an audit must leave as it was."""

    model: nn.Module
    random: RandomState = field(default_factory=RandomState.now)

    def __post_init__(self) -> None:
        modules = list(self.model.modules())
        self.modes = [(module, module.training) for module in modules]
        self.buffers = [
            (module, name, buffer, buffer.detach().clone())
            for module in modules
            for name, buffer in module._buffers.items()
            if isinstance(buffer, torch.Tensor)
        ]
        self.gradients = [
            (p, p.grad, None if p.grad is None else p.grad.clone()) for p in self.model.parameters()
        ]
        self.versions = [(p, p._version) for p in self.model.parameters()]
        self.hooks = [(module, name, len(getattr(module, name, ()))) for module in modules for name in _HOOKS]

    def restore_buffers(self) -> None:
        """Put back the buffers alone: running statistics move in training mode."""
        with torch.no_grad():
            for module, name, buffer, value in self.buffers:
                module._buffers[name] = buffer
                if not _same(buffer, value):
                    buffer.copy_(value)

    def restore(self) -> None:
        """Put back modes, buffers, gradients and random states."""
        self.restore_buffers()
        with torch.no_grad():
            for parameter, gradient, value in self.gradients:
                parameter.grad = gradient
                if gradient is not None and value is not None and not _same(gradient, value):
                    gradient.copy_(value)
        for module, training in self.modes:
            module.training = training
        self.random.set()

    def differences(self) -> list[str]:
        """What is not as it was: empty when the audit left no trace."""
        found = []
        if any(module.training != training for module, training in self.modes):
            found.append("the training mode of a module changed")
        if any(
            module._buffers.get(name) is not buffer or not _same(buffer, value)
            for module, name, buffer, value in self.buffers
        ):
            found.append("a buffer changed")
        if any(p.grad is not g or (g is not None and not _same(g, v)) for p, g, v in self.gradients):
            found.append("a gradient changed")
        if any(p._version != version for p, version in self.versions):
            found.append("a parameter was written to")
        if any(len(getattr(module, name, ())) != count for module, name, count in self.hooks):
            found.append("a hook survived")
        return found


@contextmanager
def untouched(model: nn.Module) -> Iterator[Snapshot]:
    """Run a block without gradients and put the model back afterwards, whatever happens inside.

    >>> model = nn.Dropout(0.5)
    >>> with untouched(model) as snapshot:
    ...     _ = model.eval()
    >>> model.training, snapshot.differences()
    (True, [])
    """
    snapshot = Snapshot(model)
    try:
        with torch.no_grad():
            yield snapshot
    finally:
        snapshot.restore()


def _same(a: torch.Tensor, b: torch.Tensor | None) -> bool:
    return b is not None and same_bits(a, b)


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equality of every bit that counts: NaN equals NaN, and shapes and types must agree.

    >>> same_bits(torch.tensor([float("nan")]), torch.tensor([float("nan")]))
    True
    """
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.is_floating_point() or a.is_complex():
        return bool(((a == b) | (a.isnan() & b.isnan())).all())
    return torch.equal(a, b)

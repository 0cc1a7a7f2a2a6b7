"""Leaving no trace: what a model and its process look like, put back and compared after an audit."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

from erlangen.audit.capture.watching import unwatched
from erlangen.audit.holding.holdings import Holdings
from erlangen.audit.holding.records import same_bits as same_bits

SAID = 12
"""So many differences are told one by one."""


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

    def same(self, other: RandomState) -> bool:
        """Whether nothing was drawn between two states."""
        mine, theirs = ([one.torch_cpu, *one.torch_cuda] for one in (self, other))
        return (
            all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))
            and self.numpy[2] == other.numpy[2]
            and bool((self.numpy[1] == other.numpy[1]).all())
            and self.python == other.python
        )

    def set(self) -> None:
        """Put this state back."""
        torch.set_rng_state(self.torch_cpu)
        if self.torch_cuda:
            torch.cuda.set_rng_state_all(self.torch_cuda)
        np.random.set_state(self.numpy)  # noqa: NPY002
        random.setstate(self.python)


_audits = threading.RLock()
_standing: list[Holdings] = []
"""The holdings of the blocks that are running, outermost first; only who holds the lock touches them."""


@contextmanager
def exclusive() -> Iterator[None]:
    """A block that no other thread's audit runs beside; a thread may enter it again inside itself.

    The random state belongs to the process, and so does a model: two audits at once would disturb each
    other's dropout and restore each other's changes.
    """
    with _audits:
        yield


def holdings_of(module: nn.Module) -> Holdings:
    """What a module holds now; what an audit around has copied of it is not copied again."""
    return Holdings(module, list(_standing))


@dataclass(eq=False)
class Snapshot:
    """Everything about a model that an audit must leave as it was."""

    model: nn.Module
    random: RandomState = field(default_factory=RandomState.now)

    def __post_init__(self) -> None:
        self.modes = [(name, module, module.training) for name, module in self.model.named_modules()]
        self.holdings = holdings_of(self.model)

    def restore_state(self) -> None:
        """Put back what a forward pass may have changed: parameters, buffers, attributes, caches, hooks.

        To be called between runs, not inside a session, whose hooks would go, too. Training flags and
        random states stay as they are: the audit sets both on purpose.
        """
        self.holdings.put_back()

    def restore(self) -> None:
        """Put back everything: the state, the training flags and the random states."""
        self.restore_state()
        for _, module, training in self.modes:
            if module.training != training:
                module.training = training
        self.random.set()

    def differences(self) -> list[str]:
        """What is not as it was; after `restore`: what could not be put back. Empty: no trace was left."""
        found = [
            f"{name + '.' if name else ''}training is not as it was"
            for name, module, training in self.modes
            if module.training != training
        ]
        large = {one.path for one in self.holdings.tensors.values() if one.hash is not None}
        for path in self.holdings.changed():
            why = ", and is too large to have been copied" if path in large else ""
            found.append(f"{path or 'the model'} is not as it was{why}")
        found += [
            f"{path} is an iterator: nobody can say whether it advanced" for path in self.holdings.iterators
        ]
        return found if len(found) <= SAID else [*found[:SAID], f"{len(found) - SAID} more differences"]


@contextmanager
def untouched(model: nn.Module) -> Iterator[Snapshot]:
    """Run a block without gradients and put the model back afterwards, whatever happens inside.

    No audit of another thread runs meanwhile, and no session around the block sees what runs in it.

    >>> model = nn.Dropout(0.5)
    >>> with untouched(model) as snapshot:
    ...     _ = model.eval()
    >>> model.training, snapshot.differences()
    (True, [])
    """
    with exclusive(), unwatched():
        snapshot = Snapshot(model)
        _standing.append(snapshot.holdings)
        try:
            with torch.no_grad():
                yield snapshot
        finally:
            _standing.remove(snapshot.holdings)
            snapshot.restore()

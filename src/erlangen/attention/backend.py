"""What a backend is, and the registry that `plan`, the docs and the tests read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import IntEnum
from typing import Any, ClassVar, NamedTuple, TypeVar

from torch import Tensor

from erlangen.attention.biases import LogitBias
from erlangen.attention.call import Call
from erlangen.caches import CACHES
from erlangen.errors import ParameterError


class Rank(IntEnum):
    """Ways of computing attention, the preferred ones first."""

    SPECIAL = 0
    """For calls of this very kind alone."""
    NATIVE = 1
    """C++ over the related pairs."""
    UNMASKED = 2
    """A fused kernel, exact without a mask."""
    BLOCKS = 3
    """A fused kernel that skips empty blocks."""
    MASKED = 4
    """A fused kernel with a dense mask."""
    DENSE = 5
    """All pairs, as matrices."""
    GATHERED = 6
    """The related pairs, one by one in PyTorch."""


class Cost(NamedTuple):
    """What decides between backends: the lowest rank, and in it the least work, is chosen.

    `work` is compared within a rank alone, in units that its backends share.
    """

    rank: Rank
    work: float
    reason: str


class Backend(ABC):
    """Code that computes attention. One file of `backends/` defines and registers one.

    A backend answers for a `Call`, which holds everything but the numbers. It must agree with `reference` on
    outputs and gradients for every call that it does not refuse.
    """

    name: ClassVar[str]
    computes: ClassVar[str]
    """What it does, for the table of the docs."""
    scales: ClassVar[str]
    """What its work is proportional to, for the table of the docs."""
    weights: ClassVar[bool] = False
    """Whether it returns the weights."""
    lse: ClassVar[bool] = True
    """Whether it returns the log-sum-exp."""

    @abstractmethod
    def refuses(self, call: Call) -> str | None:
        """Why it cannot compute this call, as a predicate ("takes ...", "needs ..."), or None."""

    @abstractmethod
    def cost(self, call: Call) -> Cost | None:
        """What a call that it does not refuse costs here; None if it is chosen by name alone."""

    @abstractmethod
    def prepare(self, call: Call) -> Any:
        """What `run` needs of the relation; kept with the bound relation, constant while compiling."""

    @abstractmethod
    def run(
        self, prepared: Any, call: Call, q: Tensor, k: Tensor, v: Tensor, bias: LogitBias | None
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Output, weights and log-sum-exp of tensors (batch, heads, length, dim); None for what it has not.

        `call.bound` is None here: everything that depends on the relation is prepared.
        """

    def pairs(self, call: Call) -> int:
        """How many pairs it computes for the items and heads that the bound relation tells apart."""
        assert call.bound is not None
        return call.bound.num_edges

    def refusal(self, call: Call) -> str | None:
        """`refuses`, and whether it returns the weights and the log-sum-exp where the call wants them."""
        if call.weights and not self.weights:
            return "returns no weights; use 'reference'"
        if call.lse and not self.lse:
            return "returns no log-sum-exp; use 'reference', 'tiles' or 'edges'"
        return self.refuses(call)


BACKENDS: dict[str, Backend] = {}
"""Every backend by its name; filled by `register`."""

_Backend = TypeVar("_Backend", bound=Backend)


def register(cls: type[_Backend]) -> type[_Backend]:
    """Make a backend known to `plan` and `attend`; an error if it lacks a method, or its name is taken."""
    lacking = [name for name in ("name", "computes", "scales") if not isinstance(getattr(cls, name, 0), str)]
    if lacking or not cls.name:
        raise ParameterError(f"the backend {cls.__name__} lacks {', '.join(lacking) or 'a name'}")
    if cls.name in BACKENDS:
        raise ParameterError(f"there is a backend {cls.name!r} already: {type(BACKENDS[cls.name]).__name__}")
    BACKENDS[cls.name] = cls()
    for cache in CACHES:
        cache.cache_clear()  # what was decided before may be decided otherwise now
    return cls

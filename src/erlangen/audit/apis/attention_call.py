"""What every attention API answers about its calls, and the registry that sessions, docs and tests read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

import torch

from erlangen.audit.capture.content_keys import fingerprint
from erlangen.audit.witnesses.measured import Probe, one_hot_runs
from erlangen.errors import ParameterError

if TYPE_CHECKING:
    from erlangen.audit.capture.session import Session
    from erlangen.audit.support import Support

Diagonal = Callable[[Any, Sequence[Any], Mapping[str, Any]], Any]
"""Gets a torch function and its arguments; gives its output with each position reading itself alone, or
NotImplemented where the function is no call of this API over so many positions."""


@dataclass(eq=False)
class Call(ABC):
    """One attention call: where it was made, its sizes, what reached it, and all that is asked of it.

    One file of `apis/` defines and registers one subclass. Its methods run while the tensors that reached the
    call still exist. Where an API has nothing to say, it says None and why: there are no defaults.
    """

    api: ClassVar[str]
    watches: ClassVar[str]
    """What is watched, for the table of the docs."""
    declares: ClassVar[str]
    """What its calls declare, for the table of the docs."""
    whole: ClassVar[bool] = False
    """Whether a module is measured as a whole: its heads are not told apart, and nobody sees its weights."""

    module: str
    """The name of the module whose code made the call; empty for the model itself."""
    batch: int
    heads: int
    queries: int
    keys: int
    fingerprints: tuple[int, int] | None = field(default=None, kw_only=True)
    """Hashes of the contents of queries and keys: they tell which inputs each depends on."""
    source: str | None = field(default=None, kw_only=True)
    """`file:line` of the code that made the call, outside torch and erlangen; None where there is none."""
    replaces: int = field(default=0, kw_only=True)
    """How many calls just before this one were parts of it, recognised alone."""

    @classmethod
    @abstractmethod
    def watch(cls, session: Session) -> None:
        """Tell a session that begins what to watch, and how a call is recorded."""

    @property
    @abstractmethod
    def cache_key(self) -> Any:
        """Calls with equal keys realise equal relations, so one of them is measured; None: never equal."""

    @abstractmethod
    def declared(self) -> Support | None:
        """The declared witness: what mask, flags and bias say; None where nothing is declared."""

    @abstractmethod
    def measured(self) -> Probe:
        """The measured witness: the call run again with zero queries and one-hot values (theorem T1)."""

    @abstractmethod
    def log_weights(self) -> torch.Tensor | None:
        """What is added to the scores, of a shape that broadcasts to (batch, heads, queries, keys); None for
        nothing. What it says of pairs that are not read counts for nothing."""

    @abstractmethod
    def alpha(self) -> torch.Tensor | None:
        """The attention weights (batch, heads, queries, keys) with the log-weights in force and equal scores;
        None where the call is not run with them."""

    @abstractmethod
    def vectors(self) -> tuple[torch.Tensor, torch.Tensor] | None:
        """The queries and the keys, each along the first axis: they tell which rows moved between two runs.
        None where the call has no vectors."""

    @classmethod
    @abstractmethod
    def diagonal(cls, n: int) -> Diagonal | None:
        """What runs torch functions so that each of `n` positions reads itself alone; None where calls of
        this API cannot be cut so."""

    def folded(self, tensor: torch.Tensor) -> torch.Tensor:
        """Leading dimensions folded into (batch, heads)."""
        return tensor.reshape(self.batch, self.heads, self.queries, self.keys)


@dataclass(eq=False)
class TensorCall(Call):
    """A call of a function of query, key and value (..., length, dim)."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor

    @classmethod
    def of(
        cls, session: Session, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *more: Any
    ) -> Self:
        """The record of a call made now, with what else the class holds."""
        sizes = *fold(query.shape[:-2], session.batch), query.shape[-2], key.shape[-2]
        prints = fingerprint(query), fingerprint(key)
        return cls(session.frames.name(), *sizes, query, key, value, *more, fingerprints=prints)

    def vectors(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self.query.movedim(-2, 0), self.key.movedim(-2, 0)

    @property
    def layout(self) -> tuple[Any, ...]:
        """Shapes, strides, types and devices of the tensors."""
        return tuple((t.shape, t.stride(), t.dtype, t.device) for t in (self.query, self.key, self.value))

    def at_equal_scores(self, function: Callable[..., torch.Tensor]) -> torch.Tensor:
        """The attention weights (batch, heads, queries, keys) that a function of query, key and value gives
        at zero queries and keys."""
        query, key = torch.zeros_like(self.query), torch.zeros_like(self.key)
        return self.folded(one_hot_runs(lambda value: function(query, key, value), self.value))


def fold(leading: torch.Size | tuple[int, ...], batch: int) -> tuple[int, int]:
    """(batch items, heads) of the leading dimensions of an attention matrix.

    Batch items come first; everything behind them (heads, groups of heads, windows) counts as heads.

    >>> fold((2, 8), 2), fold((16,), 2), fold((), 1), fold((3, 8), 2)
    ((2, 8), (2, 8), (1, 1), (3, 8))
    """
    total = prod(leading)
    if len(leading) >= 2 and leading[0] % batch:
        return leading[0], total // max(leading[0], 1)
    return (batch, total // batch) if total % batch == 0 else (1, total)


APIS: dict[str, type[Call]] = {}
"""Every attention API by its name; filled by `register`."""

_Api = TypeVar("_Api", bound=type[Call])


def register(cls: _Api) -> _Api:
    """Make an attention API known to every session; an error if it lacks something, or its name is taken."""
    facts = [name for name in ("api", "watches", "declares") if not isinstance(getattr(cls, name, 0), str)]
    if lacking := [*facts, *sorted(cls.__abstractmethods__)]:
        raise ParameterError(
            f"the attention API {cls.__name__} lacks {', '.join(lacking)}: an audit asks every API all of "
            "this; what it does not have is answered by None, with the reason beside it"
        )
    if cls.api in APIS:
        raise ParameterError(f"there is an attention API {cls.api!r} already: {APIS[cls.api].__name__}")
    APIS[cls.api] = cls
    return cls

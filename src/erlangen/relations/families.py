"""Relations that differ from head to head, or from one batch item to the next."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any, Self, final

from erlangen.errors import ParameterError
from erlangen.relations.relation import Relation
from erlangen.relations.truth import Undecided


class Family(Undecided):
    """A tuple of relations with the operators of relations, member by member. Frozen and hashable."""

    __slots__ = ("members",)
    members: tuple[Any, ...]

    def __init__(self, members: Iterable[Any]) -> None:
        listed = tuple(members) if isinstance(members, Iterable) else ()
        name = type(self).__name__
        if not listed or not all(self._accepts(member) for member in listed):
            raise ParameterError(f"{name}(...) takes a non-empty list of {self._expects}, got {members!r}")
        object.__setattr__(self, "members", listed)

    _expects = "relations"

    def _accepts(self, member: Any) -> bool:
        return isinstance(member, Relation)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen")

    def __repr__(self) -> str:
        return f"{type(self).__name__}([{', '.join(map(repr, self.members))}])"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and isinstance(other, Family) and self.members == other.members

    def __hash__(self) -> int:
        return hash((type(self).__name__, self.members))

    def __len__(self) -> int:
        return len(self.members)

    def __getitem__(self, index: int) -> Any:
        return self.members[index]

    def __reduce__(self) -> Any:
        return type(self), (self.members,)

    @property
    def data_dependent(self) -> bool:
        """Whether any member's neighborhoods depend on the data."""
        return any(member.data_dependent for member in self.members)

    def _map(self, operation: Callable[[Any], Any]) -> Self:
        return type(self)([operation(member) for member in self.members])

    def _zip(self, other: Any, operation: Callable[[Any, Any], Any]) -> Self:
        """Member by member with a family of the same kind; with anything a member may be, to each member."""
        if type(other) is not type(self):
            if not self._accepts(other):
                return NotImplemented
            return self._map(lambda member: operation(member, other))
        if len(other) != len(self):
            raise ParameterError(f"{self} has {len(self)} members and {other} has {len(other)}")
        return type(self)([operation(a, b) for a, b in zip(self.members, other.members, strict=True)])

    def __and__(self, other: Any) -> Self:
        return self._zip(other, operator.and_)

    def __or__(self, other: Any) -> Self:
        return self._zip(other, operator.or_)

    def __sub__(self, other: Any) -> Self:
        return self._zip(other, operator.sub)

    # `relation & family`, and `per_head & batch`, which is a batch: each item has its own heads.

    def __rand__(self, other: Any) -> Self:
        return self._zip(other, lambda mine, theirs: theirs & mine)

    def __ror__(self, other: Any) -> Self:
        return self._zip(other, lambda mine, theirs: theirs | mine)

    def __rsub__(self, other: Any) -> Self:
        return self._zip(other, lambda mine, theirs: theirs - mine)

    def __invert__(self) -> Self:
        return self._map(lambda member: ~member)

    @property
    def T(self) -> Self:
        """The family of transposes."""
        return self._map(lambda member: member.T)

    def on(self, queries: Any, keys: Any = None) -> tuple[Any, ...]:
        """Each member bound to the same sizes.

        >>> from erlangen.relations import Causal, Full
        >>> [bound.num_edges for bound in PerHead([Causal(), Full()]).on(3)]
        [6, 9]
        """
        return tuple(member.on(queries, keys) for member in self.members)


@final
class PerHead(Family):
    """One relation per attention head.

    >>> from erlangen.relations import Causal, Dilated, Window
    >>> PerHead([Window(lookback=3), Dilated(4)]) & Causal()
    PerHead([Window(lookback=3), Dilated(step=4) & Causal()])
    """

    __slots__ = ()


@final
class Batch(Family):
    """One relation, or one `PerHead`, per batch item. Operators with a `PerHead` give every item its heads.

    >>> from erlangen.relations import Padding
    >>> Batch([Padding(length) for length in (3, 5)])
    Batch([Padding(3), Padding(5)])
    >>> from erlangen.relations import Causal, Full
    >>> PerHead([Causal(), Full()]) & Batch([Padding(3), Padding(5)])
    Batch([PerHead([Causal() & Padding(3), Padding(3)]), PerHead([Causal() & Padding(5), Padding(5)])])
    """

    __slots__ = ()
    _expects = "relations or PerHead families"

    def _accepts(self, member: Any) -> bool:
        return isinstance(member, (Relation, PerHead))


Bindable = Relation | PerHead | Batch
"""Anything attention can be computed over."""

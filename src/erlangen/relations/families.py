"""Relations that differ from head to head, or from one batch item to the next; what a stack of them reads."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Any, ClassVar, Self, final

import numpy as np

from erlangen.errors import ParameterError, ShapeError, SizeError
from erlangen.relations.catalogue import written
from erlangen.relations.dense_mask import FromMask
from erlangen.relations.key_sets import keys_read
from erlangen.relations.lookup import booleans, to_numpy
from erlangen.relations.orders import Identity
from erlangen.relations.protocol import AnyRelation, Draw
from erlangen.relations.relation import Relation
from erlangen.relations.shown import Shown


@dataclass(frozen=True, init=False, repr=False)
class Family(Shown, AnyRelation):
    """A tuple of relations with the operators of relations, member by member. Frozen and hashable."""

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

    def __repr__(self) -> str:
        return f"{type(self).__name__}([{', '.join(map(repr, self.members))}])"

    def __len__(self) -> int:
        return len(self.members)

    def __getitem__(self, index: int) -> Any:
        return self.members[index]

    @property
    def data_dependent(self) -> bool:
        """Whether any member's neighborhoods depend on the data."""
        return any(member.data_dependent for member in self.members)

    @property
    def own_sizes(self) -> tuple[int, int] | None:
        """The sizes of those members that have any.

        >>> from erlangen.relations import Causal, Documents
        >>> PerHead([Causal(), Documents([2, 3])]).own_sizes
        (5, 5)
        """
        found = {own for member in self.members if (own := member.own_sizes) is not None}
        if len(found) > 1:
            raise SizeError(f"{self} has members of different sizes: {', '.join(map(str, sorted(found)))}")
        return found.pop() if found else None

    @property
    def axes(self) -> tuple[str, ...]:
        """("head",), ("item",) or ("item", "head")."""
        return (self._axis, *(("head",) if any(member.axes for member in self.members) else ()))

    _axis: ClassVar[str]

    def grid(self, batch: int | None = None, heads: int | None = None) -> tuple[tuple[Any, ...], ...]:
        items = self.items
        if batch is not None and len(items) not in (1, batch):
            raise ShapeError(f"{self} has {len(items)} batch items, but the tensors have {batch}")
        apart = [item for item in items if item.axes]
        if heads is not None:
            for item in apart:
                if len(item) != heads:
                    raise ShapeError(f"{item} has {len(item)} heads, but the tensors have {heads}")
        counts = sorted({len(item) for item in apart}) or [1]
        if len(counts) > 1:
            raise SizeError(f"{self} has items of {counts[0]} and of {counts[1]} heads")
        width = counts[0]
        return tuple(item.members if item.axes else (item,) * width for item in items)

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

    def __matmul__(self, other: Any) -> Self:
        return self._zip(other, operator.matmul)

    def __pow__(self, exponent: int) -> Self:
        return self._map(lambda member: member**exponent)

    # `relation & family`, and `per_head & batch`, which is a batch: each item has its own heads.

    def __rand__(self, other: Any) -> Self:
        return self._zip_reversed(other, operator.and_)

    def __ror__(self, other: Any) -> Self:
        return self._zip_reversed(other, operator.or_)

    def __rsub__(self, other: Any) -> Self:
        return self._zip_reversed(other, operator.sub)

    def __rmatmul__(self, other: Any) -> Self:
        return self._zip_reversed(other, operator.matmul)

    def _zip_reversed(self, other: Any, operation: Callable[[Any, Any], Any]) -> Self:
        found = self._zip(other, lambda mine, theirs: operation(theirs, mine))
        return super().__rand__(other) if found is NotImplemented else found  # which says why not

    def __invert__(self) -> Self:
        return self._map(lambda member: ~member)

    @property
    def T(self) -> Self:
        """The family of transposes."""
        return self._map(lambda member: member.T)

    def closure(self) -> Self:
        """The family of transitive closures.

        >>> from erlangen.relations import Causal, Offset, Window
        >>> PerHead([Window(lookback=2), Offset(-1)]).closure()
        PerHead([Causal(), Offset(by=-1).closure()])
        """
        return self._map(lambda member: member.closure())

    def reach(self, layers: int) -> Self:
        """The receptive field of so many layers with residuals, of each batch item.

        Heads are put together after every layer, so that a `PerHead` has one field and not one per head.

        >>> from erlangen.relations import Causal, Window
        >>> Batch([Window(lookback=1), Causal()]).reach(3)
        Batch([Window(lookback=3), Causal()])
        >>> PerHead([Window(lookback=1), Causal()]).reach(3)
        Traceback (most recent call last):
        ...
        erlangen.errors.ParameterError: the heads of PerHead([Window(lookback=1), Causal()]) mix after every
        layer: erlangen.reach([family] * layers) gives what they reach together
        """
        if self._axis == "head":
            raise ParameterError(
                f"the heads of {self} mix after every layer: erlangen.reach([family] * layers) gives what "
                "they reach together"
            )
        return self._map(lambda member: member.reach(layers))

    def on(self, queries: Any, keys: Any = None) -> tuple[Any, ...]:
        """Each member bound to the same sizes.

        >>> from erlangen.relations import Causal, Full
        >>> [bound.num_edges for bound in PerHead([Causal(), Full()]).on(3)]
        [6, 9]
        """
        return tuple(member.on(queries, keys) for member in self.members)


@written
@final
@dataclass(frozen=True, init=False, repr=False)
class PerHead(Family):
    """One relation per attention head.

    >>> from erlangen.relations import Causal, Dilated, Window
    >>> PerHead([Window(lookback=3), Dilated(4)]) & Causal()
    PerHead([Window(lookback=3), Dilated(step=4) & Causal()])
    """

    _axis = "head"

    @classmethod
    def example(cls, n: int, draw: Draw) -> PerHead:
        return cls(draw.relation(n) for _ in range(draw.integer(1, 3)))

    @classmethod
    def from_mask(cls, mask: Any) -> PerHead:
        """One relation per head from masks (heads, queries, keys), True or 1 = may read.

        A single query stands for all of them, as in broadcasting.

        >>> PerHead.from_mask([[[1, 0], [1, 1]], [[1, 1], [1, 1]]])
        PerHead([FromMask([[1, 0], [1, 1]]), FromMask([[1, 1], [1, 1]])])
        """
        array = _masks(mask, "PerHead.from_mask", "(heads, queries, keys)", (3,))
        return cls(_read(head) for head in array)


@written
@final
@dataclass(frozen=True, init=False, repr=False)
class Batch(Family):
    """One relation, or one `PerHead`, per batch item. Operators with a `PerHead` give every item its heads.

    >>> from erlangen.relations import Padding
    >>> Batch([Padding(length) for length in (3, 5)])
    Batch([Padding(3), Padding(5)])
    >>> from erlangen.relations import Causal, Full
    >>> PerHead([Causal(), Full()]) & Batch([Padding(3), Padding(5)])
    Batch([PerHead([Causal() & Padding(3), Padding(3)]), PerHead([Causal() & Padding(5), Padding(5)])])
    """

    _axis = "item"
    _expects = "relations or PerHead families"

    @classmethod
    def example(cls, n: int, draw: Draw) -> Batch:
        heads = draw.choice([1, 2])
        members = ([draw.relation(n) for _ in range(heads)] for _ in range(draw.integer(1, 3)))
        return cls(member[0] if heads == 1 else PerHead(member) for member in members)

    @property
    def items(self) -> tuple[Any, ...]:
        return self.members

    @classmethod
    def from_mask(cls, mask: Any) -> Batch:
        """One relation per item from a batch of masks, True or 1 = may be read, by their shape:

        - (batch, keys): the `attention_mask` of a tokenizer, 1 = real. `Padding` where the padding is on one
          side, else `Global` of the real keys. torch.nn's `key_padding_mask` is the opposite: pass `~mask`.
        - (batch, queries, keys): a `FromMask` each.
        - (batch, heads, queries, keys): a `PerHead` each, or a `FromMask` where there is one head only.

        A single query stands for all of them, as in broadcasting. Numbers to be added to the scores are no
        mask and are refused.

        >>> Batch.from_mask([[1, 1, 0, 0], [0, 1, 1, 1], [1, 1, 1, 1], [1, 0, 1, 1]])
        Batch([Padding(2), Padding(3, side="left"), Full(), Global(keys=(0, 2, 3))])
        >>> import numpy as np
        >>> Batch.from_mask(np.tril(np.ones((1, 2, 2, 2), bool)))
        Batch([PerHead([FromMask([[1, 0], [1, 1]]), FromMask([[1, 0], [1, 1]])])])
        >>> Batch.from_mask([[0.0, -np.inf]])
        Traceback (most recent call last):
        ...
        erlangen.errors.ParameterError: Batch.from_mask(mask) takes booleans or 0/1 integers, 1 = may be read,
        got float64; for an additive mask pass mask == 0, for one of 1.0 and 0.0 pass mask != 0
        """
        shapes = "(batch, keys), (batch, queries, keys) or (batch, heads, queries, keys)"
        array = _masks(mask, "Batch.from_mask", shapes, (2, 3, 4))
        if array.ndim == 2:
            array = array[:, None]
        if array.ndim == 3 or array.shape[1] == 1:
            items = (item if array.ndim == 3 else item[0] for item in array)
            return cls(_read(item) for item in items)
        return cls(PerHead(_read(head) for head in item) for item in array)

    def _accepts(self, member: Any) -> bool:
        return isinstance(member, (Relation, PerHead))


def _masks(mask: Any, what: str, shapes: str, dimensions: tuple[int, ...]) -> np.ndarray:
    """Masks as booleans, or an error that says what is read."""
    array = to_numpy(mask)
    if array.ndim not in dimensions or 0 in array.shape[:-2] or not array.shape[0]:
        raise ParameterError(f"{what}(mask) takes {shapes}, got shape {array.shape}")
    return booleans(array, f"{what}(mask)")


def _read(mask: np.ndarray) -> Relation:
    """The relation of a mask (queries, keys); one row is what every query reads."""
    return keys_read(mask[0]) if len(mask) == 1 else FromMask(mask)


Bindable = Relation | PerHead | Batch
"""Anything attention can be computed over."""


def reach(layers: Iterable[Relation | PerHead]) -> Relation:
    """The receptive field of layers with residuals, the first layer given first.

        reach = (R_L | I) @ ... @ (R_1 | I),   R_l the union of the heads of layer l

    (i, j) is in it exactly when position i of the output can depend on position j of the input: with generic
    weights every path carries something. It is a relation, symbolic where a law simplifies it; at a size it
    is exact, `reach(layers).on(n)`. For one relation in every layer it is `relation.reach(len(layers))`.

    >>> from erlangen.relations import Causal, Dilated, Window
    >>> reach([Window(lookback=3), Window(lookback=5)])
    Window(lookback=8)
    >>> heads = PerHead([Window(lookback=3), Dilated(4)]) & Causal()
    >>> reach([heads]).on(16) == Causal().on(16), reach([heads, heads]).on(16) == Causal().on(16)
    (False, True)
    """
    listed = list(layers) if isinstance(layers, Iterable) and not isinstance(layers, (str, bytes)) else None
    if listed is None or not all(isinstance(layer, (Relation, PerHead)) for layer in listed):
        raise ParameterError(f"reach(layers) takes a list of relations or PerHead families, got {layers!r}")
    reached: Relation = Identity()
    for layer in listed:
        heads = layer.members if isinstance(layer, PerHead) else (layer,)
        reached = (reduce(lambda a, b: a | b, heads) | Identity()) @ reached
    return reached

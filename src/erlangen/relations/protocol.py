"""What every kind of relation answers, so that nobody needs to ask of which kind it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, ClassVar, NoReturn, Protocol, TypeVar

from erlangen.errors import ParameterError, ShapeError
from erlangen.relations import sizes

Option = TypeVar("Option")


class Draw(Protocol):
    """A source of choices: hypothesis in `erlangen.testing.strategies`, or anything else that can choose."""

    def integer(self, low: int, high: int) -> int:
        """An integer, low <= it <= high."""
        ...

    def integers(self, low: int, high: int, least: int, most: int) -> list[int]:
        """From `least` to `most` such integers."""
        ...

    def choice(self, options: Sequence[Option]) -> Option:
        """One of the options."""
        ...

    def relation(self, n: int) -> Any:
        """A relation of pairs that fits n positions."""
        ...


class Undecided:
    """Relations are sets, not conditions: Python would make `a and b` silently b, where `a & b` was meant.

    >>> from erlangen.relations import Causal, Window
    >>> Causal() and Window(3)
    Traceback (most recent call last):
    ...
    TypeError: Causal() is neither true nor false: combine relations with & | ~, not with and, or, not; ask
    `is None` for a missing one, and a bound one for its num_edges
    """

    __slots__ = ()
    __array_ufunc__ = None  # NumPy would take a family for a sequence and combine it element by element

    def __bool__(self) -> NoReturn:
        raise TypeError(
            f"{self!r} is neither true nor false: combine relations with & | ~, not with and, or, not; "
            "ask `is None` for a missing one, and a bound one for its num_edges"
        )


class AnyRelation(Undecided):
    """A relation, a family of them, a weighted or ternary relation, or neighborhoods: what all of these say.

    - `on(...)` binds to sizes; what is bound already gives itself, or refuses other sizes.
    - `own_sizes`: the only sizes that fit, if any do not. `data_dependent`: whether vectors are needed.
    - `support` and `weights`: which pairs are read, and the log-weights these have, if any.
    - `axes`, `items`, `grid` and `at`: the single relations of batch items and heads.
    - `arity`: how many positions are related at a time. `is_bound`: whether it has been bound to sizes.
    - `run` and `arithmetic`: whether a row, or a pair, is known without binding.

    The defaults are those of a single relation, or of the support where that is another relation.

    >>> from erlangen.relations import ALiBi, Causal, Full, PerHead, WindowSquared
    >>> heads = PerHead([Causal(), Full()])
    >>> [kind.axes for kind in (Causal(), heads, ALiBi(1, relation=heads), Causal().on(3))]
    [(), ('head',), ('head',), ()]
    >>> ALiBi(1).support, ALiBi(1).weights, Causal().weights, WindowSquared(1).arity
    (Causal(), ALiBi(slopes=[1]), None, 3)
    """

    __slots__ = ()

    arity: ClassVar[int] = 2
    """How many positions are related at a time: 2 (query, key), or 3 for a ternary relation."""

    is_bound: ClassVar[bool] = False
    """Whether it is bound to sizes already."""

    _counts: ClassVar[tuple[str, ...]] = ()
    """The fields that count something: they are checked when a relation is made, and at least `_least`."""
    _least: ClassVar[int] = 0

    def __post_init__(self) -> None:
        for name in self._counts:
            number = sizes.count(getattr(self, name), f"{type(self).__name__}({name})", least=self._least)
            self._fill(**{name: number})

    def _fill(self, **values: Any) -> None:
        """Give a frozen relation its fields, while it is made."""
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        """The fields that differ from their defaults, by name."""
        told = [one for one in fields(self) if getattr(self, one.name) != one.default]  # type: ignore[arg-type]
        listed = ", ".join(f"{one.name}={getattr(self, one.name)!r}" for one in told)
        return f"{type(self).__name__}({listed})"

    @classmethod
    def example(cls, n: int, draw: Draw) -> Any:
        """One that fits n positions, as drawn. A relation whose parameters are no counts says what they are.

        `erlangen.testing.strategies` makes strategies for hypothesis of this.
        """
        return cls(*(draw.integer(cls._least, 6) for _ in cls._counts))

    def on(self, queries: Any, keys: Any = None) -> Any:
        """Bind to sizes."""
        raise NotImplementedError

    @property
    def own_sizes(self) -> tuple[int, int] | None:
        """(queries, keys) when only this number of keys fits, with its own number of queries; else None.

        An expression has the sizes of those of its parts that have any, and a weighted relation those of its
        support. Parts with different keys are an error; of different queries the fewest count, as they are
        the last positions.

        >>> from erlangen.relations import ALiBi, Bipartite, Causal, Documents
        >>> [r.own_sizes for r in (Bipartite(encoder=3, decoder=4), Causal() & Documents([2, 3]), Causal())]
        [(7, 7), (5, 5), None]
        >>> ALiBi(1, relation=Documents([2, 3])).own_sizes, ALiBi(1).own_sizes
        ((5, 5), None)
        >>> (Documents([2, 3]) | Bipartite(1, 1)).own_sizes
        Traceback (most recent call last):
        ...
        erlangen.errors.SizeError: Documents(lengths=(2, 3)) | Bipartite(encoder=1, decoder=1) has parts of
        different sizes: 5 queries x 5 keys and 2 queries x 2 keys
        """
        return None if self.support is self else self.support.own_sizes

    @property
    def data_dependent(self) -> bool:
        """Whether the neighborhoods depend on the data, not on sizes alone."""
        return False if self.support is self else self.support.data_dependent

    def run(self, position: int, keys: int) -> range | None:
        """The keys that the query at a position reads, where they are one run known without any array."""
        return None

    @property
    def arithmetic(self) -> bool:
        """Whether `holds` is arithmetic on the positions alone, and looks nothing up."""
        return False

    @property
    def support(self) -> Any:
        """Which pairs are read, whatever their weights: itself, for all but weighted relations."""
        return self

    @property
    def weights(self) -> Any:
        """The weighted relation that gives every pair its log-weight; None where all pairs are alike."""
        return None

    @property
    def axes(self) -> tuple[str, ...]:
        """What is told apart, outermost first: (), ("head",), ("item",) or ("item", "head")."""
        return () if self.support is self else self.support.axes

    @property
    def items(self) -> tuple[Any, ...]:
        """What each batch item reads by: the members of a `Batch`, otherwise one for all."""
        return (self,) if self.support is self else self.support.items

    def grid(self, batch: int | None = None, heads: int | None = None) -> tuple[tuple[Any, ...], ...]:
        """The single relations, items x heads, without weights; an axis of length 1 serves any number.

        Where `batch` or `heads` is given and does not fit, `ShapeError` says so.

        >>> from erlangen.relations import Batch, Causal, Full, PerHead
        >>> Batch([PerHead([Causal(), Full()]), Full()]).grid()
        ((Causal(), Full()), (Full(), Full()))
        >>> PerHead([Causal(), Full()]).grid(batch=4, heads=3)
        Traceback (most recent call last):
        ...
        erlangen.errors.ShapeError: PerHead([Causal(), Full()]) has 2 heads, but the tensors have 3
        """
        return ((self,),) if self.support is self else self.support.grid(batch, heads)

    def at(self, item: int = 0, head: int = 0) -> Any:
        """The single relation of a batch item and a head.

        >>> from erlangen.relations import Causal, Full, PerHead
        >>> PerHead([Causal(), Full()]).at(item=7, head=1), Causal().at(item=7, head=1)
        (Full(), Causal())
        >>> PerHead([Causal(), Full()]).at(head=2)
        Traceback (most recent call last):
        ...
        erlangen.errors.ShapeError: PerHead([Causal(), Full()]) has no head 2
        """
        chosen: Any = self.grid()
        for axis, index in (("item", item), ("head", head)):
            if len(chosen) > 1 and not 0 <= index < len(chosen):
                raise ShapeError(f"{self} has no {axis} {index}")
            chosen = chosen[index if len(chosen) > 1 else 0]
        return chosen

    def __le__(self, other: Any) -> bool:
        if not isinstance(other, AnyRelation):
            return NotImplemented
        if self.is_bound != other.is_bound:
            raise TypeError(_half_bound(self, other))
        for side in (self, other):
            if side.axes or side.arity != 2:
                raise TypeError(
                    f"inclusion is decided between two relations of pairs, bound to sizes, and {side} is "
                    + ("several: compare its members" if side.axes else "ternary: see whether a - b is empty")
                )
        raise TypeError(f"inclusion is decided at a size: write ({self}).on(n) <= ({other}).on(n)")

    __lt__ = __ge__ = __gt__ = __le__

    def __rand__(self, other: Any) -> Any:
        """Reached when neither side knows how to combine with the other."""
        if not isinstance(other, AnyRelation):
            return NotImplemented
        if self.is_bound != other.is_bound:
            raise TypeError(_half_bound(other, self))
        raise TypeError(f"{other} and {self} are of kinds that this operator does not combine")

    __ror__ = __rsub__ = __rxor__ = __rmatmul__ = __rand__


def _half_bound(left: AnyRelation, right: AnyRelation) -> str:
    bound, free = (left, right) if left.is_bound else (right, left)
    sizes = ", ".join(map(str, bound.own_sizes or ()))
    return f"{bound} is bound to sizes and {free} is not: write ({free}).on({sizes}) in its place"


def expect(
    value: Any,
    taken: str,
    *,
    arity: int | None = 2,
    axes: tuple[str, ...] = (),
    weights: bool = False,
    bound: bool = False,
) -> Any:
    """`value`, where it is a relation of a kind that is taken; otherwise an error that says what is.

    Taken is what has this arity (any, where it is None), tells no other axes apart, and has weights or is
    bound to sizes only where that is allowed.

    >>> from erlangen.relations import ALiBi
    >>> expect(ALiBi(1), "translations(relation) takes a relation or neighborhoods", bound=True)
    Traceback (most recent call last):
    ...
    erlangen.errors.ParameterError: translations(relation) takes a relation or neighborhoods, got
    ALiBi(slopes=[1])
    """
    if (
        not isinstance(value, AnyRelation)
        or arity not in (None, value.arity)
        or not set(value.axes) <= set(axes)
        or (value.weights is not None and not weights)
        or (value.is_bound and not bound)
    ):
        raise ParameterError(f"{taken}, got {value!r}")
    return value

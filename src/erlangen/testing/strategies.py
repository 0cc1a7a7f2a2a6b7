"""Hypothesis strategies for relations: random leaves and random expressions that can be bound at a size.

What may be drawn is said by each relation itself (`example`), so that a new one is drawn, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from erlangen.relations import Relation
from erlangen.relations.catalogue import kinds

Option = TypeVar("Option")


class _Drawn:
    """The choices of `erlangen.relations.protocol.Draw`, made by hypothesis."""

    def __init__(self, draw: DrawFn) -> None:
        self._draw = draw

    def integer(self, low: int, high: int) -> int:
        return self._draw(st.integers(low, high))

    def integers(self, low: int, high: int, least: int, most: int) -> list[int]:
        return self._draw(st.lists(st.integers(low, high), min_size=least, max_size=most))

    def choice(self, options: Sequence[Option]) -> Option:
        return self._draw(st.sampled_from(options))

    def relation(self, n: int) -> Relation:
        return self._draw(leaves(n))


@st.composite
def examples(draw: DrawFn, kind: type[Any], n: int) -> Any:
    """Relations of one kind (a class that an expression may call) that fit n positions.

    >>> from erlangen.relations import ALiBi
    >>> from hypothesis import find
    >>> find(examples(ALiBi, 3), lambda r: r.on(3).num_edges == 9)
    ALiBi(slopes=[0], relation=Full())
    """
    return kind.example(n, _Drawn(draw))


def bound_by_sizes() -> list[type[Relation]]:
    """The relations of pairs that sizes alone can bind."""
    return [kind for kind in kinds(Relation).values() if kind.data_dependent is not True]


LEAVES: dict[type[Relation], Callable[[int], SearchStrategy[Relation]]] = {
    kind: partial(examples, kind) for kind in bound_by_sizes()
}
"""For every relation that sizes alone can bind: a strategy for one that fits n positions."""


def leaves(n: int) -> SearchStrategy[Relation]:
    """A random named relation that can be bound to n queries and n keys."""
    return st.one_of([examples(kind, n) for kind in bound_by_sizes()])


def relations(n: int, max_leaves: int = 6) -> SearchStrategy[Relation]:
    """A random expression that can be bound to n keys and up to n queries.

    >>> from hypothesis import find
    >>> find(relations(3), lambda r: r.on(3).num_edges == 9)
    Full()
    """

    def extend(children: SearchStrategy[Relation]) -> SearchStrategy[Relation]:
        return st.one_of(
            st.builds(lambda a, b: a & b, children, children),
            st.builds(lambda a, b: a | b, children, children),
            st.builds(lambda a, b: a - b, children, children),
            st.builds(lambda a, b: a @ b, children, children),
            st.builds(lambda a: ~a, children),
            st.builds(lambda a: a.T, children),
            st.builds(lambda a, p: a**p, children, st.integers(0, 3)),
            st.builds(lambda a, p: a.reach(p), children, st.integers(0, 3)),
            st.builds(lambda a: a.closure(), children),
        )

    return st.recursive(leaves(n), extend, max_leaves=max_leaves)

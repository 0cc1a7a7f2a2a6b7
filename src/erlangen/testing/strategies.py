"""Hypothesis strategies for relations: random leaves and random expressions that can be bound at a size."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from erlangen.relations import (
    Bipartite,
    Blocks,
    Causal,
    Dilated,
    Documents,
    Empty,
    FromMask,
    Full,
    Global,
    Graph,
    Grid,
    GridOffset,
    Identity,
    Offset,
    Padding,
    Prefix,
    Random,
    Relation,
    Ring,
    Window,
)


def _documents(n: int) -> SearchStrategy[Relation]:
    cuts = st.lists(st.integers(0, n), max_size=4).map(sorted)
    return cuts.map(lambda c: Documents([b - a for a, b in zip([0, *c], [*c, n], strict=True)]))


def _shapes(n: int) -> list[tuple[int, ...]]:
    return [
        shape
        for a in range(1, n + 1)
        for b in range(1, n + 1)
        for shape in ((a, b), (a, b, n // (a * b) if a * b <= n else 0))
        if prod(shape) == n
    ]


def _grid(n: int) -> SearchStrategy[Relation]:
    if n == 0:
        return st.just(Empty())
    return st.builds(Grid, st.sampled_from(_shapes(n)), st.integers(0, 3))


def _grid_offset(n: int) -> SearchStrategy[Relation]:
    if n == 0:
        return st.just(Empty())

    def on(shape: tuple[int, ...]) -> SearchStrategy[Relation]:
        by, cells = (
            st.tuples(*[st.integers(-2, 2)] * len(shape)),
            st.tuples(*[st.integers(1, 4)] * len(shape)),
        )
        return st.builds(GridOffset, st.just(shape), by, st.none() | cells)

    return st.sampled_from(_shapes(n)).flatmap(on)


def _graph(n: int) -> SearchStrategy[Relation]:
    if n == 0:
        return st.just(Graph([]))
    node = st.integers(0, n - 1)
    return st.lists(st.tuples(node, node), max_size=3 * n).map(Graph)


def _mask(n: int) -> SearchStrategy[Relation]:
    row = st.lists(st.booleans(), min_size=n, max_size=n)
    if n == 0:
        return st.just(Empty())
    return st.lists(row, min_size=n, max_size=n).map(FromMask)


_small = st.integers(0, 6)
_positive = st.integers(1, 6)
_positions = st.lists(st.integers(0, 9), max_size=3)

LEAVES: dict[type[Relation], Callable[[int], SearchStrategy[Relation]]] = {
    Full: lambda n: st.just(Full()),
    Empty: lambda n: st.just(Empty()),
    Identity: lambda n: st.just(Identity()),
    Causal: lambda n: st.just(Causal()),
    Prefix: lambda n: st.builds(Prefix, _small),
    Window: lambda n: st.builds(Window, _small, _small),
    Ring: lambda n: st.builds(Ring, _small, _small),
    Dilated: lambda n: st.builds(Dilated, _positive),
    Bipartite: lambda n: st.integers(0, n).map(lambda m: Bipartite(m, n - m)),
    Documents: _documents,
    Blocks: lambda n: st.builds(Blocks, _positive),
    Padding: lambda n: st.builds(Padding, st.integers(0, n), st.sampled_from(["left", "right"])),
    Global: lambda n: st.builds(Global, keys=_positions, queries=_positions),
    Grid: _grid,
    Offset: lambda n: st.builds(Offset, st.integers(-6, 6)),
    GridOffset: _grid_offset,
    Graph: _graph,
    FromMask: _mask,
    Random: lambda n: st.builds(Random, _small, st.integers(0, 3)),
}
"""For every relation that sizes alone can bind: a strategy for one that fits n positions."""


def leaves(n: int) -> SearchStrategy[Relation]:
    """A random named relation that can be bound to n queries and n keys."""
    return st.one_of([make(n) for make in LEAVES.values()])


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

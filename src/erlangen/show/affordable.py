"""Binding a relation for display: sizes from the user or its own, refused when it would not fit."""

from __future__ import annotations

from typing import Any

from erlangen.errors import DataError, ParameterError, SizeError
from erlangen.relations import sizes
from erlangen.relations.protocol import AnyRelation

Bound = tuple[str, Any, Any]
"""The name of a place in a family ("" outside of one), the relation there, and what it is bound to."""

MOST_RUNS = 20_000_000
"""Relations that need more runs than this (about 2 GB) are not bound for display."""
MOST_PAIRS = 4_000_000
"""Weights of more edges than this are not listed one by one for display."""


def members(relation: AnyRelation) -> list[tuple[str, Any]]:
    """The relations of a family with the name of each place; a single relation has no name.

    >>> from erlangen.relations import Batch, Causal, Full, PerHead
    >>> members(Batch([PerHead([Causal(), Full()]), Causal()]))
    [('item 0, head 0', Causal()), ('item 0, head 1', Full()), ('item 1', Causal())]
    """
    if not relation.axes:
        return [("", relation)]
    if relation.weights is not None:
        raise ParameterError(f"{relation} holds several relations: draw each with the weights of its own")
    found = []
    for b, item in enumerate(relation.items):
        for h, head in enumerate(item.grid()[0]):
            names = [f"item {b}"] if "item" in relation.axes else []
            names += [f"head {h}"] if "head" in item.axes else []
            found.append((", ".join(names), head))
    return found


def sizes_for(relation: AnyRelation, queries: int | None, keys: int | None) -> tuple[int, int | None]:
    """The sizes asked for, or else those the relation brings.

    >>> from erlangen.relations import Bipartite, Causal
    >>> sizes_for(Causal(), 5, None), sizes_for(Bipartite(3, 4), None, None)
    ((5, None), (7, 7))
    >>> sizes_for(Causal(), None, None)
    Traceback (most recent call last):
    ...
    erlangen.errors.SizeError: Causal() has no size of its own: say how many positions, --n N or show(n)
    """
    if relation.arity != 2 and keys is not None:
        raise ParameterError(f"{relation} relates positions of one sequence: --keys does not apply")
    if queries is not None:
        return queries, keys
    own = relation.own_sizes
    if own is None:
        raise SizeError(f"{relation} has no size of its own: say how many positions, --n N or show(n)")
    return own[0], own[1] if keys is None else keys


def bind(relation: Any, queries: int, keys: int | None = None) -> Any:
    """`relation.on(queries, keys)`, or a clear error when that would take gigabytes.

    >>> from erlangen.relations import Dilated
    >>> bind(Dilated(2), 1_000_000)
    Traceback (most recent call last):
    ...
    erlangen.errors.SizeError: Dilated(step=2) on 1,000,000 queries x 1,000,000 keys needs about
    500,000,000,000 runs, more than the 20,000,000 that are drawn; choose smaller sizes
    """
    if relation.data_dependent:
        raise DataError(f"{relation} depends on the data, so it has no matrix at a size alone")
    if relation.arity != 2:
        return relation.on(queries)  # refuses by itself what would not fit
    queries = sizes.size(queries, "queries")
    width = queries if keys is None else sizes.size(keys, "keys")
    affordable(relation.support, queries, width)
    try:
        bound = relation.support.on(queries, keys)
    except MemoryError:
        raise SizeError(
            f"{relation} on {queries:,} queries x {width:,} keys does not fit into memory"
        ) from None
    if relation.weights is None:
        return bound
    if not relation.structured and bound.num_edges > MOST_PAIRS:
        raise SizeError(f"{relation} has {bound.num_edges:,} edges with a weight each; choose smaller sizes")
    return relation.on(queries, keys)


def affordable(relation: Any, queries: int, keys: int, most: int = MOST_RUNS, used: str = "drawn") -> None:
    """Raise before binding what would take gigabytes.

    >>> from erlangen.relations import Causal
    >>> affordable(Causal(), 10**9, 10**9, used="looked at")
    Traceback (most recent call last):
    ...
    erlangen.errors.SizeError: Causal() on 1,000,000,000 queries x 1,000,000,000 keys needs about
    1,000,000,000 runs, more than the 20,000,000 that are looked at; choose smaller sizes
    """
    needed = relation.runs_needed(queries, keys)
    if needed > most:
        raise SizeError(
            f"{relation} on {queries:,} queries x {keys:,} keys needs about {needed:,} runs, "
            f"more than the {most:,} that are {used}; choose smaller sizes"
        )


def bind_all(relation: AnyRelation, queries: int | None = None, keys: int | None = None) -> list[Bound]:
    """Every member of a relation or family, bound.

    >>> from erlangen.relations import ALiBi, Causal, Full, PerHead
    >>> bind_all(PerHead([Causal(), Full()]), 2)[1]
    ('head 1', Full(), Neighborhoods(queries=2, keys=2, num_edges=4))
    >>> bind_all(ALiBi([1, 2]), 3)
    [('', ALiBi(slopes=[1, 2]), WeightedNeighborhoods(queries=3, keys=3, num_edges=6, heads=2, Toeplitz))]
    """
    listed = members(relation)
    queries, keys = sizes_for(relation, queries, keys)
    return [(place, member, bind(member, queries, keys)) for place, member in listed]

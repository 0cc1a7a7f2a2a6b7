"""What is said about a bound relation in one breath, for people and as JSON."""

from __future__ import annotations

from typing import Any

from erlangen.relations.neighborhoods import Neighborhoods
from erlangen.relations.relation import Relation

LISTED = 8
"""Empty queries named in the header; beyond, only their number is said."""


def facts(relation: Relation, bound: Neighborhoods) -> dict[str, Any]:
    """The numbers of a bound relation as plain Python values.

    >>> from erlangen.relations import Bipartite
    >>> facts(Bipartite(1, 1), Bipartite(1, 1).on(2))
    {'relation': 'Bipartite(encoder=1, decoder=1)', 'queries': 2, 'keys': 2, 'edges': 1, 'density': 0.25,
     'empty_queries': [0]}
    """
    return {
        "relation": repr(relation),
        "queries": bound.queries,
        "keys": bound.keys,
        "edges": bound.num_edges,
        "density": bound.density,
        "empty_queries": bound.empty_queries().tolist(),
    }


def header(relation: Relation, bound: Neighborhoods) -> str:
    """Two lines: the relation and its sizes; edges, density and empty rows.

    >>> from erlangen.relations import Bipartite
    >>> print(header(Bipartite(1, 1), Bipartite(1, 1).on(2)))
    Bipartite(encoder=1, decoder=1) on 2 queries x 2 keys
    edges 1 of 4, density 0.25, empty rows 1 (query 0)
    """
    empty = bound.empty_queries()
    named = ""
    if 0 < empty.size <= LISTED:
        named = f" ({'query' if empty.size == 1 else 'queries'} {', '.join(map(str, empty.tolist()))})"
    pairs = bound.queries * bound.keys
    return (
        f"{relation!r} on {bound.queries:,} queries x {bound.keys:,} keys\n"
        f"edges {bound.num_edges:,} of {pairs:,}, density {bound.density:.4g}, "
        f"empty rows {empty.size or 'none'}{named}"
    )

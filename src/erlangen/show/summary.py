"""What is said about a bound relation of any kind in one breath, for people and as JSON."""

from __future__ import annotations

from typing import Any

LISTED = 8
"""Empty queries named in the header; beyond, only their number is said. Also heads whose weights are told."""


def facts(relation: Any, bound: Any) -> dict[str, Any]:
    """The numbers of a bound relation as plain Python values.

    >>> from erlangen.relations import ALiBi, Bipartite, Triples
    >>> facts(Bipartite(1, 1), Bipartite(1, 1).on(2))
    {'relation': 'Bipartite(encoder=1, decoder=1)', 'queries': 2, 'keys': 2, 'edges': 1, 'density': 0.25,
     'empty_queries': [0]}
    >>> facts(ALiBi([1, 2]), ALiBi([1, 2]).on(2))["weights"]
    {'heads': 2, 'form': 'Toeplitz', 'log_weights': [[-1.0, 0.0], [-2.0, 0.0]]}
    >>> facts(Triples(3, [(0, 1, 2)]), Triples(3, [(0, 1, 2)]))
    {'relation': 'Triples(3, [(0, 1, 2)])', 'arity': 3, 'positions': 3, 'triples': 1,
     'density': 0.037037037037037035, 'shadow_edges': 2, 'empty_queries': [1, 2]}
    """
    if relation.arity == 3:
        return {
            "relation": repr(relation),
            "arity": 3,
            "positions": bound.n,
            "triples": bound.num_triples,
            "density": bound.density,
            "shadow_edges": bound.shadow().on(bound.n).num_edges,
            "empty_queries": bound.empty_queries().tolist(),
        }
    if relation.weights is not None:
        extremes = [list(ends) for ends in extent(bound)]
        return {
            **facts(relation.support, bound.neighborhoods),
            "relation": repr(relation),
            "support": repr(relation.support),
            "weights": {"heads": bound.heads, "form": _form(bound), "log_weights": extremes},
        }
    return {
        "relation": repr(relation),
        "queries": bound.queries,
        "keys": bound.keys,
        "edges": bound.num_edges,
        "density": bound.density,
        "empty_queries": bound.empty_queries().tolist(),
    }


def header(relation: Any, bound: Any) -> str:
    """The relation and its sizes; edges, density and empty rows; of weights their form and range.

    >>> from erlangen.relations import ALiBi, Bipartite
    >>> print(header(Bipartite(1, 1), Bipartite(1, 1).on(2)))
    Bipartite(encoder=1, decoder=1) on 2 queries x 2 keys
    edges 1 of 4, density 0.25, empty rows 1 (query 0)
    >>> print(header(ALiBi([1, 2]), ALiBi([1, 2]).on(4)).splitlines()[-1])
    weights: Toeplitz, 2 heads, log-weights -3 to 0, -6 to 0
    """
    if relation.arity == 3:
        return (
            f"{relation!r} on {bound.n:,} positions\ntriples {bound.num_triples:,} of {bound.n**3:,}, "
            f"density {bound.density:.4g}, queries without a pair {bound.empty_queries().size or 'none'}"
        )
    read = bound if relation.weights is None else bound.neighborhoods
    empty = read.empty_queries()
    named = ""
    if 0 < empty.size <= LISTED:
        named = f" ({'query' if empty.size == 1 else 'queries'} {', '.join(map(str, empty.tolist()))})"
    lines = [
        f"{relation!r} on {read.queries:,} queries x {read.keys:,} keys",
        f"edges {read.num_edges:,} of {read.queries * read.keys:,}, density {read.density:.4g}, "
        f"empty rows {empty.size or 'none'}{named}",
    ]
    if relation.weights is not None:
        ranges = ", ".join(f"{low:.4g} to {high:.4g}" for low, high in extent(bound)[:LISTED])
        more = ", ..." if bound.heads > LISTED else ""
        heads = "1 head" if bound.heads == 1 else f"{bound.heads} heads"
        lines.append(f"weights: {_form(bound)}, {heads}, log-weights {ranges}{more}")
    return "\n".join(lines)


def _form(bound: Any) -> str:
    """How the weights are held."""
    return "per edge" if bound.toeplitz is None else "Toeplitz"


def extent(bound: Any) -> list[tuple[float, float]]:
    """The least and the largest log-weight of every head, over what is read.

    >>> from erlangen.relations import ALiBi
    >>> extent(ALiBi([1, 2]).on(4))
    [(-3.0, 0.0), (-6.0, 0.0)]
    """
    vector = bound.toeplitz
    values = bound.per_edge() if vector is None else vector[:, bound.used_offsets()]
    return [(float(row.min()), float(row.max())) if row.size else (0.0, 0.0) for row in values]

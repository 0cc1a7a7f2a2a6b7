"""Weighted relations in the terminal: every pair as a shade of its weight, and what is said about them."""

from __future__ import annotations

from typing import Any

import numpy as np

from erlangen.errors import ParameterError, SizeError
from erlangen.relations.weighted import WeightedNeighborhoods, WeightedRelation
from erlangen.show.binding import bind, sizes_for
from erlangen.show.matrix import MARKED, UNICODE, Charset, draw
from erlangen.show.summary import facts, header

MOST_PAIRS = 4_000_000
"""Weights of more edges than this are not listed one by one for display."""


def bind_weighted(weighted: WeightedRelation, queries: int | None, keys: int | None) -> WeightedNeighborhoods:
    """A weighted relation bound for display: sizes from the user or its own.

    >>> from erlangen.relations import ALiBi
    >>> bind_weighted(ALiBi([1, 2]), 3, None)
    WeightedNeighborhoods(queries=3, keys=3, num_edges=6, heads=2, Toeplitz)
    """
    if weighted.axes:
        raise ParameterError(f"{weighted} holds several relations: draw each with the weights of its own")
    queries, keys = sizes_for(weighted, queries, keys)
    relation: Any = weighted.support
    bound = bind(relation, queries, keys)
    if not weighted.structured and bound.num_edges > MOST_PAIRS:
        raise SizeError(f"{weighted} has {bound.num_edges:,} edges with a weight each; choose smaller sizes")
    return weighted.on(queries, keys)


def shares(bound: WeightedNeighborhoods, head: int) -> np.ndarray:
    """Each weight of one head as a part of the largest in its row, shape (queries, keys); NaN: not read.

    >>> from erlangen.relations import Decay
    >>> shares(Decay(0.5).on(2), 0).tolist()
    [[1.0, nan], [0.5, 1.0]]
    """
    logs = bound.dense()[head]
    read = np.isfinite(logs)
    largest = np.max(logs, axis=1, keepdims=True, initial=-np.inf)
    return np.where(read, np.exp(logs - np.where(np.isfinite(largest), largest, 0)), np.nan)


def draw_weights(
    bound: WeightedNeighborhoods, head: int = 0, width: int = 80, characters: Charset = UNICODE
) -> str:
    """One head's matrix: a shade for each pair that is read, up to 32 positions; beyond, only what is read.

    >>> from erlangen.relations import Decay
    >>> print(draw_weights(Decay(0.7).on(4)))
         key j (read)
         0 1 2 3
      0  █ · · ·
      1  ▓ █ · ·
      2  ▒ ▓ █ ·
      3  ▒ ▒ ▓ █
    weight as a part of the row's largest: '░' under 1/4, '▒' under 1/2, '▓' under 3/4, '█' more
    """
    plain = draw(bound.neighborhoods, width, characters)
    if max(bound.queries, bound.keys) > MARKED or 2 * bound.keys + 5 > width or not bound.num_edges:
        return plain
    levels = np.minimum(np.nan_to_num(shares(bound, head)) * 4, 3).astype(int)
    dense = bound.neighborhoods.dense()
    few, some, many, most = characters.shades[1:]
    above = plain.split("\n")[: -bound.queries]
    rows = [
        f"{i:>3}  " + " ".join((few, some, many, most)[level] if read else characters.unread
                               for level, read in zip(levels[i], dense[i], strict=True))
        for i in range(bound.queries)
    ]  # fmt: skip
    legend = (
        f"weight as a part of the row's largest: '{few}' under 1/4, '{some}' under 1/2, "
        f"'{many}' under 3/4, '{most}' more"
    )
    return "\n".join([*above, *rows, legend])


def weight_facts(weighted: WeightedRelation, bound: WeightedNeighborhoods) -> dict[str, Any]:
    """The numbers of a bound weighted relation as plain Python values.

    >>> from erlangen.relations import ALiBi
    >>> weight_facts(ALiBi([1, 2]), ALiBi([1, 2]).on(2))["weights"]
    {'heads': 2, 'form': 'Toeplitz', 'log_weights': [[-1.0, 0.0], [-2.0, 0.0]]}
    """
    support: Any = weighted.support
    told = facts(support, bound.neighborhoods)
    extremes = [[float(low), float(high)] for low, high in extent(bound)]
    return {
        **told,
        "relation": repr(weighted),
        "support": repr(support),
        "weights": {"heads": bound.heads, "form": form(bound), "log_weights": extremes},
    }


def weight_header(weighted: WeightedRelation, bound: WeightedNeighborhoods) -> str:
    """The header of the support, and the range of the log-weights of every head."""
    relation: Any = weighted
    ranges = ", ".join(f"{low:.4g} to {high:.4g}" for low, high in extent(bound)[:8])
    more = ", ..." if bound.heads > 8 else ""
    heads = "1 head" if bound.heads == 1 else f"{bound.heads} heads"
    return (
        f"{header(relation, bound.neighborhoods)}\n"
        f"weights: {form(bound)}, {heads}, log-weights {ranges}{more}"
    )


def form(bound: WeightedNeighborhoods) -> str:
    """How the weights are held: `Toeplitz` (by j - i) or `per edge`."""
    return "per edge" if bound.toeplitz is None else "Toeplitz"


def extent(bound: WeightedNeighborhoods) -> list[tuple[float, float]]:
    """The least and the largest log-weight of every head, over what is read."""
    vector = bound.toeplitz
    values = bound.per_edge() if vector is None else vector[:, bound.used_offsets()]
    return [(float(row.min()), float(row.max())) if row.size else (0.0, 0.0) for row in values]

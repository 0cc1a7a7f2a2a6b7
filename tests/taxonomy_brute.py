"""The properties and kinds straight from their definitions, by trying everything; for small n only."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np


def window(order, p):
    """W_p in the given order, as a boolean matrix."""
    place = np.argsort(order)
    gap = place[:, None] - place[None, :]
    return (gap >= 0) & (gap <= p)


def topological_orders(mask):
    n = len(mask)
    for order in permutations(range(n)):
        place = {v: t for t, v in enumerate(order)}
        if all(place[j] < place[i] for i, j in product(range(n), repeat=2) if mask[i, j] and i != j):
            yield order


def properties(mask):
    n = len(mask)
    pairs = list(product(range(n), repeat=2))
    joined = mask | mask.T
    orders = list(topological_orders(mask))
    reach = joined | np.eye(n, dtype=bool)
    for _ in range(n):
        reach = reach @ reach
    return {
        "reflexive": all(mask[i, i] for i in range(n)),
        "symmetric": all(mask[j, i] for i, j in pairs if mask[i, j]),
        "antisymmetric": all(i == j for i, j in pairs if mask[i, j] and mask[j, i]),
        "transitive": all(mask[i, k] for i, j in pairs for k in range(n) if mask[i, j] and mask[j, k]),
        "total": all(mask[i, j] or mask[j, i] for i, j in pairs),
        "acyclic": len(orders) > 0,
        "unique_topological_order": len(orders) == 1,
        "toeplitz": all(mask[i, j] == mask[i + 1, j + 1] for i, j in product(range(n - 1), repeat=2)),
        "bipartition": any(
            all(side[i] != side[j] for i, j in pairs if mask[i, j]) for side in product((0, 1), repeat=n)
        ),
        "connected": bool(reach.all()),
    }


def kinds(mask):
    n = len(mask)
    every = list(permutations(range(n)))
    return {
        "empty": not mask.any(),
        "full": bool(mask.all()),
        "identity": np.array_equal(mask, np.eye(n, dtype=bool)),
        "bipartite": any(
            np.array_equal(mask, np.logical_not(x)[:, None] & x[None, :])
            for x in map(np.array, product((False, True), repeat=n))
            if 0 < x.sum() < n
        ),
        "total-order": any(np.array_equal(mask, window(order, n)) for order in every),
        "previous": any(np.array_equal(mask, window(order, p)) for order in every for p in range(max(n, 1))),
    }


def automorphisms(mask):
    n = len(mask)
    return sum(np.array_equal(mask[np.ix_(pi, pi)], mask) for pi in map(list, permutations(range(n))))

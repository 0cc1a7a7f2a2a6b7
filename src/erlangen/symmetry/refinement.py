"""Colour refinement on in- and out-neighbours, computed on runs: cost follows the runs, not the edges.

Colours are 64-bit hashes of isomorphism invariants. A collision could only leave two points alike that are
not, never tell apart two that are alike, so "all colours differ" proves that the group is trivial.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from erlangen.relations.neighborhoods import Neighborhoods

_ROUNDS = 24
_HOPEFUL = 6
"""A long path needs about n / 2 rounds; bliss refines such graphs faster than whole passes do. After
`_HOPEFUL` rounds, refinement goes on only while it is on the way to end within about `_ROUNDS` more."""


def mix(values: np.ndarray, salt: int) -> np.ndarray:
    """A 64-bit hash of integers (splitmix64), the same on every machine.

    >>> mix(np.arange(2), 0)[0] != mix(np.arange(2), 0)[1]
    np.True_
    """
    x = values.astype(np.uint64) + np.uint64((salt + 1) * 0x9E3779B97F4A7C15 % 2**64)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def compress(values: np.ndarray) -> tuple[np.ndarray, int]:
    """Any hashes as the numbers 0 .. distinct - 1, in the order of the hashes (so it is an invariant).

    >>> compress(np.array([70, 10, 70]))
    (array([1, 0, 1]), 2)
    """
    distinct, numbered = np.unique(values, return_inverse=True)
    return numbered.astype(np.int64), distinct.size


def refine(relations: Sequence[Neighborhoods], colors: np.ndarray) -> tuple[np.ndarray, int, bool]:
    """Refine colours until stable or for a bounded number of rounds: (colours, how many, whether stable).

    Two points keep one colour only if they had it before and, in every relation, read and are read by
    equally many points of every colour.

    >>> path = Neighborhoods.from_edges(3, 3, [(0, 1), (1, 2)])
    >>> refine([path], np.zeros(3, np.int64))[1:]
    (3, True)
    """
    colors, count = compress(colors)
    n = colors.size
    for done in range(_ROUNDS):
        if count == n:
            return colors, count, True
        signature = mix(colors, 0)
        for index, relation in enumerate(relations):
            value = mix(colors, 2 * index + 1)
            signature += mix(_sums(relation, value), 1) + mix(_sums(relation.T, value), 2)
            signature = mix(signature, 3)
        # Pairs (old colour, signature) keep colours apart that were apart, whatever the hash does.
        signature, distinct = compress(signature)
        colors, refined = compress(colors * distinct + signature)
        if refined == count:
            return colors, count, True
        slow = (refined - count) * _ROUNDS < n - refined
        count = refined
        if slow and done >= _HOPEFUL:
            break
    return colors, count, False


def _sums(relation: Neighborhoods, value: np.ndarray) -> np.ndarray:
    """The sum of value over N_i for each i, modulo 2^64."""
    before = np.zeros(relation.keys + 1, np.uint64)
    np.cumsum(value, out=before[1:])
    runs = np.zeros(relation.starts.size + 1, np.uint64)
    np.cumsum(before[relation.stops] - before[relation.starts], out=runs[1:])
    return runs[relation.indptr[1:]] - runs[relation.indptr[:-1]]

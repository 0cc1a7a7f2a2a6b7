"""Automorphisms by trying every permutation, from the definition alone."""

from __future__ import annotations

from functools import cache
from itertools import permutations
from math import factorial

import numpy as np


@cache
def every_permutation(n: int) -> np.ndarray:
    """All n! image arrays, shape (n!, n), identity first."""
    return np.array(list(permutations(range(n))), np.int64).reshape(factorial(n), n)


def automorphisms(*masks: np.ndarray) -> np.ndarray:
    """The image arrays pi with mask[i, j] = mask[pi i, pi j] for every mask, shape (order, n)."""
    images = every_permutation(len(masks[0]))
    kept = np.ones(len(images), bool)
    for mask in masks:
        kept &= (mask[images[:, :, None], images[:, None, :]] == mask).all(axis=(1, 2))
    return images[kept]


def orbits(elements: np.ndarray) -> list[list[int]]:
    """The orbits of a group given by all its elements."""
    return sorted({tuple(sorted(set(column.tolist()))) for column in elements.T})  # type: ignore[return-value]


def pairs(mask: np.ndarray) -> set[tuple[tuple[int, ...], tuple[int, ...]]]:
    """All (tau, sigma) with mask[i, j] = mask[tau i, sigma j]."""
    q, k = mask.shape
    return {
        (tuple(tau.tolist()), tuple(sigma.tolist()))
        for tau in every_permutation(q)
        for sigma in every_permutation(k)
        if (mask[np.ix_(tau, sigma)] == mask).all()
    }


def same_group(group, elements: np.ndarray) -> None:
    """Assert that a `Group` is exactly the group with these elements, in every way it can be asked."""
    assert group.exact
    assert group.order == len(elements)
    assert {tuple(e.tolist()) for e in group.elements()} == {tuple(e) for e in elements.tolist()}
    assert [orbit.tolist() for orbit in group.orbits] == [list(orbit) for orbit in orbits(elements)]

"""Automorphisms counted from the definition, for the checker: small, plain and independent of `symmetry`."""

from __future__ import annotations

import numpy as np


def count_automorphisms(mask: np.ndarray) -> int:
    """How many permutations pi have mask[pi i, pi j] = mask[i, j]: orbits multiplied down a stabiliser chain.

    >>> count_automorphisms(np.eye(4, dtype=bool)), count_automorphisms(np.tri(4, dtype=bool))
    (24, 1)
    """
    n = len(mask)
    colors = np.zeros(n, np.int64)
    order = 1
    while True:
        refined = _refine(mask, colors, colors)
        assert refined is not None  # a colouring always matches itself
        colors = refined[0]
        cell = _cell(colors)
        if cell is None:
            return order
        first, orbit, found = int(cell[0]), {int(cell[0])}, []
        for other in cell[1:].tolist():
            if other in orbit:
                continue
            image = _extend(mask, _mark(colors, first), _mark(colors, other))
            if image is not None:
                found.append(image)
                orbit = _orbit(first, found)
        order *= len(orbit)
        colors = _mark(colors, first)


def generated_order(generators: list[np.ndarray], n: int) -> int:
    """The order of the permutation group generated, by Sims' table of coset representatives.

    Row i holds permutations that fix 0..i-1, by the image of i. Products of entries are sifted through the
    table until nothing new remains; the order is the product of the row lengths.

    >>> generated_order([np.array([1, 0, 2]), np.array([1, 2, 0])], 3)
    6
    """
    table: list[dict[int, np.ndarray]] = [{i: np.arange(n)} for i in range(n)]
    waiting = [np.asarray(g, np.int64) for g in generators]
    while waiting:
        g = waiting.pop()
        for i in range(n):
            known = table[i].get(int(g[i]))
            if known is None:
                entries = [entry for row in table for entry in row.values()]
                table[i][int(g[i])] = g
                waiting += [entry[g] for entry in entries] + [g[entry] for entry in entries] + [g[g]]
                break
            g = np.argsort(known)[g]
    order = 1
    for row in table:
        order *= len(row)
    return order


def _mark(colors: np.ndarray, position: int) -> np.ndarray:
    marked = colors.copy()
    marked[position] = colors.size + 1
    return marked


def _cell(colors: np.ndarray) -> np.ndarray | None:
    """The positions of the first colour that several positions share."""
    values, counts = np.unique(colors, return_counts=True)
    shared = values[counts > 1]
    return np.flatnonzero(colors == shared[0]) if shared.size else None


def _refine(mask: np.ndarray, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Two colourings, split alike by the colours of the neighbours; None if they differ."""
    count = -1
    weights = mask.astype(np.int64)
    loop = np.diag(weights)
    while True:
        colors = np.union1d(a, b)
        if colors.size == count:
            return a, b
        count = colors.size
        signatures = []
        for own in (a, b):
            of = (own[:, None] == colors[None, :]).astype(np.int64)
            signatures.append(np.column_stack([own, loop, weights @ of, weights.T @ of]))
        _, labels = np.unique(np.concatenate(signatures), axis=0, return_inverse=True)
        a, b = np.split(labels.ravel(), 2)
        if not np.array_equal(np.sort(a), np.sort(b)):
            return None


def _extend(mask: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray | None:
    """An automorphism that takes colouring a to colouring b, by backtracking over refined colourings."""
    refined = _refine(mask, a, b)
    if refined is None:
        return None
    a, b = refined
    cell = _cell(a)
    if cell is None:
        image = np.empty(a.size, np.int64)
        image[np.argsort(a)] = np.argsort(b)
        return image if np.array_equal(mask[np.ix_(image, image)], mask) else None
    first = int(cell[0])
    for other in np.flatnonzero(b == a[first]).tolist():
        image = _extend(mask, _mark(a, first), _mark(b, other))
        if image is not None:
            return image
    return None


def _orbit(start: int, permutations: list[np.ndarray]) -> set[int]:
    orbit, waiting = {start}, [start]
    while waiting:
        at = waiting.pop()
        for image in permutations:
            if int(image[at]) not in orbit:
                orbit.add(int(image[at]))
                waiting.append(int(image[at]))
    return orbit

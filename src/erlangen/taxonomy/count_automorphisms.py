"""Automorphisms counted from the definition, for the checker: small, plain and independent of `symmetry`."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

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
        colors = _settled(mask, colors)
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
    """The order of the permutation group generated: the orbits of a stabiliser chain (Schreier and Sims).

    >>> generated_order([np.array([1, 0, 2]), np.array([1, 2, 0])], 3)
    6
    """
    chain = _Chain(list(range(n)), [n - i for i in range(n)], n)
    for generator in generators:
        chain.insert(0, tuple(np.asarray(generator).tolist()))
    return chain.order


def full_order(mask: np.ndarray, generators: list[np.ndarray]) -> int | None:
    """The order of Aut(mask) when the given automorphisms generate all of it; None when they do not.

    Colours are refined and one position after the other is fixed. Fixing a position, all its images lie in
    its colour: those in the orbit of the given group are images, and for every other orbit of that colour no
    automorphism may exist, which a search over refined colourings decides. The order is the product of the
    orbits. This is much less work than to count Aut(mask) from nothing, as what is given need not be found.

    >>> full_order(np.eye(3, dtype=bool), [np.array([1, 0, 2]), np.array([1, 2, 0])])
    6
    >>> full_order(np.eye(3, dtype=bool), [np.array([1, 2, 0])]) is None
    True
    """
    n = len(mask)
    if not all(np.array_equal(mask[np.ix_(g, g)], mask) for g in generators):
        return None
    colorings, cells = [], []
    colors = _settled(mask, np.zeros(n, np.int64))
    while (cell := _cell(colors)) is not None:
        colorings.append(colors)
        cells.append(cell.tolist())
        colors = _settled(mask, _mark(colors, cells[-1][0]))
    chain = _Chain([cell[0] for cell in cells], [len(cell) for cell in cells], n)
    for generator in generators:
        chain.insert(0, tuple(generator.tolist()))
    for level, (colors, cell) in enumerate(zip(colorings, cells, strict=True)):
        covered = set(chain.orbits[level])
        for other in cell:
            if other in covered:
                continue
            if _extend(mask, _mark(colors, cell[0]), _mark(colors, other)) is not None:
                return None
            covered |= _orbit(other, chain.generators[level])
    return chain.order


class _Chain:
    """A group as orbits: level l has the images of base[l] under what fixes base[0] .. base[l - 1].

    `most` bounds each orbit; once all bounds are met nothing more can be found, and sifting stops.
    """

    def __init__(self, base: list[int], most: list[int], n: int) -> None:
        identity = tuple(range(n))
        self.base = base
        self.missing = sum(most) - len(base)
        self.orbits: list[dict[int, tuple[int, ...]]] = [{point: identity} for point in base]
        self.generators: list[list[tuple[int, ...]]] = [[] for _ in base]

    @property
    def order(self) -> int:
        return prod(map(len, self.orbits))

    def insert(self, level: int, g: tuple[int, ...]) -> None:
        """Add an element that fixes base[:level], unless it is there; then every product that it makes."""
        if not self.missing or not self._new(level, g):
            return
        orbit, generators = self.orbits[level], self.generators[level]
        generators.append(g)
        waiting = [(point, g) for point in orbit]
        while waiting and self.missing:
            point, step = waiting.pop()
            moved = _then(orbit[point], step)
            image = step[point]
            if image not in orbit:
                orbit[image] = moved
                self.missing -= 1
                waiting += [(image, other) for other in generators]
            else:
                self.insert(level + 1, _then(moved, _inverse(orbit[image])))

    def _new(self, level: int, g: tuple[int, ...]) -> bool:
        """Whether an element that fixes base[:level] is no product of what is known."""
        for point, orbit in zip(self.base[level:], self.orbits[level:], strict=True):
            known = orbit.get(g[point])
            if known is None:
                return True
            g = _then(g, _inverse(known))
        return False


def _then(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    return tuple([second[image] for image in first])


def _inverse(permutation: tuple[int, ...]) -> tuple[int, ...]:
    back = [0] * len(permutation)
    for point, image in enumerate(permutation):
        back[image] = point
    return tuple(back)


def _settled(mask: np.ndarray, colors: np.ndarray) -> np.ndarray:
    refined = _refine(mask, colors, colors)
    assert refined is not None  # a colouring always matches itself
    return refined[0]


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


def _orbit(start: int, permutations: Sequence[Sequence[int] | np.ndarray]) -> set[int]:
    orbit, waiting = {start}, [start]
    while waiting:
        at = waiting.pop()
        for image in permutations:
            if int(image[at]) not in orbit:
                orbit.add(int(image[at]))
                waiting.append(int(image[at]))
    return orbit

"""The automorphism group of bound relations: twins, refinement, search; every generator checked."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import numpy as np

from erlangen.relations.neighborhoods import Neighborhoods
from erlangen.symmetry.group import Group, span
from erlangen.symmetry.moves import Move, keeps
from erlangen.symmetry.naming import recognise
from erlangen.symmetry.refinement import refine
from erlangen.symmetry.search import search
from erlangen.symmetry.shapes import Shape, Unnamed, product
from erlangen.symmetry.twins import Reduced, reduce

_BOUND = 2000
"""How many elements are listed to bound the order of an unfinished search from below."""


def automorphisms(
    relations: Sequence[Neighborhoods],
    colors: np.ndarray,
    budget: float,
    sides: tuple[int, int] | None = None,
) -> Group:
    """All permutations that keep every relation and every point's colour, at this size.

    The relations are square and of one size. When `budget` seconds are over, the answer is a
    lower bound and says so.

    >>> relation = Neighborhoods.from_edges(4, 4, [(0, 1), (1, 2), (2, 3), (3, 0)])
    >>> print(automorphisms([relation], np.zeros(4, np.int64), budget=10.0))
    C4, order 4
    """
    deadline = time.monotonic() + budget
    reduced = reduce(relations, colors)
    generators, order, complete = _above(reduced, deadline)
    moves = [*reduced.moves, *(_lift(generator, reduced) for generator in generators)]
    for move in moves:
        require_automorphism(relations, colors, move)
    inner = product(*reduced.shapes)
    if complete:
        shape = inner if order == 1 else recognise(generators, order, reduced.shapes) or Unnamed(order, inner)
    else:
        shape = Unnamed(_least_order(generators, reduced.colors.size), inner, at_least=True)

    def oracle(image: np.ndarray) -> bool:
        move = Move.of(image)
        return np.array_equal(colors[move.points], colors[move.images]) and all(
            keeps(relation, move) for relation in relations
        )

    return Group(colors.size, shape, tuple(moves), "exact at n" if complete else "at least", oracle, sides)


def require_automorphism(relations: Sequence[Neighborhoods], colors: np.ndarray, move: Move) -> None:
    """Raise unless a generator keeps every relation and colour: no unchecked generator is ever returned."""
    if not np.array_equal(colors[move.points], colors[move.images]) or not all(
        keeps(relation, move) for relation in relations
    ):
        raise AssertionError(f"a generator is not an automorphism: {move.points.tolist()} -> {move.images.tolist()}")


def _above(reduced: Reduced, deadline: float) -> tuple[list[np.ndarray], int, bool]:
    """Generators on the merged vertices, the order of their group, and whether they are all."""
    colors, count, stable = refine(reduced.relations, reduced.colors)
    if count == colors.size:
        return [], 1, True
    active = np.arange(colors.size)
    if stable:
        # What a point with a colour of its own reads is already told by the colours of the others.
        active = np.flatnonzero(np.bincount(colors)[colors] > 1)
    found = search([r.restrict(active, active) for r in reduced.relations], colors[active], deadline)
    generators = []
    for image in found.generators:
        whole = np.arange(colors.size)
        whole[active] = active[image]
        generators.append(whole)
    return generators, found.order, found.complete


def _lift(generator: np.ndarray, reduced: Reduced) -> Move:
    """A permutation of merged vertices as one of points, block onto aligned block."""
    moved = np.flatnonzero(generator != np.arange(generator.size)).tolist()
    points = np.concatenate([reduced.blocks[v] for v in moved])
    images = np.concatenate([reduced.blocks[int(generator[v])] for v in moved])
    return Move(points, images)


def _least_order(generators: list[np.ndarray], size: int) -> int:
    """A lower bound of the order of the group generated, by Lagrange and by listing some elements."""
    if not generators:
        return 1
    listed = len(span(generators, size, _BOUND)) if size * _BOUND <= 20_000_000 else 1
    group = Group(size, Shape(), tuple(map(Move.of, generators)), "at least", lambda _: False)
    divisors = {len(orbit) for orbit in group.orbits}
    return max(listed, math.lcm(*divisors))

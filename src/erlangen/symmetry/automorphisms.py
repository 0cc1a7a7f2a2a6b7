"""The automorphism group of bound relations: twins, refinement, search; every generator checked."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from erlangen.errors import ErlangenError
from erlangen.relations.neighborhoods import Neighborhoods
from erlangen.symmetry.bliss_search import Component, search
from erlangen.symmetry.group import Group, Oracle, span
from erlangen.symmetry.group_shapes import TRIVIAL, Cyclic, Shape, Symmetric, Unnamed, product, wreath
from erlangen.symmetry.moves import Move, all_keep, keeps
from erlangen.symmetry.naming import orbits_of, recognise
from erlangen.symmetry.refinement import refine
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
    refined, count, stable = refine(relations, colors)
    shape, moves, parts = TRIVIAL, [], []
    if count < colors.size:
        reduced = reduce(relations, refined)
        parts = _search(reduced, stable, deadline)
        shape, moves = _assemble(reduced, parts)
    complete = all(part.complete for part in parts)
    if not complete:
        shape = Unnamed(1, shape, at_least=True)
    require_automorphisms(relations, colors, moves)
    oracle = Oracle(_keeps_all, (tuple(relations), colors))
    return Group(colors.size, shape, tuple(moves), "exact at n" if complete else "at least", oracle, sides)


def _keeps_all(relations: tuple[Neighborhoods, ...], colors: np.ndarray, image: np.ndarray) -> bool:
    move = Move.of(image)
    return np.array_equal(colors[move.points], colors[move.images]) and all(
        keeps(relation, move) for relation in relations
    )


def require_automorphisms(
    relations: Sequence[Neighborhoods], colors: np.ndarray, moves: Sequence[Move]
) -> None:
    """Raise unless every move keeps every relation and colour: no unchecked generator is ever returned.

    >>> path = Neighborhoods.from_edges(2, 2, [(0, 1)])
    >>> require_automorphisms([path], np.zeros(2, np.int64), [Move(np.array([0, 1]), np.array([1, 0]))])
    Traceback (most recent call last):
    ...
    erlangen.errors.ErlangenError: a computed generator is not an automorphism; this is a defect of erlangen
    """
    colored = all(np.array_equal(colors[move.points], colors[move.images]) for move in moves)
    if not colored or not all(all_keep(relation, moves) for relation in relations):
        raise ErlangenError("a computed generator is not an automorphism; this is a defect of erlangen")


def _search(reduced: Reduced, stable: bool, deadline: float) -> list[Component]:
    """The group on the merged vertices, by isomorphic components of what refinement could not tell apart."""
    colors, count = reduced.colors, int(reduced.colors.max(initial=-1)) + 1
    if any(reduced.moves):  # merging twins leaves fewer points to tell apart
        colors, count, stable = refine(reduced.relations, colors)
    if count == colors.size:
        return []
    active = np.arange(colors.size)
    if stable:
        # What a point with a colour of its own reads is already told by the colours of the others.
        active = np.flatnonzero(np.bincount(colors)[colors] > 1)
    parts = search([r.restrict(active, active) for r in reduced.relations], colors[active], deadline)
    return [replace(part, copies=active[part.copies]) for part in parts]


def _assemble(reduced: Reduced, parts: list[Component]) -> tuple[Shape, list[Move]]:
    """The whole group: inner groups of merged vertices, extended by the groups of the parts."""
    outside = np.ones(reduced.colors.size, bool)
    shapes: list[tuple[int, Shape]] = []
    moves: list[Move] = []
    for part in parts:
        first = part.copies[0]
        outside[part.copies] = False
        shapes.append((int(part.copies.min()), _shape(part, [reduced.shapes[v] for v in first.tolist()])))
        moves.extend(_lift(first, first[generator], reduced) for generator in part.generators)
        if len(part.copies) > 1:
            moves.append(_lift(part.copies[:2].ravel(), part.copies[[1, 0]].ravel(), reduced))
        if len(part.copies) > 2:
            moves.append(_lift(part.copies.ravel(), np.roll(part.copies, -1, axis=0).ravel(), reduced))
        # Vertices in one orbit have conjugate inner groups: generators of one of them are enough.
        apart = {min(orbit) for orbit in orbits_of(part.generators, first.size)}
        moves.extend(move for place in sorted(apart) for move in reduced.moves[int(first[place])])
    for v in np.flatnonzero(outside).tolist():
        if reduced.moves[v]:
            shapes.append((v, reduced.shapes[v]))
            moves.extend(reduced.moves[v])
    ordered = [shape for _, shape in sorted(shapes, key=lambda pair: pair[0])]
    whole = product(*ordered)
    return (Unnamed(1, whole) if any(isinstance(shape, Unnamed) for shape in ordered) else whole), moves


def _shape(part: Component, inner: list[Shape]) -> Shape:
    count = len(part.copies)
    if not part.complete:
        return Unnamed(least_order(part.generators, part.copies.shape[1]), product(*inner), at_least=True)
    shape = recognise(part.generators, part.order, inner)
    if shape is None:
        return Unnamed(1, wreath(Unnamed(part.order, product(*inner)), Symmetric(count)))
    return wreath(shape, Cyclic(2) if count == 2 and shape == TRIVIAL else Symmetric(count))


def _lift(vertices: np.ndarray, images: np.ndarray, reduced: Reduced) -> Move:
    """A permutation of merged vertices as one of points, block onto aligned block."""
    moved = vertices != images
    points = np.concatenate([reduced.blocks[v] for v in vertices[moved].tolist()])
    return Move(points, np.concatenate([reduced.blocks[v] for v in images[moved].tolist()]))


def least_order(generators: list[np.ndarray], size: int) -> int:
    """A lower bound of the order of the group generated: by Lagrange from its orbits, and by listing
    elements.

    >>> least_order([np.array([1, 2, 0, 3]), np.array([1, 0, 2, 3])], 4)
    6
    """
    listed = len(span(generators, size, _BOUND)) if size * _BOUND <= 20_000_000 else 1
    return max(listed, math.lcm(*(len(orbit) for orbit in orbits_of(generators, size))))

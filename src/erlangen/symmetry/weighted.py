"""The symmetry of weights: permutations that keep the row-normalised weights, through binary relations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from erlangen.errors import ParameterError, SizeError
from erlangen.relations.neighborhoods import Neighborhoods
from erlangen.relations.orders import Full
from erlangen.relations.protocol import AnyRelation
from erlangen.relations.weighted import WeightedRelation
from erlangen.symmetry.closed_forms import closed_form
from erlangen.symmetry.group import Group, Oracle
from erlangen.symmetry.moves import Move, keeps
from erlangen.symmetry.shapes import TRIVIAL, Cyclic, Symmetric, Unnamed

TOLERANCE = {8: 1e-9, 4: 1e-5, 2: 1e-2}
"""By bytes per number: floats this close, relative to the largest, count as equal where they are not."""


MAX_EDGES = 5_000_000
"""Weights of more edges than this are not compared one by one."""


@dataclass(frozen=True, eq=False)
class Layers:
    """Relations whose common automorphisms are exactly the symmetries of the weights.

    `numeric` says that floats which differ by rounding were taken as equal.
    """

    relations: tuple[Neighborhoods, ...]
    numeric: bool


def supports(member: AnyRelation) -> tuple[Any, ...]:
    """The relations that heads read by: one for all, or one per head."""
    if "item" in member.axes:
        raise ParameterError(f"{member} holds one relation per batch item: ask for the symmetry of each")
    (heads,) = member.grid()
    weighted = member.weights
    if weighted is not None and weighted.axes and weighted.heads not in (1, len(heads)):
        raise ParameterError(f"{weighted} has {weighted.heads} biases for {len(heads)} heads")
    return heads


def known_group(member: AnyRelation, queries: int, keys: int, joint: bool) -> Group | None:
    """The group of a relation, weighted or not, where a theorem gives it at any size, otherwise None."""
    if member.weights is None:
        return closed_form(member, queries, keys, joint)
    return weighted_closed_form(member.weights, queries, keys, joint)


def weighted_closed_form(weighted: WeightedRelation, queries: int, keys: int, joint: bool) -> Group | None:
    """The group where a theorem gives it at any size, otherwise None.

    - Weights can only break symmetries, so a rigid support stays rigid.
    - Over `Full()`, weights that fall (or grow) with |i - j| tell every distance, and only the identity and
      the reversal keep all distances of a line.

    >>> from erlangen.relations import ALiBi, Full
    >>> weighted_closed_form(ALiBi(0.5), 10**6, 10**6, joint=True)
    <Group 1, order 1; degree 1000000; symbolic>
    >>> weighted_closed_form(ALiBi(0.5, relation=Full()), 100, 100, joint=True)
    <Group Z2, order 2; degree 100; symbolic>
    """
    listed = supports(weighted)
    for support in dict.fromkeys(listed):
        group = closed_form(support, queries, keys, joint)
        if group is not None and group.trivial:
            return group
    if weighted.monotone and joint and keys >= 2 and all(support == Full() for support in listed):
        reversed_points = np.arange(keys - 1, -1, -1, dtype=np.int64)
        return Group(
            keys,
            Symmetric(2) if keys == 2 else Cyclic(2),
            (Move.of(reversed_points),),
            "symbolic",
            Oracle(_keeps_distances, ()),
        )
    return None


def _keeps_distances(image: np.ndarray) -> bool:
    points = np.arange(image.size)
    return np.array_equal(image, points) or np.array_equal(image, points[::-1])


def layers(member: AnyRelation, queries: int, keys: int) -> Layers:
    """The row-normalised weights as binary relations: layer t holds the edges whose class has bit t.

    Without weights this is the relation itself.

    Scaling a row is a gauge, so each row is divided by its largest weight; edges are in one class when what
    remains is equal in every head. Integers and fractions are compared exactly, and so are floats, unless
    some differ by no more than rounding: these count as equal, and `numeric` says so.

    >>> from erlangen.relations import ALiBi, Full
    >>> [layer.edges().tolist() for layer in layers(ALiBi(1, relation=Full()), 2, 2).relations]
    [[[0, 1], [1, 0]], [[0, 0], [1, 1]]]
    """
    weighted = member.weights
    if weighted is None:
        return Layers((member.on(queries, keys),), False)
    listed = supports(weighted)
    numeric = False
    relations: list[Neighborhoods] = []
    for support in dict.fromkeys(listed):
        heads = [h for h, other in enumerate(listed) if other == support]
        if len(listed) == 1:
            heads = list(range(weighted.heads))
        elif weighted.heads == 1:
            heads = [0]
        bound = support.on(queries, keys)
        edges = bound.edges()
        units = weighted._units(edges[:, 0] + (keys - queries), edges[:, 1])
        code = np.zeros(len(edges), np.int64)
        for head in heads:
            classes, rounded = weight_classes(units[head], bound.degrees)
            numeric |= rounded
            code = np.unique(code * (int(classes.max(initial=0)) + 1) + classes, return_inverse=True)[1]
        code += 1  # pairs that are not read have code 0
        for bit in range(int(code.max(initial=1)).bit_length()):
            chosen = edges[(code >> bit) & 1 == 1]
            relations.append(Neighborhoods.from_edges(queries, keys, chosen))
    return Layers(tuple(dict.fromkeys(relations)), numeric)


def unexplored(members: Sequence[AnyRelation], queries: int, keys: int, joint: bool) -> Group | None:
    """The lower bound "at least 1" when weighted members have too many edges to list, otherwise None.

    Membership is still decided, edge by edge, when it is asked.

    >>> from erlangen.relations import Full, RelativeBias
    >>> unexplored([RelativeBias([0, 1, 2, 3])], 10_000, 10_000, joint=True)
    <Group order at least 1; degree 10000; at least>
    """
    weighted = [member for member in members if member.weights is not None]
    found = {support for member in weighted for support in supports(member)}
    if sum(support.on(queries, keys).num_edges for support in found) <= MAX_EDGES:
        return None
    if not joint:
        raise SizeError(f"{weighted[0]} has more than {MAX_EDGES} edges: too many to compare their weights")
    oracle = Oracle(_keeps_weights, (tuple(members), queries, keys))
    return Group(keys, Unnamed(1, TRIVIAL, at_least=True), (), "at least", oracle)


def _keeps_weights(members: tuple[AnyRelation, ...], queries: int, keys: int, image: np.ndarray) -> bool:
    move = Move.of(image)
    bound = [layer for member in members for layer in layers(member, queries, keys).relations]
    return all(keeps(relation, move) for relation in bound)


def weight_classes(log_weights: np.ndarray, degrees: np.ndarray) -> tuple[np.ndarray, bool]:
    """A number per edge, equal exactly when the row-normalised weights are; and whether floats were rounded.

    `log_weights` lists the edges row by row, row i having `degrees[i]` of them. Rows are compared by their
    differences from the row's largest log-weight.

    >>> weight_classes(np.array([5, 6, 0, 1]), np.array([2, 2]))
    (array([0, 1, 0, 1]), False)
    >>> weight_classes(np.array([0.3, 0.1, 0.2, 0.0]), np.array([2, 2]))
    (array([1, 0, 1, 0]), True)
    """
    filled = degrees[degrees > 0]
    if filled.size == 0:
        return np.zeros(0, np.int64), False
    starts = np.cumsum(filled) - filled
    largest = np.repeat(np.maximum.reduceat(log_weights, starts), filled)
    if log_weights.dtype.kind != "f":
        return np.unique(log_weights - largest, return_inverse=True)[1], False
    tolerance = TOLERANCE[min(log_weights.dtype.itemsize, 8)] * max(1.0, float(np.abs(log_weights).max()))
    wide, largest = log_weights.astype(np.float64), largest.astype(np.float64)
    difference = wide - largest
    # What rounding lost in `difference`, exactly (Knuth): the pair is the exact difference.
    part = difference - wide
    lost = (wide - (difference - part)) + (-largest - part)
    exact = np.unique(np.stack([difference, lost]), axis=1, return_inverse=True)[1].reshape(-1)
    order = np.argsort(difference, kind="stable")
    close = np.empty(difference.size, np.int64)
    close[order] = np.cumsum(np.diff(difference[order], prepend=difference[order[0]]) > tolerance)
    return close, int(close.max()) < int(exact.max())

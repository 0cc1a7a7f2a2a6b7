"""Groups that theory gives for every size, without binding the relation."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import singledispatch
from math import inf
from typing import Any

import numpy as np

from erlangen.relations.expressions import Complement, Intersection, Transpose, Union
from erlangen.relations.neighborhoods import Neighborhoods
from erlangen.relations.orders import Empty, Full, Identity
from erlangen.relations.protocol import AnyRelation
from erlangen.relations.relation import Relation, Site
from erlangen.relations.ternary import TernaryRelation
from erlangen.relations.weighted import WeightedRelation
from erlangen.relations.windows import Ring
from erlangen.symmetry.automorphisms import require_automorphisms
from erlangen.symmetry.group import Group, Oracle
from erlangen.symmetry.group_shapes import TRIVIAL, Cyclic, Dihedral, Shape, Symmetric, product, wreath
from erlangen.symmetry.moves import Move, cycle, symmetric
from erlangen.symmetry.structures import heads_of

_CHECKED = 256
"""Up to this size binding the relation costs next to nothing, and generators are checked against it."""


@singledispatch
def closed_form(relation: AnyRelation, queries: int, keys: int, joint: bool) -> Group | None:
    """The group of a single relation at any size where a theorem gives it, otherwise None.

    Up to a few hundred positions the generators are checked against the bound relation before they are
    returned; beyond, the theorem stands alone, so that a million positions take milliseconds.

    >>> from erlangen.relations import Causal
    >>> closed_form(Causal(), 10**6, 10**6, joint=True)
    <Group 1, order 1; degree 1000000; symbolic>
    """
    raise NotImplementedError(f"no group is known of {relation!r}: it is no single relation")


@closed_form.register
def _plain(relation: Relation, queries: int, keys: int, joint: bool) -> Group | None:
    relation._require(Site(np.arange(keys - queries, keys, dtype=np.int64), keys))
    group = _joint(relation, keys) if joint else _apart(relation, queries, keys)
    if group is not None and joint and keys <= _CHECKED:
        require_automorphisms([relation.on(keys)], np.zeros(keys, np.int64), group.moves)
    return group


@closed_form.register
def _bound(relation: Neighborhoods, queries: int, keys: int, joint: bool) -> Group | None:
    relation.on(queries, keys)
    return None


@closed_form.register
def _weighted(weighted: WeightedRelation, queries: int, keys: int, joint: bool) -> Group | None:
    """The group where a theorem gives it at any size, otherwise None.

    - Weights can only break symmetries, so a rigid support stays rigid.
    - Over `Full()`, weights that fall (or grow) with |i - j| tell every distance, and only the identity and
      the reversal keep all distances of a line.

    >>> from erlangen.relations import ALiBi, Full
    >>> closed_form(ALiBi(0.5), 10**6, 10**6, joint=True)
    <Group 1, order 1; degree 1000000; symbolic>
    >>> closed_form(ALiBi(0.5, relation=Full()), 100, 100, joint=True)
    <Group Z2, order 2; degree 100; symbolic>
    """
    listed = heads_of(weighted)
    for support in dict.fromkeys(listed):
        group = closed_form(support, queries, keys, joint)
        if group is not None and group.trivial:
            return group
    if weighted.monotone and joint and keys >= 2 and all(support == Full() for support in listed):
        reversed_points = np.arange(keys - 1, -1, -1, dtype=np.int64)
        shape = Symmetric(2) if keys == 2 else Cyclic(2)
        return _symbolic(keys, shape, (Move.of(reversed_points),), _keeps_distances)
    return None


def _keeps_distances(image: np.ndarray) -> bool:
    points = np.arange(image.size)
    return np.array_equal(image, points) or np.array_equal(image, points[::-1])


@closed_form.register
def _ternary(relation: TernaryRelation, queries: int, keys: int, joint: bool) -> Group | None:
    """A product T_i = N_i x N_i has the group of its shadow at every size: each determines the other.

    >>> from erlangen.relations import WindowSquared
    >>> closed_form(WindowSquared(1, 1), 10**6, 10**6, joint=True)
    <Group Z2, order 2; degree 1000000; symbolic>
    """
    return closed_form(relation.shadow(queries), queries, keys, joint) if relation.product else None


# -------------------------------------------------------------------- queries and keys together


@singledispatch
def _joint(relation: Relation, n: int) -> Group | None:
    """The group on n positions; a relation that has classes, parts or a band needs no rule of its own."""
    if (classes := relation.classes(n)) is not None:
        return _classes(classes, n)
    if (parts := relation.parts(n)) is not None:
        return _parts(parts, n, inside=True)
    return None if relation.band is None else _band(*relation.band, n)


@_joint.register(Complement)
@_joint.register(Transpose)
def _(relation: Complement | Transpose, n: int) -> Group | None:
    return _joint(relation.operands[0], n)


def _classes(classes: Iterable[np.ndarray], n: int, sides: tuple[int, int] | None = None) -> Group:
    """The product of the symmetric groups on disjoint classes of points; all other points are fixed."""
    listed = [points for points in classes if points.size > 1]
    label = np.arange(n, dtype=np.int64)
    for points in listed:
        label[points] = points[0]
    shape = product(*(Symmetric(points.size) for points in listed))
    moves = tuple(move for points in listed for move in symmetric(points[:, None]))
    return _symbolic(n, shape, moves, _keeps_labels, label, sides=sides)


def _symbolic(
    n: int,
    shape: Shape,
    moves: tuple[Move, ...],
    test: Callable[..., Any],
    *known: Any,
    sides: tuple[int, int] | None = None,
) -> Group:
    """A group that a theorem gives; `test` says of an image whether it belongs, from what is known."""
    return Group(n, shape, moves, "symbolic", Oracle(test, known), sides)


def _keeps_labels(label: np.ndarray, image: np.ndarray) -> bool:
    return np.array_equal(label[image], label)


def _band(back: float, ahead: float, n: int) -> Group:
    """A band: positions that read all and are read by all are twins, the rest is rigid up to reversal."""
    back, ahead = min(back, n - 1), min(ahead, n - 1)
    w = int(min(back, ahead))
    if back == ahead and (w <= 0 or w >= n - 1):
        return _classes([np.arange(n)], n)
    middle = np.arange(max(n - 1 - w, 0), min(w, n - 1) + 1)
    twins = _classes([middle], n)
    if back != ahead:
        return twins
    # Reversal fixes the twins in the middle one by one: together they give a direct product.
    outside = np.setdiff1d(np.arange(n), middle) if middle.size else np.arange(n)
    reversal = Move(outside, n - 1 - outside)
    if middle.size == 0 and n % 2:
        reversal = Move(np.delete(outside, n // 2), n - 1 - np.delete(outside, n // 2))
    turned = reversal.array(n)
    shape = product(Symmetric(2) if outside.size == 2 else Cyclic(2), twins.shape)
    return _symbolic(n, shape, (reversal, *twins.moves), _keeps_twins, twins, turned)


def _keeps_twins(twins: Group, turned: np.ndarray, image: np.ndarray) -> bool:
    return twins.contains(image) or twins.contains(turned[image])


@_joint.register
def _ring(relation: Ring, n: int) -> Group:
    """A band on a circle. Let s = back + ahead + 1 be the number of keys a position reads.

    For 2 <= s <= n - 2, two rows share s - 1 keys exactly when they are neighbours on the circle, so an
    automorphism keeps the circle: a rotation, or, if back = ahead, a reflection. For s = n - 1 the
    complement is a single offset d, that is gcd(n, d) directed cycles.
    """
    back, ahead = relation.lookback, relation.lookahead
    width = back + ahead + 1
    if width >= n or width == 1:
        return _classes([np.arange(n)], n)
    points = np.arange(n, dtype=np.int64)
    if width == n - 1:
        return _circles(n, back + 1)
    rotation = cycle(points[:, None])
    if back != ahead:
        return _symbolic(n, Cyclic(n), (rotation,), _rotates)
    reflection = Move.of(n - 1 - points)
    return _symbolic(n, Dihedral(n), (rotation, reflection), _rotates_or_reflects)


def _rotates(image: np.ndarray) -> bool:
    return np.array_equal((image - np.arange(image.size)) % image.size, np.full(image.size, image[0]))


def _rotates_or_reflects(image: np.ndarray) -> bool:
    return _rotates(image) or _rotates(image.size - 1 - image)


def _circles(n: int, offset: int) -> Group:
    """All pairs but (i, i - offset): the complement is a union of equal directed cycles."""
    count = int(np.gcd(n, offset))
    length = n // count
    circles = (np.arange(count)[:, None] + offset * np.arange(length)[None, :]) % n
    points = np.arange(n, dtype=np.int64)
    following = (points + offset) % n
    inner = (cycle(circles[0][:, None]),) if length > 1 else ()
    base = Symmetric(2) if length == 2 else Cyclic(length)
    return _symbolic(n, wreath(base, Symmetric(count)), (*inner, *symmetric(circles)), _follows, following)


def _follows(following: np.ndarray, image: np.ndarray) -> bool:
    return np.array_equal(image[following], following[image])


# ------------------------------------------------------------------------- disjoint parts


def _parts(parts: dict[int, np.ndarray], n: int, *, inside: bool) -> Group:
    """Disjoint parts: equal ones are exchanged; with `inside` each is permuted freely as well."""
    parts = {length: blocks for length, blocks in parts.items() if blocks.size}
    if 1 in parts and len(parts) == 1:
        return _classes([np.arange(n)], n)
    part, place, size = (np.empty(n, np.int64) for _ in range(3))
    shapes: list[Shape] = []
    moves: list[Move] = []
    for length, blocks in parts.items():
        part[blocks] = blocks[:, :1]
        place[blocks] = np.arange(length)
        size[blocks] = length
        top = Cyclic(2) if len(blocks) == 2 and length > 1 and not inside else Symmetric(len(blocks))
        shapes.append(wreath(Symmetric(length) if inside else TRIVIAL, top))
        moves.extend(symmetric(blocks))
        if inside:
            moves.extend(symmetric(blocks[0][:, None]))
    known = part, size, None if inside else place
    return _symbolic(n, product(*shapes), tuple(moves), _keeps_parts, *known)


def _keeps_parts(part: np.ndarray, size: np.ndarray, place: np.ndarray | None, image: np.ndarray) -> bool:
    """Whole parts go to whole parts of the same length, and in rigid parts each place to the same place."""
    together = np.array_equal(part[image], part[image[part]]) and np.array_equal(size[image], size)
    return together and (place is None or np.array_equal(place[image], place))


@_joint.register
def _union(relation: Union, n: int) -> Group | None:
    """Loops everywhere, added to a relation that has none, tell nothing."""
    others = set(relation.operands) - {Identity()}
    if len(others) == 1 < len(relation.operands):
        (other,) = others
        return _joint(other, n) if "reflexive" in (~other).laws else None
    return None


@_joint.register
def _intersection(relation: Intersection, n: int) -> Group | None:
    """Loops taken from a relation that has all of them tell nothing; or parts, each read in order."""
    operands = set(relation.operands)
    others = operands - {~Identity()}
    if len(operands) != 2:
        return None
    if len(others) == 1:
        (other,) = others
        return _joint(other, n) if "reflexive" in other.laws else None
    return _ordered_parts(operands, n)


def _ordered_parts(operands: set[Relation], n: int) -> Group | None:
    """Parts, each in causal order or, where it is one run, with a one-sided window: rigid and connected."""
    split = {operand.parts(n) is not None: operand for operand in operands}
    if len(split) < 2 or (band := split[False].band) is None:
        return None
    parts = split[True].parts(n) or {}
    in_runs = all((np.diff(blocks, axis=1) == 1).all() for blocks in parts.values())
    one_sided = (band[0] == 0) != (band[1] == 0)
    return _parts(parts, n, inside=False) if one_sided and (inf in band or in_runs) else None


# ------------------------------------------------------------------------ queries and keys apart


@singledispatch
def _apart(relation: Relation, q: int, k: int) -> Group | None:
    n, sides = q + k, (q, k)
    if relation.band == (inf, inf):
        return _classes([np.arange(q), np.arange(q, n)], n, sides)
    if relation.band == (inf, 0) and q <= k:
        # Rows grow by one key each; the keys that every query reads are alike.
        return _classes([np.arange(q, n if q == 0 else n - q + 1)], n, sides)
    return None


@_apart.register
def _complement(relation: Complement, q: int, k: int) -> Group | None:
    return _apart(relation.operands[0], q, k)


@_apart.register
def _empty(relation: Empty, q: int, k: int) -> Group | None:
    return _apart(~relation, q, k)

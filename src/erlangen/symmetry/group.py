"""A group of permutations of positions: exact order, generators, orbits, membership, name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, final, overload

import numpy as np

from erlangen.errors import ParameterError
from erlangen.symmetry.components import components
from erlangen.symmetry.group_shapes import PRINTED_DIGITS, Shape
from erlangen.symmetry.moves import Move, permutation


@final
class Generators(Sequence[np.ndarray]):
    """Permutations as image arrays, each built when it is read: pi[i] is the image of i."""

    __slots__ = ("_degree", "_moves")

    def __init__(self, moves: tuple[Move, ...], degree: int) -> None:
        self._moves = moves
        self._degree = degree

    def __len__(self) -> int:
        return len(self._moves)

    @overload
    def __getitem__(self, index: int) -> np.ndarray: ...
    @overload
    def __getitem__(self, index: slice) -> Generators: ...
    def __getitem__(self, index: int | slice) -> np.ndarray | Generators:
        if isinstance(index, slice):
            return Generators(self._moves[index], self._degree)
        return self._moves[index].array(self._degree)

    def __repr__(self) -> str:
        return f"Generators(<{len(self)} permutations of {self._degree} points>)"


@dataclass(frozen=True, eq=False)
class Oracle:
    """`test(*known, image)`: whether a permutation belongs to a group, from what is known of the relation.

    The test is a function of a module, so that a group can be pickled and copied: sent to another process,
    kept in a cache.
    """

    test: Callable[..., Any]
    known: tuple[Any, ...] = ()

    def __call__(self, image: np.ndarray) -> bool:
        return bool(self.test(*self.known, image))


@final
@dataclass(frozen=True, eq=False, repr=False)
class Group:
    """A group of permutations of the points 0 .. degree - 1, as returned by `symmetry`.

    With queries and keys apart (`joint=False`) the points are the queries followed by the keys, and each
    element is a pair (tau on queries, sigma on keys): see `pair`.

    Names: `1`, `Z2`, `C8` (rotations of an 8-gon, order 8), `D8` (rotations and reflections of an 8-gon,
    order 16), `S5`, products `S3 x S4`, powers `S2^5`, wreath products `S2 wr S3` (three blocks of two,
    permuted within and among themselves, order 2!^3 * 3! = 48), otherwise `order N`. Each is a name of the
    abstract group; S2 and Z2 are the same group, written S2 where it permutes alike things and Z2 where it
    reflects.

    >>> from erlangen.relations import Bipartite, Ring
    >>> from erlangen.symmetry import symmetry
    >>> group = symmetry(Bipartite(encoder=3, decoder=4))
    >>> print(group)
    S3 x S4, order 144
    >>> group.order, [orbit.tolist() for orbit in group.orbits]
    (144, [[0, 1, 2], [3, 4, 5, 6]])
    >>> group.contains([2, 1, 0, 3, 4, 5, 6]), group.contains([3, 1, 2, 0, 4, 5, 6])
    (True, False)
    >>> symmetry(Ring(1, 1), 7).is_subgroup_of(symmetry(Ring(0, 0), 7))
    True
    """

    degree: int
    shape: Shape
    moves: tuple[Move, ...]
    evidence: str
    oracle: Callable[[np.ndarray], bool] = field()
    sides: tuple[int, int] | None = None

    # ------------------------------------------------------------------- size

    @property
    def order(self) -> int:
        """The number of elements, exact; only a lower bound when `exact` is False."""
        return self.shape.order

    @property
    def exact(self) -> bool:
        """Whether `order` and `generators` describe the whole group."""
        return self.evidence != "at least"

    @property
    def trivial(self) -> bool | None:
        """Whether only the identity belongs; None when that was not decided within the budget."""
        return False if self.moves else (True if self.exact else None)

    @property
    def name(self) -> str:
        """The group as a person would write it, `order N` where it has no such name."""
        return self.shape.name

    def __str__(self) -> str:
        name = self.name
        return name if name.startswith("order") else f"{name}, order {self.shape.order_text}"

    def __repr__(self) -> str:
        points = (
            f"degree {self.degree}"
            if self.sides is None
            else f"{self.sides[0]} queries, {self.sides[1]} keys"
        )
        return f"<Group {self}; {points}; {self.evidence}>"

    @property
    def order_text(self) -> str:
        """The order as text: an integer of up to 30 digits, beyond that an expression such as 1000000!."""
        return self.shape.order_text

    # --------------------------------------------------------------- elements

    @cached_property
    def generators(self) -> Generators:
        """Permutations that generate the group; the trivial group has none. Built when read."""
        return Generators(self.moves, self.degree)

    def pair(self, element: Any) -> tuple[np.ndarray, np.ndarray]:
        """An element as (tau on queries, sigma on keys).

        In a joint group both are the same permutation.

        >>> from erlangen.relations import Full
        >>> from erlangen.symmetry import symmetry
        >>> group = symmetry(Full(), 2, keys=3, joint=False)
        >>> print(group)
        S2 x S3, order 12
        >>> [array.tolist() for array in group.pair(group.generators[0])]
        [[1, 0], [0, 1, 2]]
        """
        image = permutation(element, self.degree)
        if self.sides is None:
            return image, image
        queries = self.sides[0]
        return image[:queries], image[queries:] - queries

    def contains(self, element: Any, keys: Any = None) -> bool:
        """Whether a permutation (image array) belongs to the group, decided exactly from the relation.

        With queries and keys apart give tau and sigma, `contains(tau, sigma)`, or one permutation of all
        points.
        """
        if keys is not None:
            if self.sides is None:
                raise ParameterError(
                    "contains(tau, sigma) is for groups with queries and keys apart (joint=False)"
                )
            tau, sigma = permutation(element, self.sides[0]), permutation(keys, self.sides[1])
            element = np.concatenate([tau, sigma + self.sides[0]])
        return bool(self.oracle(permutation(element, self.degree)))

    def __contains__(self, element: Any) -> bool:
        return self.contains(element)

    def is_subgroup_of(self, other: Group) -> bool | None:
        """Whether every element belongs to `other`; None when only a part of this group is known and fits."""
        if self.degree != other.degree or self.sides != other.sides:
            raise ParameterError(f"{self!r} and {other!r} do not act on the same points")
        if not all(other.contains(generator) for generator in self.generators):
            return False
        return True if self.exact else None

    def elements(self, limit: int = 100_000) -> Iterator[np.ndarray]:
        """All elements generated by `generators`, identity first; refuses groups of more than `limit`
        elements.

        >>> from erlangen.relations import Ring
        >>> from erlangen.symmetry import symmetry
        >>> len(list(symmetry(Ring(1, 0), 5).elements()))
        5
        """
        if self.shape.digits > PRINTED_DIGITS or self.order > limit:
            raise ParameterError(f"{self} has more than {limit} elements")
        yield from span(list(self.generators), self.degree)

    # ----------------------------------------------------------------- orbits

    @cached_property
    def orbit_of(self) -> np.ndarray:
        """For each point the smallest point of its orbit."""
        if not self.moves:
            return np.arange(self.degree, dtype=np.int64)
        points, images = ([getattr(move, side) for move in self.moves] for side in ("points", "images"))
        return components(self.degree, np.concatenate(points), np.concatenate(images))

    @cached_property
    def orbits(self) -> tuple[np.ndarray, ...]:
        """The orbits, each sorted, in the order of their smallest points."""
        label = self.orbit_of
        order = np.argsort(label, kind="stable")
        cuts = np.flatnonzero(np.diff(label[order])) + 1
        return tuple(np.split(order, cuts)) if self.degree else ()


def span(generators: list[np.ndarray], degree: int, limit: int | None = None) -> list[np.ndarray]:
    """The elements generated by permutations, breadth first; stops after about `limit` of them.

    >>> len(span([np.array([1, 2, 0]), np.array([1, 0, 2])], 3))
    6
    """
    identity = np.arange(degree, dtype=np.int64)
    seen = {identity.tobytes()}
    found = [identity]
    for element in found:
        if limit is not None and len(found) > limit:
            break
        for generator in generators:
            image = generator[element]
            key = image.tobytes()
            if key not in seen:
                seen.add(key)
                found.append(image)
    return found

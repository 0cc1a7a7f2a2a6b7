"""Finite geometries (projective and affine planes, any points and lines) and the relation of collinearity."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import permutations, product
from typing import Any, final

import numpy as np

from erlangen.errors import ParameterError
from erlangen.relations import sizes
from erlangen.relations.catalogue import written
from erlangen.relations.neighborhoods import Neighborhoods
from erlangen.relations.protocol import Draw
from erlangen.relations.ternary import TernaryRelation, Triples, affordable, points


class FiniteGeometry:
    """Points 0 .. points - 1 and lines, each a set of points."""

    @property
    def num_points(self) -> int:
        """How many points there are."""
        raise NotImplementedError

    def lines(self) -> list[tuple[int, ...]]:
        """Every line as its sorted points."""
        raise NotImplementedError

    @classmethod
    def example(cls, n: int, draw: Draw) -> FiniteGeometry:
        """One on n points, as drawn; a plane has the points that its order gives it."""
        raise NotImplementedError

    def incidence(self) -> Neighborhoods:
        """The relation point x line: point i reads line e when it lies on it. For hypergraph attention.

        >>> ProjectivePlane(2).incidence()
        Neighborhoods(queries=7, keys=7, num_edges=21)
        """
        lines = self.lines()
        pairs = [(point, number) for number, line in enumerate(lines) for point in line]
        return Neighborhoods.from_edges(self.num_points, len(lines), pairs)


@written
@final
@dataclass(frozen=True)
class Geometry(FiniteGeometry):
    """Any finite geometry, or hypergraph: its number of points and its lines.

    >>> triangle = Geometry(3, [(0, 1), (2, 1), (0, 2)])
    >>> triangle
    Geometry(points=3, line_points=((0, 1), (0, 2), (1, 2)))
    >>> triangle.incidence().num_edges
    6
    """

    points: int
    line_points: tuple[tuple[int, ...], ...]

    def __init__(self, points: int, line_points: Iterable[Iterable[int]]) -> None:
        number = sizes.count(points, "Geometry(points)")
        try:
            given = [tuple(line) for line in line_points]
            lines = [
                tuple(sorted({sizes.count(point, "a point of a line") for point in line})) for line in given
            ]
        except TypeError:
            raise ParameterError(
                "Geometry(points, line_points) takes a list of lines, each a list of points; "
                f"got {line_points!r}"
            ) from None
        for line in lines:
            if line and line[-1] >= number:
                raise ParameterError(f"Geometry(points={number}) has a line {line} with a point beyond them")
        object.__setattr__(self, "points", number)
        object.__setattr__(self, "line_points", tuple(sorted(set(lines))))

    @classmethod
    def example(cls, n: int, draw: Draw) -> Geometry:
        return cls(n, [draw.integers(0, n - 1, 0, 4) for _ in range(draw.integer(0, 4))] if n else [])

    @property
    def num_points(self) -> int:
        return self.points

    def lines(self) -> list[tuple[int, ...]]:
        return list(self.line_points)


@dataclass(frozen=True)
class _Plane(FiniteGeometry):
    """A plane over the field of `order` elements."""

    order: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "order", _prime(self.order, f"{type(self).__name__}(order)"))

    @classmethod
    def example(cls, n: int, draw: Draw) -> FiniteGeometry:
        return cls(draw.choice([2, 3]))


@written
@final
@dataclass(frozen=True)
class ProjectivePlane(_Plane):
    """The projective plane over the field of `order` elements, for a prime order q.

    q^2 + q + 1 points and as many lines of q + 1 points; every two points lie on exactly one line. Points and
    lines are the vectors of F_q^3 whose first non-zero entry is 1, in lexicographic order; a point lies on a
    line when their inner product is 0. Order 2 is the Fano plane.

    >>> ProjectivePlane(2).lines()
    [(0, 1, 2), (0, 3, 4), (0, 5, 6), (1, 3, 5), (1, 4, 6), (2, 3, 6), (2, 4, 5)]
    >>> ProjectivePlane(4)
    Traceback (most recent call last):
    ...
    erlangen.errors.ParameterError: ProjectivePlane(order) takes a prime number, got 4
    """

    @property
    def num_points(self) -> int:
        return self.order**2 + self.order + 1

    def lines(self) -> list[tuple[int, ...]]:
        q = self.order
        vectors = [
            (0, 0, 1),
            *((0, 1, c) for c in range(q)),
            *((1, b, c) for b, c in product(range(q), repeat=2)),
        ]
        array = np.array(vectors)
        # One line at a time: all inner products together would be (q^2 + q + 1)^2 numbers.
        return sorted(tuple(np.flatnonzero((array @ line) % q == 0).tolist()) for line in array)


@written
@final
@dataclass(frozen=True)
class AffinePlane(_Plane):
    """The affine plane over the field of `order` elements, for a prime order q.

    q^2 points (x, y), numbered q x + y, and q^2 + q lines of q points: y = m x + b, and x = c.

    >>> AffinePlane(2).lines()
    [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
    >>> AffinePlane(3).num_points, len(AffinePlane(3).lines())
    (9, 12)
    """

    @property
    def num_points(self) -> int:
        return self.order**2

    def lines(self) -> list[tuple[int, ...]]:
        q = self.order
        sloped = [tuple(q * x + (m * x + b) % q for x in range(q)) for m, b in product(range(q), repeat=2)]
        upright = [tuple(range(q * c, q * c + q)) for c in range(q)]
        return sorted(tuple(sorted(line)) for line in [*sloped, *upright])


@written
@final
@dataclass(frozen=True)
class Lines(TernaryRelation):
    """Collinearity: (i, j, l) for distinct points i, j, l on a common line of a finite geometry.

    >>> Lines(ProjectivePlane(2)).on().row(0)
    [(1, 2), (2, 1), (3, 4), (4, 3), (5, 6), (6, 5)]
    >>> Lines(Geometry(4, [(0, 1, 3)])).on(4).row(3)
    [(0, 1), (1, 0)]
    """

    geometry: FiniteGeometry

    def __init__(self, geometry: Any) -> None:
        if not isinstance(geometry, FiniteGeometry):
            raise ParameterError(
                "Lines(geometry) takes a ProjectivePlane, an AffinePlane or a Geometry(points, line_points), "
                f"got {geometry!r}"
            )
        points(geometry.num_points, "the points of Lines(geometry)")
        object.__setattr__(self, "geometry", geometry)

    @classmethod
    def example(cls, n: int, draw: Draw) -> Lines:
        return cls(Geometry.example(n, draw))

    def __repr__(self) -> str:
        return f"Lines({self.geometry!r})"

    @property
    def size(self) -> int:
        return self.geometry.num_points

    def _bind(self, n: int) -> Triples:
        if isinstance(self.geometry, _Plane):  # about q^2 lines of q points
            affordable(self, n, self.geometry.order**5)
        lines = self.geometry.lines()
        affordable(self, n, sum(len(line) ** 3 for line in lines))
        found = [np.empty(0, np.int64)]
        for line in lines:
            i, j, last = np.array(list(permutations(line, 3)), np.int64).reshape(-1, 3).T
            found.append((i * n + j) * n + last)
        return Triples.of_codes(n, np.unique(np.concatenate(found)))


@written
def Fano() -> Lines:
    """The Fano plane, 7 points on 7 lines of 3: `Lines(ProjectivePlane(2))`.

    >>> Fano().on().num_triples
    42
    """
    return Lines(ProjectivePlane(2))


def _prime(value: Any, what: str) -> int:
    number = sizes.count(value, what)
    # 2000 bounds the size of the plane, which lists all its lines.
    if number > 2000 or number < 2 or any(number % d == 0 for d in range(2, int(number**0.5) + 1)):
        limit = " of at most 2000" if number > 2000 else ""
        raise ParameterError(f"{what} takes a prime number{limit}, got {number}")
    return number

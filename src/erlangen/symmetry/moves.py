"""Permutations that move few points, and the exact check that one keeps a relation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from erlangen.errors import ParameterError
from erlangen.relations import intervals, lookup
from erlangen.relations.neighborhoods import Neighborhoods

_CHUNK = 1 << 23
"""Largest number of run pieces held at once."""


@dataclass(frozen=True, eq=False)
class Move:
    """The permutation that sends points[t] to images[t] and leaves all other points where they are."""

    points: np.ndarray
    images: np.ndarray

    @classmethod
    def of(cls, permutation: np.ndarray) -> Move:
        """The move of a whole permutation.

        >>> Move.of(np.array([1, 0, 2])).points
        array([0, 1])
        """
        points = np.flatnonzero(permutation != np.arange(permutation.size))
        return cls(points, permutation[points])

    def array(self, degree: int) -> np.ndarray:
        """The image array pi of the permutation of `degree` points: pi[i] is the image of i.

        >>> Move(np.array([0, 2]), np.array([2, 0])).array(4)
        array([2, 1, 0, 3])
        """
        image = np.arange(degree, dtype=np.int64)
        image[self.points] = self.images
        return image


def swap(first: np.ndarray, second: np.ndarray) -> Move:
    """Exchange two aligned blocks of points."""
    return Move(np.concatenate([first, second]), np.concatenate([second, first]))


def cycle(blocks: np.ndarray) -> Move:
    """Send each row of aligned blocks, shape (blocks, points), to the next and the last to the first.

    >>> cycle(np.array([[0], [1], [2]])).array(3)
    array([1, 2, 0])
    """
    return Move(blocks.ravel(), np.concatenate([blocks[1:], blocks[:1]]).ravel())


def symmetric(blocks: np.ndarray) -> tuple[Move, ...]:
    """Generators of the symmetric group on aligned blocks: one swap and one cycle.

    >>> len(symmetric(np.arange(2)[:, None])), len(symmetric(np.arange(5)[:, None]))
    (1, 2)
    """
    if len(blocks) < 2:
        return ()
    first = swap(blocks[0], blocks[1])
    return (first,) if len(blocks) == 2 else (first, cycle(blocks))


def permutation(values: Any, degree: int) -> np.ndarray:
    """`values` as an image array of `degree` points, or a clear error.

    >>> permutation([1, 1], 2)
    Traceback (most recent call last):
    ...
    erlangen.errors.ParameterError: an image array needs a permutation of 0..1 in integers, got [1, 1]
    """
    return lookup.permutation(values, degree, "an image array")


def keeps(neighborhoods: Neighborhoods, move: Move) -> bool:
    """Whether a permutation pi is an automorphism: (i, j) in R iff (pi i, pi j) in R. Exact.

    Only rows and columns of moved points are looked at: a pair of two fixed points is sent to itself. On
    each of them pi(N_i) = N_{pi(i)} is compared as canonical runs, so that a rotation of a wide band costs
    its runs and not its edges.

    >>> ring = Neighborhoods.from_edges(3, 3, [(0, 1), (1, 2), (2, 0)])
    >>> keeps(ring, Move.of(np.array([1, 2, 0]))), keeps(ring, Move.of(np.array([1, 0, 2])))
    (True, False)
    """
    if neighborhoods.queries != neighborhoods.keys:
        raise ParameterError(
            f"{neighborhoods} has different queries and keys: embed both into one set of points"
        )
    pieces = _pieces(move, neighborhoods.keys)
    if not _rows_agree(neighborhoods, move, pieces):
        return False
    return move.points.size == neighborhoods.queries or _rows_agree(neighborhoods.T, move, pieces)


def all_keep(neighborhoods: Neighborhoods, moves: Sequence[Move]) -> bool:
    """Whether every one of many permutations is an automorphism: `keeps`, with the small ones checked
    together.

    >>> empty = Neighborhoods.from_edges(4, 4, [])
    >>> all_keep(empty, [swap(np.array([a]), np.array([a + 1])) for a in range(3)])
    True
    """
    size, degrees, into = neighborhoods.queries, neighborhoods.degrees, neighborhoods.T.degrees
    small, large = [], []
    for move in moves:
        light = move.points.size <= 64 and int((degrees[move.points] + into[move.points]).sum()) <= 4096
        (small if light else large).append(move)
    for at in range(0, len(small), 2048):
        batch = small[at : at + 2048]
        number = np.repeat(np.arange(len(batch)), [move.points.size for move in batch])
        points = np.concatenate([move.points for move in batch])
        images = np.concatenate([move.images for move in batch])
        if not all(
            _edges_agree(form, number, points, images, size) for form in (neighborhoods, neighborhoods.T)
        ):
            return False
    return all(keeps(neighborhoods, move) for move in large)


def _edges_agree(
    form: Neighborhoods, number: np.ndarray, points: np.ndarray, images: np.ndarray, size: int
) -> bool:
    """Whether move number[t] sends every edge in row points[t] to an edge of row images[t]."""
    rows = form.restrict(points)
    lengths = rows.stops - rows.starts
    at = np.repeat(rows.run_rows, lengths)
    keys = intervals.expand(rows.starts, lengths)
    order = np.argsort(number * size + points, kind="stable")
    code = (number * size + points)[order]
    wanted = number[at] * size + keys
    place = np.minimum(np.searchsorted(code, wanted), max(code.size - 1, 0))
    sent = np.where(code[place] == wanted, images[order][place], keys) if code.size else keys
    same_degree = np.array_equal(form.degrees[points], form.degrees[images])
    return same_degree and bool(form.contains(images[at], sent).all())


_Pieces = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def _pieces(move: Move, size: int) -> _Pieces:
    """Maximal intervals on which pi is i -> i + c or i -> c - i: starts, stops, lowest image, slope."""
    order = np.argsort(move.points, kind="stable")
    points, images = move.points[order], move.images[order]
    joined = (np.diff(points) == 1) & (np.abs(np.diff(images)) == 1)  # injective, so the slope cannot turn
    first = np.flatnonzero(np.concatenate([[True], ~joined])) if points.size else np.empty(0, np.int64)
    last = np.concatenate([first[1:], [points.size]]).astype(np.int64)[: first.size] - 1
    starts, stops = points[first], points[last] + 1
    lowest = np.minimum(images[first], images[last])
    slope = np.where(images[last] < images[first], -1, 1)
    gap_starts, gap_stops = np.concatenate([[0], stops]), np.concatenate([starts, [size]])
    gap = gap_stops > gap_starts
    starts = np.concatenate([starts, gap_starts[gap]])
    stops = np.concatenate([stops, gap_stops[gap]])
    lowest = np.concatenate([lowest, gap_starts[gap]])
    slope = np.concatenate([slope, np.ones(int(gap.sum()), np.int64)])
    order = np.argsort(starts, kind="stable")
    return starts[order], stops[order], lowest[order], slope[order]


def _rows_agree(neighborhoods: Neighborhoods, move: Move, pieces: _Pieces) -> bool:
    """Whether pi(N_i) = N_{pi(i)} for every moved row i."""
    degrees = neighborhoods.degrees
    if not np.array_equal(degrees[move.points], degrees[move.images]):
        return False
    starts, _stops, _, _ = pieces
    rows = neighborhoods.restrict(move.points)
    first = np.searchsorted(starts, rows.starts, side="right") - 1
    counts = np.searchsorted(starts, rows.stops, side="left") - first
    total = np.concatenate([[0], np.cumsum(counts)])[rows.indptr]
    at = 0
    while at < rows.queries:
        upto = max(at + 1, int(np.searchsorted(total, total[at] + _CHUNK, side="right")) - 1)
        part = rows.restrict(np.arange(at, upto))
        if _image(part, pieces) != neighborhoods.restrict(move.images[at:upto]):
            return False
        at = upto
    return True


def _image(rows: Neighborhoods, pieces: _Pieces) -> Neighborhoods:
    """The same rows with every key j replaced by pi(j)."""
    starts, stops, lowest, slope = pieces
    first = np.searchsorted(starts, rows.starts, side="right") - 1
    counts = np.searchsorted(starts, rows.stops, side="left") - first
    piece = intervals.expand(first, counts)
    low = np.maximum(np.repeat(rows.starts, counts), starts[piece])
    high = np.minimum(np.repeat(rows.stops, counts), stops[piece])
    image = lowest[piece] + np.where(slope[piece] > 0, low - starts[piece], stops[piece] - high)
    which = np.repeat(rows.run_rows, counts)
    return Neighborhoods.from_runs(rows.queries, rows.keys, which, image, image + (high - low))

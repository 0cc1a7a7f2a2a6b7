"""Square tiles of a bound relation: which are full, which partial and with which bits, which empty."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from erlangen.errors import SizeError
from erlangen.relations import intervals, sizes

if TYPE_CHECKING:
    from erlangen.relations.neighborhoods import Neighborhoods  # which are cut by this

WORD = 64
"""Bits per word of a pattern."""
MOST_WORDS = 1 << 28
"""Most words of all partial tiles together, before equal ones are found: several gigabytes."""


@dataclass(frozen=True, eq=False)
class Tiles:
    """The non-empty tiles of a relation, by block row.

    Tile (b, c) covers queries [b size, (b + 1) size) and keys [c size, (c + 1) size), cut at the ragged ends.
    Block row b holds the tiles t in indptr[b]:indptr[b + 1], with key blocks columns[t] in increasing order.
    pattern[t] is -1 for a full tile (every pair inside the sizes is related), else the number of its bits in
    `patterns`: bit w of word patterns[p, i, w // 64] says whether the tile's row i reads its column w. Equal
    patterns are stored once; a window of any length has at most a handful.

    >>> from erlangen.relations import Causal
    >>> t = Causal().on(100).tiles(64)
    >>> t.columns.tolist(), t.pattern.tolist()
    ([0, 0, 1], [0, -1, 1])
    >>> t.num_full, t.num_partial, bool((t.dense() == Causal().on(100).dense()).all())
    (1, 2, True)
    """

    size: int
    queries: int
    keys: int
    indptr: np.ndarray
    columns: np.ndarray
    pattern: np.ndarray
    patterns: np.ndarray

    @property
    def block_rows(self) -> int:
        """How many blocks of queries."""
        return self.indptr.size - 1

    @property
    def block_columns(self) -> int:
        """How many blocks of keys."""
        return -(-self.keys // self.size)

    @property
    def num_full(self) -> int:
        """How many tiles are full."""
        return int((self.pattern < 0).sum())

    @property
    def num_partial(self) -> int:
        """How many tiles are neither full nor empty."""
        return int((self.pattern >= 0).sum())

    @property
    def rows(self) -> np.ndarray:
        """The block row of each tile."""
        return np.repeat(np.arange(self.block_rows, dtype=np.int64), np.diff(self.indptr))

    @cached_property
    def bits(self) -> np.ndarray:
        """The distinct patterns as booleans, shape (patterns, size, size)."""
        columns = np.arange(self.size)
        words = self.patterns[:, :, columns // WORD]
        return (words >> (columns % WORD).astype(np.uint64) & np.uint64(1)).astype(bool)

    def dense(self) -> np.ndarray:
        """The boolean matrix the tiles describe: for checks and small sizes."""
        out = np.zeros((self.block_rows * self.size, self.block_columns * self.size), bool)
        for b, c, p in zip(self.rows.tolist(), self.columns.tolist(), self.pattern.tolist(), strict=True):
            block = np.s_[b * self.size : (b + 1) * self.size, c * self.size : (c + 1) * self.size]
            out[block] = True if p < 0 else self.bits[p]
        return out[: self.queries, : self.keys]


def tile(bound: Neighborhoods, size: int) -> Tiles:
    """Cut bound neighborhoods into size x size tiles, at a cost of O(runs + tiles + partial tiles * size)."""
    size = sizes.count(size, "tiles(size)", least=1)
    block_rows, block_columns = -(-bound.queries // size), -(-bound.keys // size)
    if block_rows * block_columns >= 2**62:
        raise SizeError(f"{block_rows} x {block_columns} tiles do not fit into 64 bits")

    full, touched = _coverage(bound, size)
    full_tiles = _whole_tiles(full, size, bound.keys)
    touched_tiles = _touched_tiles(touched, size, bound.keys)
    pattern = np.full(touched_tiles.size, -1, np.int64)
    partial = ~np.isin(touched_tiles, full_tiles, assume_unique=True)
    rows, columns = np.divmod(touched_tiles, max(block_columns, 1))
    needed = int(partial.sum()) * size * -(-size // WORD)
    if needed > MOST_WORDS:
        raise SizeError(
            f"the partial tiles of {bound} in size {size} take {needed:,} words: choose a smaller one"
        )
    words = _bits(bound, size, rows[partial], columns[partial])
    pattern[partial], patterns = _deduplicate(words)
    indptr = np.searchsorted(rows, np.arange(block_rows + 1)).astype(np.int64)
    return Tiles(size, bound.queries, bound.keys, indptr, columns, pattern, patterns)


def _coverage(bound: Neighborhoods, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Per block row, as boundaries: the keys that all of its queries read, and the keys that any reads."""
    offset = bound.run_rows // size * (bound.keys + 1)
    points = np.concatenate([offset + bound.starts, offset + bound.stops])
    step = np.ones(points.size, np.int64)
    step[bound.starts.size :] = -1
    order = np.argsort(points, kind="stable")
    points = points[order]
    readers = np.cumsum(step[order])
    last = np.append(points[1:] != points[:-1], True)[: points.size]
    points, readers = points[last], readers[last]
    block = points // (bound.keys + 1)
    height = np.minimum(size, bound.queries - block * size)
    return _segments(points, readers == height), _segments(points, readers > 0)


def _segments(points: np.ndarray, member: np.ndarray) -> np.ndarray:
    change = np.diff(member.astype(np.int8), prepend=np.int8(0)) != 0
    return points[change]


def _whole_tiles(bounds: np.ndarray, size: int, keys: int) -> np.ndarray:
    """Tiles lying entirely inside the intervals; the last, ragged one needs only its own columns."""
    block_columns = -(-keys // size)
    block, start = np.divmod(bounds[::2], keys + 1)
    stop = bounds[1::2] - block * (keys + 1)
    first = -(-start // size)
    after = np.where(stop == keys, block_columns, stop // size)
    return intervals.expand(block * block_columns + first, np.maximum(after - first, 0))


def _touched_tiles(bounds: np.ndarray, size: int, keys: int) -> np.ndarray:
    block_columns = -(-keys // size)
    block, start = np.divmod(bounds[::2], keys + 1)
    stop = bounds[1::2] - block * (keys + 1)
    first, after = start // size, -(-stop // size)
    tiles = intervals.expand(block * block_columns + first, after - first)
    return tiles[np.append(True, tiles[1:] != tiles[:-1])[: tiles.size]]


def _bits(bound: Neighborhoods, size: int, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """The words of the given tiles, shape (tiles, size, words).

    Boundaries toggle membership: a word is its state at its first column, XOR all ones shifted to each
    boundary inside it. Prefix XORs over all boundaries give that for every word at once.
    """
    words = -(-size // WORD)
    bounds = bound._bounds
    column = bounds % (bound.keys + 1)
    toggle = ~np.uint64(0) << (column % size % WORD).astype(np.uint64)
    prefix = np.bitwise_xor.accumulate(np.concatenate([[np.uint64(0)], toggle]))

    query = rows[:, None] * size + np.arange(size)
    first = columns[:, None] * size + np.arange(words) * WORD
    last = np.minimum(first + WORD, (columns[:, None] + 1) * size)
    first, last = np.minimum(first, bound.keys), np.minimum(last, bound.keys)
    line = query[:, :, None] * (bound.keys + 1)
    low = np.searchsorted(bounds, line + first[:, None, :], side="right")
    high = np.searchsorted(bounds, line + last[:, None, :], side="left")
    high = np.maximum(low, high)
    state = np.where(low & 1, ~np.uint64(0), np.uint64(0))
    width = (last - first)[:, None, :].astype(np.uint64)
    inside = np.where(width == WORD, ~np.uint64(0), (np.uint64(1) << width % np.uint64(WORD)) - np.uint64(1))
    return (state ^ prefix[high] ^ prefix[low]) & inside


def _deduplicate(words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distinct patterns in order of first appearance, and the number of each tile's pattern."""
    seen: dict[bytes, int] = {}
    number = np.array([seen.setdefault(w.tobytes(), len(seen)) for w in words], np.int64)
    first = np.unique(number, return_index=True)[1] if number.size else number
    return number, words[first]

"""Neighborhoods as rows of bits: products and closures of relations whose rows fall into many short runs.

Runs are the better form for structured relations, bits for scattered ones: a product of two of these would
first list every run of every row that is read, many times more than the result has pairs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from erlangen.relations.neighborhoods import Neighborhoods  # which is composed by these

MAX_BITS = 1 << 31
"""Most pairs (queries x keys) that are held as bits: 256 MB."""
_CHUNK = 1 << 24
"""How many entries are unpacked, or words gathered, at a time."""


def fits(queries: int, keys: int) -> bool:
    """Whether so many rows and columns are held as bits."""
    return queries * keys <= MAX_BITS


def pack(rows: Neighborhoods, columns: np.ndarray | None = None) -> np.ndarray:
    """Row i as 64-bit words: key j is bit j % 64 of word j // 64; or key columns[j], with `columns` in order.

    >>> from erlangen.relations import Neighborhoods
    >>> pack(Neighborhoods.from_edges(2, 70, [(0, 1), (1, 64)])).tolist()
    [[2, 0], [0, 1]]
    """
    words = -(-rows.keys // 64)
    packed = np.zeros((rows.queries, words * 8), np.uint8)
    step = max(1, _CHUNK // max(rows.keys, 1))
    for first in range(0, rows.queries, step):
        part = rows.restrict(np.arange(first, min(first + step, rows.queries)))
        dense = part.dense() if columns is None else part.dense()[:, columns]
        bits = np.packbits(dense, axis=1, bitorder="little")
        packed[first : first + step, : bits.shape[1]] = bits
    return packed.view("<u8")


def unpack(words: np.ndarray, like: Neighborhoods, columns: np.ndarray | None = None) -> Neighborhoods:
    """Neighborhoods with the keys of `like`, as `pack` wrote them; with `columns`, key j as columns[j].

    >>> from erlangen.relations import Neighborhoods
    >>> rows = Neighborhoods.from_edges(2, 70, [(0, 1), (1, 64)])
    >>> unpack(pack(rows), rows).edges().tolist()
    [[0, 1], [1, 64]]
    """
    queries, keys, made = len(words), like.keys, type(like)
    step = max(1, _CHUNK // max(keys, 1))
    counts, starts, stops = [np.zeros(1, np.int64)], [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for first in range(0, queries, step):
        bits = np.ascontiguousarray(words[first : first + step]).view(np.uint8)
        dense = np.unpackbits(bits, axis=1, count=keys, bitorder="little")
        part = made.from_dense(dense if columns is None else dense[:, columns])
        counts.append(np.diff(part.indptr))
        starts.append(part.starts)
        stops.append(part.stops)
    indptr = np.cumsum(np.concatenate(counts))
    return made(queries, keys, indptr, np.concatenate(starts), np.concatenate(stops))


def compose(first: Neighborhoods, second: Neighborhoods) -> Neighborhoods:
    """Two steps, as `Neighborhoods.compose`: each run of a row is covered by two blocks of 2^t rows."""
    lengths = first.stops - first.starts
    levels = np.frexp(lengths.astype(np.float64))[1] - 1
    rows = first.run_rows
    block, span = pack(second), 1
    out = np.zeros((first.queries, block.shape[1]), block.dtype)
    for level in range(int(levels.max(initial=-1)) + 1):
        here = np.flatnonzero(levels == level)
        for ends in (first.starts[here], first.stops[here] - span):
            _gather(out, rows[here], block, ends)
        if level < levels.max():
            block = block[:-span] | block[span:]
            span *= 2
    return unpack(out, second)


def _gather(out: np.ndarray, rows: np.ndarray, block: np.ndarray, picked: np.ndarray) -> None:
    """out[rows[t]] |= block[picked[t]], for rows in increasing order."""
    step = max(1, _CHUNK // max(block.shape[1], 1))
    for first in range(0, rows.size, step):
        some = rows[first : first + step]
        begins = np.flatnonzero(np.diff(some, prepend=-1))
        out[some[begins]] |= np.bitwise_or.reduceat(block[picked[first : first + step]], begins, axis=0)


def close(step: Neighborhoods) -> Neighborhoods:
    """The transitive closure: strongly connected components, then their reach in topological order.

    Sets of positions are Python integers, whose bits are the positions.

    >>> from erlangen.relations import Neighborhoods
    >>> close(Neighborhoods.from_edges(4, 4, [(0, 1), (1, 2), (2, 1)])).edges().tolist()
    [[0, 1], [0, 2], [1, 1], [1, 2], [2, 1], [2, 2]]
    """
    n = step.queries
    if n == 0:
        return step
    parts = _components(_integers(pack(step)), _integers(pack(step.T)))
    # Renumbered so that a component reads itself and lower numbers only; the highest number that is left
    # then brings the most with it.
    order = np.array([position for part in parts for position in part], np.int64)
    place = np.empty(n, np.int64)
    place[order] = np.arange(n)
    reads = _integers(pack(step.restrict(order), order))
    part_of = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    reach: list[int] = []
    first = 0
    for part in parts:
        last = first + len(part)
        reached = 0
        for position in range(first, last):
            reached |= reads[position]
        left = reached & ((1 << first) - 1)
        while left:
            highest = left.bit_length() - 1
            further = reach[part_of[highest]]
            reached |= further
            left &= ~(further | 1 << highest)
        reach.append(reached)
        first = last
    words = -(-n // 64)
    packed = np.frombuffer(b"".join(r.to_bytes(words * 8, "little") for r in reach), "<u8").reshape(-1, words)
    return unpack(packed, step, place).restrict(part_of[place])


def _integers(words: np.ndarray) -> list[int]:
    return [int.from_bytes(row.tobytes(), "little") for row in words]


def _components(reads: list[int], read_by: list[int]) -> list[list[int]]:
    """Strongly connected components (Kosaraju), each after all that it reads."""
    finished: list[int] = []
    left = (1 << len(reads)) - 1
    for root in range(len(reads)):
        if not left >> root & 1:
            continue
        left &= ~(1 << root)
        stack = [root]
        while stack:
            ahead = read_by[stack[-1]] & left
            if ahead:
                found = (ahead & -ahead).bit_length() - 1
                left &= ~(1 << found)
                stack.append(found)
            else:
                finished.append(stack.pop())
    parts: list[list[int]] = []
    left = (1 << len(reads)) - 1
    for root in reversed(finished):
        if not left >> root & 1:
            continue
        left &= ~(1 << root)
        part, waiting = [root], [root]
        while waiting:
            ahead = reads[waiting.pop()] & left
            left &= ~ahead
            while ahead:
                found = (ahead & -ahead).bit_length() - 1
                ahead &= ahead - 1
                part.append(found)
                waiting.append(found)
        parts.append(part)
    return parts

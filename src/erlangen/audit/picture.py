"""Matrix pictures for the report: what is read, what is read against the expectation, what is missing."""

from __future__ import annotations

import base64
import struct
import zlib
from dataclasses import dataclass

import numpy as np

from erlangen.relations import Neighborhoods

CELLS = 128
"""Matrices with more queries or keys than this become images of so many bins a side."""
UNREAD, READ, EXTRA, MISSING = (238, 241, 244), (0, 114, 178), (213, 94, 0), (240, 196, 170)


@dataclass(frozen=True)
class Picture:
    """One matrix, rows are queries, columns keys: SVG paths of unit cells, or an image when large."""

    queries: int
    keys: int
    read: str
    extra: str
    missing: str
    padding: str
    image: str | None
    edge: tuple[int, int] | None
    """The edge to ring: the counterexample."""
    label: str
    counts: tuple[int, int, int]
    """How many edges are read, extra, missing."""

    @property
    def ring(self) -> float:
        """The radius of the ring, in cells: visible at any size."""
        return max(0.9, 0.035 * max(self.queries, self.keys))


def picture(
    bound: Neighborhoods,
    expected: Neighborhoods | None = None,
    *,
    real: np.ndarray | None = None,
    edge: tuple[int, int] | None = None,
    label: str = "",
) -> Picture:
    """Draw neighborhoods, held against the expected ones if given. Rows outside `real` are not judged.

    >>> from erlangen.relations import Causal, Full
    >>> drawn = picture(Full().on(2), Causal().on(2))
    >>> drawn.read, drawn.extra, drawn.counts
    ('M0 0h1v1h-1zM0 1h2v1h-2z', 'M1 0h1v1h-1z', (3, 1, 0))
    """
    shown = bound if expected is None else bound & expected
    extra = None if expected is None else bound - expected
    missing = None if expected is None else expected - bound
    if real is not None and not real.all():
        keep = np.flatnonzero(real)
        extra, missing = (None if part is None else _rows(part, keep) for part in (extra, missing))
        shown = bound if extra is None else bound - extra
    large = max(bound.queries, bound.keys) > CELLS
    counts = (
        shown.num_edges,
        0 if extra is None else extra.num_edges,
        0 if missing is None else missing.num_edges,
    )
    return Picture(
        bound.queries,
        bound.keys,
        "" if large else path(shown),
        "" if large or extra is None else path(extra),
        "" if large or missing is None else path(missing),
        ""
        if real is None
        else "".join(f"M0 {i}h{bound.keys}v1h-{bound.keys}z" for i in np.flatnonzero(~real)),
        image(shown, extra, missing) if large else None,
        edge,
        label,
        counts,
    )


def path(bound: Neighborhoods) -> str:
    """An SVG path with one rectangle for each run of keys.

    >>> from erlangen.relations import Identity
    >>> path(Identity().on(2))
    'M0 0h1v1h-1zM1 1h1v1h-1z'
    """
    rows = np.repeat(np.arange(bound.queries), np.diff(bound.indptr))
    runs = zip(rows.tolist(), bound.starts.tolist(), bound.stops.tolist(), strict=True)
    return "".join(f"M{start} {i}h{stop - start}v1h-{stop - start}z" for i, start, stop in runs)


def image(shown: Neighborhoods, extra: Neighborhoods | None, missing: Neighborhoods | None) -> str:
    """A data URI of a PNG: each bin as blue as the part of it that is read; any extra edge shows."""
    read = _bins(shown)[..., None]
    pixels = np.array(UNREAD) * (1 - read) + np.array(READ) * read
    for part, color in ((missing, MISSING), (extra, EXTRA)):
        if part is not None and part.num_edges:
            pixels = np.where(_bins(part)[..., None] > 0, np.array(color), pixels)
    return f"data:image/png;base64,{base64.b64encode(png(pixels.round().astype(np.uint8))).decode()}"


def png(pixels: np.ndarray) -> bytes:
    """RGB pixels of shape (height, width, 3) as a PNG file.

    >>> png(np.zeros((1, 1, 3), np.uint8))[:4]
    b'\\x89PNG'
    """
    height, width, _ = pixels.shape
    rows = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], axis=1)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows.tobytes(), 9))
        + chunk(b"IEND", b"")
    )


def _bins(bound: Neighborhoods) -> np.ndarray:
    """The part of each bin that is read, at most CELLS bins a side."""
    dense = bound.dense().astype(float)
    rows = _edges(bound.queries)
    columns = _edges(bound.keys)
    summed = np.add.reduceat(np.add.reduceat(dense, rows, axis=0), columns, axis=1)
    sizes = np.outer(np.diff([*rows, bound.queries]), np.diff([*columns, bound.keys]))
    return summed / sizes


def _edges(size: int) -> np.ndarray:
    count = min(size, CELLS)
    return np.arange(count) * size // count


def _rows(bound: Neighborhoods, rows: np.ndarray) -> Neighborhoods:
    """The edges of some rows only."""
    edges = bound.edges()
    return Neighborhoods.from_edges(bound.queries, bound.keys, edges[np.isin(edges[:, 0], rows)])

"""The matrix of a relation as SVG for pages: what is read, and what is extra or missing."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from io import BytesIO

import numpy as np

from erlangen.relations import Neighborhoods
from erlangen.show.density import block_counts, pixels
from erlangen.show.palette import BLUE, ORANGE, PEACH, UNREAD

CELLS = 128
"""Matrices with more queries or keys than this become images, at most twice as many pixels a side."""
LINED = 48
"""Up to this many queries and keys there are lines between the cells."""


@dataclass(frozen=True)
class Picture:
    """One matrix, rows are queries, columns keys: SVG paths of unit cells, or an image when large."""

    queries: int
    keys: int
    read: str
    extra: str
    missing: str
    padding: str
    image: str
    edge: tuple[int, int] | None
    """The edge to ring: the counterexample."""
    label: str
    counts: tuple[int, int, int]
    """How many edges are read, extra, missing."""

    def svg(self, size: int) -> str:
        """The element, its longer side so many pixels; a page says in its style how each class looks.

        >>> from erlangen.relations import Causal
        >>> print(picture(Causal().on(2)).svg(100))
        <svg viewBox="0 0 2 2" width="100" height="100" overflow="visible" role="img"
             aria-label="2 queries by 2 keys, 3 edges read">
        <rect width="2" height="2" class="unread"/>
        <path d="M0 0h1v1h-1zM0 1h2v1h-2z" class="read"/>
        <path d="M0 1h2M1 0v2" class="grid"/>
        </svg>
        """
        n, m = self.queries, self.keys
        wide = max(n, m, 1)
        lines = [f"M0 {i}h{m}" for i in range(1, n)] + [f"M{j} 0v{n}" for j in range(1, m)]
        paths = {
            "read": self.read,
            "missing": self.missing,
            "extra": self.extra,
            "padding": self.padding,
            "grid": "".join(lines) if wide <= LINED else "",
        }
        parts = [
            f'<svg viewBox="0 0 {m} {n}" width="{round(size * m / wide)}" height="{round(size * n / wide)}" '
            'overflow="visible" role="img"',
            f'     aria-label="{n} queries by {m} keys, {self.counts[0] + self.counts[1]} edges read">',
            f'<rect width="{m}" height="{n}" class="unread"/>',
            self.image,
            *(f'<path d="{path}" class="{name}"/>' for name, path in paths.items() if path),
        ]
        if self.edge is not None:
            radius = max(0.9, 0.035 * wide)  # visible at any size
            i, j = self.edge
            parts.append(f'<circle cx="{j + 0.5}" cy="{i + 0.5}" r="{radius}" class="ring"/>')
        return "\n".join([*filter(None, parts), "</svg>"])


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
    nothing = bound - bound
    extra, missing = (nothing, nothing) if expected is None else (bound - expected, expected - bound)
    if real is not None:
        extra, missing = _rows(extra, real), _rows(missing, real)
    shown = bound - extra
    large = max(bound.queries, bound.keys) > CELLS
    read, wrong, absent = ("" if large else path(part) for part in (shown, extra, missing))
    ignored = () if real is None else np.flatnonzero(~real)
    return Picture(
        bound.queries,
        bound.keys,
        read,
        wrong,
        absent,
        "".join(f"M0 {i}h{bound.keys}v1h-{bound.keys}z" for i in ignored),
        image(shown, extra, missing) if large else "",
        edge,
        label,
        (shown.num_edges, extra.num_edges, missing.num_edges),
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


def image(shown: Neighborhoods, extra: Neighborhoods, missing: Neighborhoods) -> str:
    """An SVG image: each block as blue as the part of it that is read; any extra or missing edge shows."""
    from matplotlib.colors import to_rgb  # only pages with a large matrix need matplotlib
    from matplotlib.image import imsave

    block, share = pixels(shown, 2 * CELLS)
    colors = to_rgb(UNREAD) + share[..., None] * np.subtract(to_rgb(BLUE), to_rgb(UNREAD))
    for part, color in ((missing, PEACH), (extra, ORANGE)):
        colors[block_counts(part, block, block) > 0] = to_rgb(color)
    file = BytesIO()
    imsave(file, colors, format="png")
    height, width = (block * blocks for blocks in share.shape)
    return (
        f'<image href="data:image/png;base64,{b64encode(file.getvalue()).decode()}" width="{width}" '
        f'height="{height}" preserveAspectRatio="none" style="image-rendering: pixelated"/>'
    )


def _rows(bound: Neighborhoods, kept: np.ndarray) -> Neighborhoods:
    """The edges of some rows only."""
    edges = bound.edges()
    return Neighborhoods.from_edges(bound.queries, bound.keys, edges[kept[edges[:, 0]]])

"""Pictures of relations: the matrix and the graph side by side, as files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil
from pathlib import Path
from textwrap import fill

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from erlangen.errors import SizeError
from erlangen.relations.neighborhoods import Neighborhoods
from erlangen.show.binding import Bound
from erlangen.show.density import block_areas, block_counts
from erlangen.show.graph import NODES, draw_graph
from erlangen.show.style import DENSITY, INK, PAPER, QUIET, UNREAD, key_color

PIXELS = 500
"""Larger matrices are drawn as densities of blocks, at most this many a side."""
BESIDE = 4
"""Up to this many members of a family are drawn with their graphs below them."""
MOST_PANELS = 36
"""Most members of a family drawn; the picture says when some are left out."""


def figure(bound: Sequence[Bound], title: str | None = None) -> Figure:
    """The picture of a relation, or of every member of a family: matrix and graph.

    >>> from erlangen.relations import Causal
    >>> drawn = figure([("", Causal(), Causal().on(4))])
    >>> [axes.get_title() for axes in drawn.axes]
    ['matrix: 10 of 16 pairs', 'graph: arrows run from key to query']
    """
    for _, relation, neighborhoods in bound:
        if neighborhoods.queries == 0 or neighborhoods.keys == 0:
            sizes = f"{neighborhoods.queries} queries x {neighborhoods.keys} keys"
            raise SizeError(f"{relation} on {sizes} has no pairs to draw")
    shown = list(bound[:MOST_PANELS])
    if len(shown) == 1:
        picture = _sheet((9.0, 4.7))
        _pair(picture.subplots(1, 2), shown[0])
    elif len(shown) <= BESIDE:
        picture = _sheet((3.7 * len(shown), 7.9))
        for column, member in zip(picture.subplots(2, len(shown)).T, shown, strict=True):
            _pair(column, member)
    else:
        columns = min(ceil(len(shown) ** 0.5), 6)
        rows = ceil(len(shown) / columns)
        picture = _sheet((2.6 * columns, 2.9 * rows + 0.2))
        panels = picture.subplots(rows, columns, squeeze=False).flat
        for axes, (place, _, neighborhoods) in zip(panels, shown, strict=False):
            draw_matrix(axes, neighborhoods, place)
        for unused in panels[len(shown) :]:
            unused.axis("off")
    _, relation, neighborhoods = bound[0]
    heading = title or (repr(relation) if len(bound) == 1 else f"{len(bound)} relations")
    sizes = f"{neighborhoods.queries:,} queries, {neighborhoods.keys:,} keys"
    if title and len(bound) == 1:
        sizes = f"{relation!r} on {sizes}"
    if len(bound) > len(shown):
        sizes += f"; the first {len(shown)} of {len(bound)} relations"
    picture.suptitle(f"{_wrapped(heading, 84)}\n{sizes}", fontsize=11, color=INK, parse_math=False)
    return picture


def save(bound: Sequence[Bound], paths: Sequence[Path], title: str | None = None) -> None:
    """Draw once and write every path; the ending of each says PNG or SVG. Equal input gives equal files."""
    with matplotlib.rc_context({"svg.hashsalt": "erlangen"}):
        picture = figure(bound, title)
        for path in paths:
            dated = {"Date": None} if path.suffix.lower() == ".svg" else None
            picture.savefig(path, dpi=130, metadata=dated)


def _sheet(size: tuple[float, float]) -> Figure:
    return Figure(figsize=size, layout="constrained", facecolor=PAPER)


def _wrapped(text: str, width: int) -> str:
    return fill(text, width, max_lines=3, placeholder=" ...")


def _pair(axes: Iterable[Axes], member: Bound) -> None:
    """Matrix and graph of one relation."""
    place, relation, neighborhoods = member
    matrix, graph = axes
    draw_matrix(matrix, neighborhoods, f"{place}\n{_wrapped(repr(relation), 46)}" if place else "")
    draw_graph(graph, relation, neighborhoods)


def draw_matrix(axes: Axes, bound: Neighborhoods, heading: str) -> None:
    """The matrix of a relation on an axis, cell by cell or, if it is large, as densities; with its count.

    >>> from erlangen.relations import Causal
    >>> axes = Figure().subplots()
    >>> draw_matrix(axes, Causal().on(3), "")
    >>> axes.get_title()
    'matrix: 6 of 9 pairs'
    """
    if max(bound.queries, bound.keys) <= NODES:
        _cells(axes, bound)
    else:
        _densities(axes, bound)
    axes.set_xlabel("key j (read)", fontsize=8, color=INK)
    axes.set_ylabel("query i (reads)", fontsize=8, color=INK)
    axes.xaxis.set_label_position("top")
    axes.xaxis.tick_top()
    axes.tick_params(labelsize=7, colors=INK, length=2)
    for spine in axes.spines.values():
        spine.set_color(QUIET)
    empty = bound.empty_queries()
    told = f"matrix: {bound.num_edges:,} of {bound.queries * bound.keys:,} pairs"
    if empty.size:
        told += f", {empty.size:,} empty {'row' if empty.size == 1 else 'rows'}"
    axes.set_title(f"{heading}\n{told}" if heading else told, fontsize=9, color=INK, parse_math=False)


def _cells(axes: Axes, bound: Neighborhoods) -> None:
    image = np.empty((bound.queries, bound.keys, 3))
    image[:] = to_rgb(UNREAD)
    dense = bound.dense()
    for j in range(bound.keys):
        image[dense[:, j], j] = key_color(j, bound.keys)
    axes.imshow(image, interpolation="nearest", aspect="equal")
    # White lines between cells: minor ticks lie on the borders.
    axes.set_xticks(np.arange(bound.keys + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(bound.queries + 1) - 0.5, minor=True)
    axes.grid(which="minor", color=PAPER, lw=1.6 if bound.keys <= 12 else 0.8)
    axes.tick_params(which="minor", length=0)
    step = 1 if max(bound.keys, bound.queries) <= 16 else 2
    axes.set_xticks(range(0, bound.keys, step))
    axes.set_yticks(range(0, bound.queries, step))


def _densities(axes: Axes, bound: Neighborhoods) -> None:
    block = max(1, ceil(max(bound.queries, bound.keys) / PIXELS))
    counts, areas = block_counts(bound, block, block), block_areas(bound, block, block)
    # A block with a single pair must still be seen, so every tint but "none" starts at a quarter.
    tint = np.where(counts == 0, 0.0, 0.25 + 0.75 * counts / np.maximum(areas, 1))
    extent = (-0.5, counts.shape[1] * block - 0.5, counts.shape[0] * block - 0.5, -0.5)
    lengths = sorted((bound.queries, bound.keys))
    aspect = "equal" if lengths[1] <= 4 * lengths[0] else "auto"
    axes.imshow(tint, cmap=DENSITY, vmin=0, vmax=1, interpolation="nearest", aspect=aspect, extent=extent)
    axes.set_xlim(-0.5, bound.keys - 0.5)
    axes.set_ylim(bound.queries - 0.5, -0.5)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    if block > 1:
        note = f"one pixel = {block} x {block} pairs; darker = more of them read"
        axes.text(0.5, -0.03, note, transform=axes.transAxes, ha="center", va="top", fontsize=7, color=INK)

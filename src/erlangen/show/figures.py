"""Pictures of relations as files: the matrices, and beside them graph, weights by distance, or triples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, to_rgb
from matplotlib.figure import Figure

from erlangen.errors import SizeError
from erlangen.relations.neighborhoods import Neighborhoods
from erlangen.relations.weighted import WeightedNeighborhoods
from erlangen.show.affordable import Bound
from erlangen.show.density import pixels, shares
from erlangen.show.graph import NODES, draw_graph
from erlangen.show.palette import BLUE, INK, PAPER, UNREAD
from erlangen.show.polygons import draw_triples
from erlangen.show.style import DENSITY, frame, key_color, sheet, whole_numbers, wrapped, write

PIXELS = 500
"""Larger matrices are drawn as densities of blocks, at most this many a side."""
SHADED = 512
"""Weights of more positions a side are not drawn; their log-weights by distance are."""
BESIDE = 4
"""Up to this many members of a family are drawn with their graphs below them."""
MOST_PANELS = 36
"""Most members of a family drawn; the picture says when some are left out."""
MOST_HEADS = 8
"""Most heads of weights drawn; the picture says when some are left out."""

View = Callable[[Axes], None]


def figure(bound: Sequence[Bound], title: str | None = None) -> Figure:
    """The picture of a relation, or of every member of a family: matrix and graph.

    Weights are one matrix for each head, and their log-weights by j - i where these depend on nothing else.

    >>> from erlangen.relations import ALiBi, Causal, Fano
    >>> def titles(relation, n):
    ...     return [axes.get_title() for axes in figure([("", relation, relation.on(n))]).axes]
    >>> titles(Causal(), 4)
    ['matrix: 10 of 16 pairs', 'graph: arrows run from key to query']
    >>> titles(ALiBi([1, 2]), 6)
    ['head 0', 'head 1', 'log-weight by j - i']
    >>> titles(Fano(), 7)
    ['shadow: j is in some pair of T_i\\nmatrix: 42 of 49 pairs', '7 sets of positions']
    """
    shown = list(bound[:MOST_PANELS])
    views = [_views(*member, brief=len(shown) > BESIDE) for member in shown]
    if len(shown) == 1 and len(views[0]) <= 2:
        panels, columns, width, height = views[0], len(views[0]), 9.0 / len(views[0]), 4.7
    elif len(shown) == 1:
        panels, columns, width, height = views[0], min(len(views[0]), 4), 3.1, 3.5
    elif len(shown) <= BESIDE:
        panels = [view for row in zip(*views, strict=True) for view in row]
        columns, width, height = len(shown), 3.7, 3.95
    else:
        panels, columns = [first for first, *_ in views], min(ceil(len(shown) ** 0.5), 6)
        width, height = 2.6, 2.95
    rows = ceil(len(panels) / columns)
    picture = sheet(width * columns, height * rows)
    places = list(picture.subplots(rows, columns, squeeze=False).flat)
    for axes, view in zip(places, panels, strict=False):
        view(axes)
    for unused in places[len(panels) :]:
        unused.axis("off")
    picture.suptitle(_heading(bound, len(shown), title), fontsize=11, color=INK, parse_math=False)
    return picture


def save(bound: Sequence[Bound], paths: Sequence[Path], title: str | None = None) -> None:
    """Draw once and write every path; the ending of each says PNG or SVG."""
    write(figure(bound, title), paths)


def _views(place: str, relation: Any, bound: Any, *, brief: bool) -> list[View]:
    """What is drawn of one relation: its matrices, and what shows it best beside them."""
    if min(_size(relation, bound)) == 0:
        raise SizeError(f"{relation} has no pairs to draw on {_sizes(relation, bound)}")
    if relation.arity == 3:
        shadow = bound.shadow().on(bound.n)
        heading = "shadow: j is in some pair of T_i"
        return [partial(draw_matrix, bound=shadow, heading=heading), partial(draw_triples, bound=bound)]
    if relation.weights is None:
        heading = place if brief or not place else f"{place}\n{wrapped(repr(relation), 46)}"
        graph = partial(draw_graph, relation=relation, bound=bound)
        return [partial(draw_matrix, bound=bound, heading=heading), graph]
    views: list[View] = []
    if max(_size(relation, bound)) <= SHADED:
        names = [f"head {head}" for head in range(bound.heads)] if bound.heads > 1 else ["weights"]
        for head, name in enumerate(names[:MOST_HEADS]):
            views.append(
                partial(draw_matrix, bound=bound.neighborhoods, heading=name, weights=shares(bound, head))
            )
    if bound.toeplitz is not None:
        views.append(partial(_by_distance, bound=bound))
    if not views:
        sizes = _sizes(relation, bound)
        raise SizeError(f"{relation} on {sizes} is too large to draw; at most {SHADED} positions are")
    return views


def _size(relation: Any, bound: Any) -> tuple[int, int]:
    return (bound.n, bound.n) if relation.arity == 3 else (bound.queries, bound.keys)


def _sizes(relation: Any, bound: Any) -> str:
    if relation.arity == 3:
        return f"{bound.n:,} positions, {bound.num_triples:,} triples"
    return f"{bound.queries:,} queries, {bound.keys:,} keys"


def _heading(bound: Sequence[Bound], shown: int, title: str | None) -> str:
    """The title, or else the relation; its sizes; and what is left out."""
    _, relation, first = bound[0]
    several = f"{len(bound)} relations" if len(bound) > 1 else ""
    sizes = _sizes(relation, first)
    if title and not several:
        sizes = f"{wrapped(repr(relation), 84)} on {sizes}"
    if shown < len(bound):
        sizes += f"; the first {shown} of {several}"
    if relation.weights is not None:
        if first.heads > MOST_HEADS and max(_size(relation, first)) <= SHADED:
            sizes += f"; the first {MOST_HEADS} of {first.heads} heads"
        sizes += "\ndarker: nearer to the largest weight of the row; grey: not read"
    return f"{wrapped(title or several or repr(relation), 84)}\n{sizes}"


# ------------------------------------------------------------------------ matrices


def draw_matrix(axes: Axes, bound: Neighborhoods, heading: str, weights: np.ndarray | None = None) -> None:
    """The matrix of a relation on an axis, cell by cell or, if it is large, as densities; with its count.

    With `weights`, the parts that they are of the largest in their row, it is drawn in shades of them.

    >>> from erlangen.relations import Causal
    >>> axes = Figure().subplots()
    >>> draw_matrix(axes, Causal().on(3), "")
    >>> axes.get_title()
    'matrix: 6 of 9 pairs'
    """
    empty = bound.empty_queries()
    told = f"matrix: {bound.num_edges:,} of {bound.queries * bound.keys:,} pairs"
    if empty.size:
        told += f", {empty.size:,} empty {'row' if empty.size == 1 else 'rows'}"
    if weights is not None:
        told = heading
        _shades(axes, weights)
    else:
        told = f"{heading}\n{told}" if heading else told
        (_cells if max(bound.queries, bound.keys) <= NODES else _densities)(axes, bound)
    frame(axes, told, "key j (read)", "query i (reads)")
    axes.xaxis.set_label_position("top")
    axes.xaxis.tick_top()


def draw_icon(axes: Axes, bound: Neighborhoods, extent: tuple[float, float, float, float]) -> None:
    """The matrix in one colour and without words, within (left, right, bottom, top) of the axes."""
    colors = ListedColormap([UNREAD, BLUE])
    axes.imshow(bound.dense(), cmap=colors, vmin=0, vmax=1, extent=extent, aspect="auto", zorder=3)


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
    block, share = pixels(bound, PIXELS)
    # A block with a single pair must still be seen, so every tint but "none" starts at a quarter.
    tint = np.where(share == 0, 0.0, 0.25 + 0.75 * share)
    extent = (-0.5, share.shape[1] * block - 0.5, share.shape[0] * block - 0.5, -0.5)
    lengths = sorted((bound.queries, bound.keys))
    aspect = "equal" if lengths[1] <= 4 * lengths[0] else "auto"
    axes.imshow(tint, cmap=DENSITY, vmin=0, vmax=1, interpolation="nearest", aspect=aspect, extent=extent)
    axes.set_xlim(-0.5, bound.keys - 0.5)
    axes.set_ylim(bound.queries - 0.5, -0.5)
    whole_numbers(axes)
    if block > 1:
        note = f"one pixel = {block} x {block} pairs; darker = more of them read"
        axes.text(0.5, -0.03, note, transform=axes.transAxes, ha="center", va="top", fontsize=7, color=INK)


def _shades(axes: Axes, weights: np.ndarray) -> None:
    # The least weight that is read must still differ from what is not.
    shade = DENSITY.with_extremes(bad=UNREAD)
    axes.imshow(0.2 + 0.8 * weights, cmap=shade, vmin=0, vmax=1, interpolation="nearest", aspect="equal")
    whole_numbers(axes)


def _by_distance(axes: Axes, bound: WeightedNeighborhoods) -> None:
    """The log-weights of every head by key minus query."""
    assert bound.toeplitz is not None
    used = np.flatnonzero(bound.used_offsets())
    first = used.min(initial=bound.toeplitz.shape[1])
    colors = colormaps["viridis"](np.linspace(0.05, 0.85, bound.heads))
    for head in range(bound.heads):
        # Steps, for there is nothing between two positions; gaps where nothing is read.
        line = np.full(used.max(initial=first) - first + 1, np.nan)
        line[used - first] = bound.toeplitz[head, used]
        axes.plot(np.arange(line.size) + first - (bound.keys - 1), line, drawstyle="steps-mid",
                  color=colors[head], lw=1.4, label=f"head {head}")  # fmt: skip
    frame(axes, "log-weight by j - i", "key minus query, j - i")
    whole_numbers(axes)
    if 1 < bound.heads <= MOST_HEADS:
        axes.legend(fontsize=7, frameon=False)

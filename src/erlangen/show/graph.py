"""The graph of a bound relation on an axis: arrows from the key that is read to the query that reads."""

from __future__ import annotations

from math import atan2, cos, dist, sin
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.patches import Circle, FancyArrowPatch
from matplotlib.path import Path as Curve

from erlangen.relations import Relation
from erlangen.relations.neighborhoods import Neighborhoods
from erlangen.show.layout import Layout, Point, arrange
from erlangen.show.palette import BLUE, INK, ORANGE, PAPER, QUIET
from erlangen.show.style import frame, key_color, text_color

NODES = 24
"""Up to this many positions nodes have numbers and edges have arrows."""
CHORDS = 160
"""Up to this many positions edges are chords of a circle; beyond, degrees are plotted."""
MOST_CHORDS = 4_000


def draw_graph(axes: Axes, relation: Relation, bound: Neighborhoods) -> None:
    """Draw the graph in the form that can be read at this size, and say which in the title.

    >>> from matplotlib.figure import Figure
    >>> from erlangen.relations import Causal
    >>> axes = Figure().subplots()
    >>> draw_graph(axes, Causal(), Causal().on(500))
    >>> axes.get_title()
    'degrees'
    """
    largest = max(bound.queries, bound.keys)
    if largest <= NODES:
        _arrows(axes, arrange(relation, bound), bound)
    elif largest <= CHORDS and bound.queries == bound.keys:
        _chords(axes, bound)
    else:
        _degrees(axes, bound)


# ------------------------------------------------------------- nodes and arrows


def _arrows(axes: Axes, layout: Layout, bound: Neighborhoods) -> None:
    axes.set_title("graph: arrows run from key to query", fontsize=9, color=INK)
    axes.set_aspect("equal")
    axes.axis("off")
    edges = {(i, j) for i, j in bound.edges().tolist()}
    radius, bend = _radius(layout), _bend(layout, bound)
    crowded = len(edges) > 60
    backward = any(i < j for i, j in edges)
    for i, j in sorted(edges):
        start, end = layout.keys[j], layout.queries[i]
        color = key_color(j, bound.keys)
        if layout.joint and i == j:
            _loop(axes, start, _outward(layout, start, below=not backward), radius, color)
            continue
        both = layout.joint and (j, i) in edges
        if both and i < j:
            continue
        straight = (both and layout.kind == "circle") or (layout.kind == "grid" and dist(start, end) < 1.5)
        style = {"alpha": 0.55, "lw": 0.8} if crowded else {"alpha": 0.9, "lw": 1.2}
        _arrow(axes, start, end, radius, 0.0 if straight else bend, both=both, color=color, **style)
    span = _frame(axes, layout, radius, bend, bound)
    size = float(np.clip(230 * radius / span, 5, 9))
    empty = set(bound.empty_queries().tolist())
    for j, place in enumerate(layout.keys):
        name, dashed = (str(j), j in empty) if layout.joint else (f"k{j}", False)
        _node(axes, place, radius, name, size, key_color(j, bound.keys), empty=dashed)
    if not layout.joint:
        for i, place in enumerate(layout.queries):
            _node(axes, place, radius, f"q{i}", size, (1.0, 1.0, 1.0), empty=i in empty)


def _radius(layout: Layout) -> float:
    points = [*layout.keys, *(() if layout.joint else layout.queries)]
    nearest = min((dist(a, b) for k, a in enumerate(points) for b in points[:k]), default=1.0)
    return min(0.32 * nearest, {"circle": 0.16, "sides": 0.16, "line": 0.3, "grid": 0.24}[layout.kind])


def _bend(layout: Layout, bound: Neighborhoods) -> float:
    """How far the control point of an arrow lies beside its middle, in lengths of the arrow."""
    if layout.kind != "line":
        return {"circle": 0.12, "sides": 0.0, "grid": 0.25}[layout.kind]
    return -min(1.6, 0.75 * (bound.keys - 1) / _longest(bound))


def _longest(bound: Neighborhoods) -> int:
    edges = bound.edges()
    return int(np.abs(edges[:, 0] - edges[:, 1]).max(initial=1))


def _outward(layout: Layout, place: Point, *, below: bool) -> float:
    """The direction in which a self loop leaves its node: away from the arrows."""
    if layout.kind == "line":
        return -np.pi / 2 if below else np.pi / 2
    if layout.kind == "grid":
        return 3 * np.pi / 8
    return atan2(place[1], place[0])


def _arrow(
    axes: Axes, start: Point, end: Point, radius: float, bend: float, *, both: bool, **style: Any
) -> None:
    """From rim to rim along a quadratic curve; its middle lies half as far out as the control point."""
    (x0, y0), (x1, y1) = start, end
    control = (x0 + x1) / 2 + bend * (y1 - y0), (y0 + y1) / 2 - bend * (x1 - x0)
    path = Curve(
        [_towards(start, control, radius * 1.08), control, _towards(end, control, radius * 1.08)], [1, 3, 3]
    )
    heads = "<|-|>" if both else "-|>"
    size = 7 if dist(start, end) > 4 * radius else 5
    axes.add_patch(FancyArrowPatch(path=path, arrowstyle=heads, mutation_scale=size, zorder=1, **style))


def _towards(point: Point, target: Point, distance: float) -> Point:
    angle = atan2(target[1] - point[1], target[0] - point[0])
    return point[0] + distance * cos(angle), point[1] + distance * sin(angle)


def _loop(axes: Axes, place: Point, angle: float, radius: float, color: tuple[float, float, float]) -> None:
    def at(turn: float, far: float) -> Point:
        return place[0] + far * radius * cos(angle + turn), place[1] + far * radius * sin(angle + turn)

    path = Curve([at(-0.5, 1.05), at(-0.6, 2.7), at(0.6, 2.7), at(0.5, 1.05)], [1, 4, 4, 4])
    axes.add_patch(
        FancyArrowPatch(path=path, arrowstyle="-|>", mutation_scale=6, lw=1.1, color=color, zorder=1)
    )


def _node(
    axes: Axes,
    place: Point,
    radius: float,
    name: str,
    size: float,
    color: tuple[float, float, float],
    *,
    empty: bool,
) -> None:
    """A query that reads nothing has a dashed rim."""
    rim = INK if empty or color == (1.0, 1.0, 1.0) else color
    dashes = "--" if empty else "-"
    axes.add_patch(Circle(place, radius, facecolor=color, edgecolor=rim, linestyle=dashes, lw=1.3, zorder=2))
    axes.text(*place, name, ha="center", va="center", fontsize=size, color=text_color(color), zorder=3)


def _frame(axes: Axes, layout: Layout, radius: float, bend: float, bound: Neighborhoods) -> float:
    """Set square limits around nodes, loops and arcs; the length of their side."""
    points = np.array([*layout.keys, *layout.queries])
    (left, low), (right, high) = points.min(axis=0) - 2.5 * radius, points.max(axis=0) + 2.5 * radius
    if layout.kind == "line":
        arc = 0.5 * abs(bend) * _longest(bound)
        backward = (bound.edges()[:, 0] < bound.edges()[:, 1]).any()
        low, high = (low - arc, high) if backward else (low, high + arc)
    side = float(max(right - left, high - low))
    axes.set_xlim((left + right - side) / 2, (left + right + side) / 2)
    axes.set_ylim((low + high - side) / 2, (low + high + side) / 2)
    return side


# ------------------------------------------------------------------ larger sizes


def _chords(axes: Axes, bound: Neighborhoods) -> None:
    n = bound.keys
    edges = bound.edges()
    edges = edges[edges[:, 0] != edges[:, 1]]
    total = len(edges)
    if total > MOST_CHORDS:
        edges = edges[np.linspace(0, total - 1, MOST_CHORDS).astype(int)]
    angle = 2 * np.pi * np.arange(n) / n
    places = np.stack([np.sin(angle), np.cos(angle)], axis=1)
    colors = np.array([key_color(j, n) for j in range(n)])
    alpha = float(np.clip(250 / max(len(edges), 1), 0.12, 0.6))
    lines = LineCollection(places[edges[:, ::-1]].tolist(), colors=colors[edges[:, 1]].tolist(), alpha=alpha)
    lines.set_linewidth(0.7)
    axes.add_collection(lines)
    axes.scatter(places[:, 0], places[:, 1], s=9, c=colors, zorder=2)
    for j in range(0, n, max(1, round(n / 8))):
        axes.text(
            1.1 * places[j, 0], 1.1 * places[j, 1], str(j), ha="center", va="center", fontsize=7, color=INK
        )
    axes.set_aspect("equal")
    axes.axis("off")
    axes.set_xlim(-1.2, 1.2)
    axes.set_ylim(-1.2, 1.2)
    drawn = f"{len(edges):,} of {total:,} edges" if len(edges) < total else f"{total:,} edges"
    axes.set_title(f"graph: {drawn}, loops left out, coloured by key", fontsize=9, color=INK)


def _degrees(axes: Axes, bound: Neighborhoods) -> None:
    change = np.zeros(bound.keys + 1, np.int64)
    np.add.at(change, bound.starts, 1)
    np.add.at(change, bound.stops, -1)
    readers = np.cumsum(change)[:-1]
    for values, color, label, style in (
        (bound.degrees, BLUE, "keys that query i reads", "-"),
        (readers, ORANGE, "queries that read key j", "--"),
    ):
        if values.size:
            _range_line(axes, values, color, label, style)
    scale = ""
    both = np.concatenate([bound.degrees, readers])
    if both.any() and both.max() > 20 * np.median(both[both > 0]):
        axes.set_yscale("symlog", linthresh=1)
        scale = " (logarithmic)"
    frame(axes, "degrees", "position i or j", f"how many{scale}")
    axes.set_ylim(bottom=0)
    axes.margins(x=0)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.legend(fontsize=7, loc="best", facecolor=PAPER, edgecolor=QUIET)


def _range_line(axes: Axes, values: np.ndarray, color: str, label: str, style: str) -> None:
    """A line while every position has its own pixel; beyond, the range of values from block to block."""
    block = -(-values.size // 1000)
    first = np.arange(0, values.size, block)
    low, high = np.minimum.reduceat(values, first), np.maximum.reduceat(values, first)
    axes.plot(first, high, color=color, lw=1.4, ls=style, label=label)
    if block > 1:
        axes.fill_between(first, low, high, color=color, alpha=0.3, lw=0)

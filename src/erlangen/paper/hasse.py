"""The Hasse diagrams of the three orders, with what the paper's ranking has the other way round."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from erlangen.paper.three_orders import RANKED, Edge, Hierarchy, Node
from erlangen.show.figures import draw_icon
from erlangen.show.palette import BLUE, INK, ORANGE, PAPER, QUIET
from erlangen.show.style import write
from erlangen.taxonomy.table1 import TABLE1

TITLES = {
    "family": ("By family", "an arrow leads to a special case"),
    "mask": ("By mask inclusion", "an arrow leads to fewer pairs"),
    "symmetry": ("By symmetry", "an arrow leads to a smaller group"),
}
# Sizes in inches: every diagram has its own number of nodes, and all boxes are alike.
BOX_WIDE, BOX_HIGH = 2.04, 0.6
ACROSS, DOWN = 2.2, 1.0
TOP, BOTTOM = 1.45, 1.15
MATRIX = 0.44


def levels(shown: Hierarchy) -> dict[str, int]:
    """The level of each node: the length of the longest chain above it.

    >>> from erlangen.paper import hierarchy
    >>> levels(hierarchy("symmetry", n=6))
    {'S6': 0, 'S3 x S3': 1, '1': 2}
    """
    level = {node.label: 0 for node in shown.nodes}
    for _ in shown.nodes:
        for edge in shown.edges:
            level[edge.lower] = max(level[edge.lower], level[edge.upper] + 1)
    return level


def places(shown: Hierarchy) -> dict[str, tuple[float, float]]:
    """Where each node is drawn, in inches: below the middle of its parents, apart from its neighbours.

    >>> from erlangen.paper import hierarchy
    >>> places(hierarchy("symmetry", n=6))["S6"]
    (0.0, 0.0)
    """
    level = levels(shown)
    x: dict[str, float] = {}
    for depth in range(max(level.values()) + 1):
        wish: dict[str, float] = {}
        for label in (label for label, at in level.items() if at == depth):
            above = [x[edge.upper] for edge in shown.edges if edge.lower == label and edge.upper in x]
            wish[label] = sum(above) / len(above) if above else 0.0
        center = sum(wish.values()) / len(wish)
        for index, label in enumerate(sorted(wish, key=lambda label: wish[label])):
            x[label] = center + ACROSS * (index - (len(wish) - 1) / 2)
    middle = (min(x.values()) + max(x.values())) / 2
    return {label: (x[label] - middle, 0.0 - DOWN * level[label]) for label in x}


def figure(orders: Sequence[Hierarchy]) -> Figure:
    """The picture of the given orders.

    >>> from erlangen.paper import hierarchy
    >>> len(figure([hierarchy("mask"), hierarchy("symmetry")]).axes)
    2
    """
    all_places = [places(shown) for shown in orders]
    widths = [max(abs(x) for x, _ in at.values()) * 2 + BOX_WIDE + 0.5 for at in all_places]
    widths = [max(width, 4.0) for width in widths]
    deepest = max(-y for at in all_places for _, y in at.values())
    all_places = [_stretched(at, deepest) for at in all_places]
    depth = deepest + BOX_HIGH + 0.15
    wide, high = sum(widths), depth + TOP + BOTTOM
    picture = Figure(figsize=(wide, high), facecolor=PAPER)
    left = 0.0
    for shown, at, width in zip(orders, all_places, widths, strict=True):
        axes = picture.add_axes((left / wide, BOTTOM / high, width / wide, depth / high))
        _diagram(axes, shown, at, width, depth)
        left += width
    heading = "Three orders of attention mechanisms" if len(orders) == 3 else "Attention mechanisms"
    name = f"{heading}, n = {orders[0].n}"
    picture.text(
        0.5, 1 - 0.4 / high, name, ha="center", va="center", fontsize=18, color=INK, fontweight="bold"
    )
    legend = "Numbers: rank in the paper's Table 1.  Every arrow is computed and certified."
    if any(shown.disagreements for shown in orders):
        legend += "  Orange: Table 1 has it the other way round."
    lines = "\n".join(wrap(legend, int(wide * 12)))
    picture.text(0.5, 0.22 / high, lines, ha="center", va="center", fontsize=9.5, color=QUIET)
    return picture


def _stretched(at: dict[str, tuple[float, float]], depth: float) -> dict[str, tuple[float, float]]:
    """A shallow diagram pulled towards the depth of the others, by at most half."""
    own = max(-y for _, y in at.values())
    factor = min(depth / own, 1.5)
    return {label: (x, y * factor) for label, (x, y) in at.items()}


def save(orders: Sequence[Hierarchy], path: Path) -> None:
    """Write the picture; the file's ending decides the format. Text stays text in an SVG."""
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        write(figure(orders), [path], dpi=160)


def _diagram(
    axes: Axes, shown: Hierarchy, at: dict[str, tuple[float, float]], width: float, depth: float
) -> None:
    axes.set_xlim(-width / 2, width / 2)
    axes.set_ylim(BOX_HIGH / 2 + 0.1 - depth, BOX_HIGH / 2 + 0.1)
    axes.axis("off")
    title, reading = TITLES[shown.order]
    top = BOX_HIGH / 2 + 0.1
    axes.text(0, top + 0.5, title, ha="center", fontsize=14, color=BLUE, fontweight="bold")
    axes.text(0, top + 0.25, reading, ha="center", fontsize=10, color=QUIET)
    for edge in shown.edges:
        _arrow(axes, at[edge.upper], at[edge.lower], _told(edge, shown))
    wrong = {kind for pair in shown.disagreements for kind in (pair.upper, pair.lower)}
    for node in shown.nodes:
        _box(axes, at[node.label], node, ORANGE if wrong & set(node.kinds) else BLUE)
    for line, verdict in enumerate(_verdict(shown)):
        color = ORANGE if shown.disagreements else INK
        axes.text(0, top - depth - 0.3 - 0.24 * line, verdict, ha="center", fontsize=10.5, color=color)


def _arrow(axes: Axes, upper: tuple[float, float], lower: tuple[float, float], label: str) -> None:
    # Arrows to the side leave and enter off the middle, so that they do not cross the text of a box.
    lean = float(np.clip(lower[0] - upper[0], -0.7, 0.7))
    start = upper[0] + lean * 0.6, upper[1] - BOX_HIGH / 2
    stop = lower[0] - lean * 0.3, lower[1] + BOX_HIGH / 2
    arrow = {
        "arrowstyle": "-|>",
        "color": INK,
        "linewidth": 1.4,
        "mutation_scale": 13,
        "shrinkA": 0,
        "shrinkB": 0,
    }
    axes.annotate("", xy=stop, xytext=start, arrowprops=arrow)
    side = -1 if lean < 0 else 1
    x, y = (start[0] + stop[0]) / 2 + 0.1 * side, (start[1] + stop[1]) / 2
    axes.text(x, y, label, fontsize=9, color=QUIET, ha="left" if side > 0 else "right", va="center")


def _box(axes: Axes, at: tuple[float, float], node: Node, color: str) -> None:
    x, y = at
    corner = x - BOX_WIDE / 2, y - BOX_HIGH / 2
    axes.add_patch(
        FancyBboxPatch(
            corner,
            BOX_WIDE,
            BOX_HIGH,
            boxstyle="round,pad=0,rounding_size=0.08",
            facecolor=PAPER,
            edgecolor=color,
            linewidth=1.8,
        )
    )
    left = corner[0] + 0.08
    for bound in node.bounds:
        draw_icon(axes, bound, (left, left + MATRIX, y - MATRIX / 2, y + MATRIX / 2))
        left += MATRIX + 0.05
    middle = (left + corner[0] + BOX_WIDE) / 2
    narrow = len(node.label) > 12 and bool(node.bounds)
    label = node.label.replace("-", "-\n") if narrow else node.label.replace(" x ", " × ")
    axes.text(
        middle,
        y if narrow else y + 0.09,
        label,
        ha="center",
        va="center",
        fontsize=11,
        color=INK,
        fontweight="bold",
    )
    if not narrow:
        axes.text(middle, y - 0.14, node.note, ha="center", va="center", fontsize=7.6, color=INK)
    if node.kinds:
        ranks = ", ".join(str(RANKED.index(kind) + 1) for kind in node.kinds)
        badge = {"boxstyle": "round,pad=0.25", "facecolor": color, "edgecolor": "none"}
        axes.text(
            corner[0] + BOX_WIDE - 0.04,
            y + BOX_HIGH / 2,
            ranks,
            ha="center",
            va="center",
            fontsize=8.5,
            color=PAPER,
            bbox=badge,
            zorder=4,
        )


def _told(edge: Edge, shown: Hierarchy) -> str:
    """A few words of the certificate, drawn beside the arrow."""
    proof = edge.certificate
    if shown.order == "mask":
        more, fewer = proof["edges"]
        return f"−{more - fewer}"
    if shown.order == "symmetry":
        return "order " + " > ".join(proof["orders"])
    return next(iter(proof["settings"].values())) if edge.upper == "Window" else ""


def _verdict(shown: Hierarchy) -> list[str]:
    if not shown.disagreements:
        return [f"Table 1 agrees on all {len(shown.table1)} comparable pairs"]
    names = {kind: row.mechanism.removesuffix(" attention") for kind, row in TABLE1.items()}
    return [f"Table 1 ranks {names[pair.lower]} above {names[pair.upper]}" for pair in shown.disagreements]

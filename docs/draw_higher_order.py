"""The Fano plane and its pairwise shadow, side by side: what three positions know and two do not."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle

from erlangen.relations import Fano
from erlangen.show.palette import INK, PAPER, QUIET
from erlangen.show.style import key_color
from erlangen.symmetry import symmetry

CORNERS = np.array([[np.cos(a), np.sin(a)] for a in np.radians([90, 210, 330])])


def places() -> np.ndarray:
    """Where the seven points go: corners, middles of the sides and centre; all lines but one are straight."""
    lines = [set(line) for line in Fano().geometry.lines()]

    def third(a: int, b: int) -> int:
        return next(iter(next(line for line in lines if {a, b} <= line) - {a, b}))

    a, b, c = 0, 1, 3  # not on a line
    where = np.empty((7, 2))
    where[[a, b, c]] = CORNERS
    for p, q in ((a, b), (b, c), (a, c)):
        where[third(p, q)] = (where[p] + where[q]) / 2
    where[third(a, third(b, c))] = 0
    return where


def save(path: Path) -> None:
    """Draw both panels into a file."""
    figure = Figure(figsize=(9.0, 4.6), layout="constrained", facecolor=PAPER)
    plane, shadow = figure.subplots(1, 2)
    where = places()
    for number, line in enumerate(Fano().geometry.lines()):
        color = key_color(number, 7)
        if any(np.allclose(where[point], 0) for point in line) or any(point in (0, 1, 3) for point in line):
            ends = sorted(line, key=lambda point: tuple(where[point]))
            plane.plot(*where[ends].T, color=color, lw=3, zorder=1)
        else:
            plane.add_patch(Circle((0, 0), 0.5, fill=False, color=color, lw=3, zorder=1))
    turn = np.radians(90 - np.arange(7) * 360 / 7)
    around = np.stack([np.cos(turn), np.sin(turn)], axis=1)
    for i, j in Fano().shadow().on(7).edges().tolist():
        shadow.plot(*around[[i, j]].T, color=QUIET, lw=1.5, zorder=1)
    orders = symmetry(Fano()).order, symmetry(Fano().shadow()).order
    _finish(plane, where, f"Fano(): 7 lines, 42 triples\n{orders[0]} symmetries")
    _finish(shadow, around, f"its shadow: every two points\n{orders[1]:,} symmetries")
    figure.savefig(path, dpi=130)


def _finish(axes: Axes, where: np.ndarray, title: str) -> None:
    axes.plot(*where.T, "o", color=PAPER, mec=INK, ms=19, mew=1.6, zorder=2)
    for i, (x, y) in enumerate(where):
        axes.text(x, y, str(i), ha="center", va="center", fontsize=10, color=INK, zorder=3)
    axes.text(0, 1.4, title, ha="center", va="center", fontsize=11, color=INK)
    axes.set_aspect("equal")
    axes.set_xlim(-1.2, 1.2)
    axes.set_ylim(-1.1, 1.6)
    axes.axis("off")

"""A ternary relation on an axis: each of its sets of positions is a polygon of a circle."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Polygon

from erlangen.relations import Triples
from erlangen.show.palette import INK
from erlangen.show.style import key_color

DRAWN = 300
"""Most polygons in a picture."""
NUMBERED = 40
"""Up to this many positions have numbers."""


def draw_triples(axes: Axes, bound: Triples) -> None:
    """Each set of three positions that belongs in some order is a triangle; two positions make a chord.

    >>> from matplotlib.figure import Figure
    >>> axes = Figure().subplots()
    >>> draw_triples(axes, Triples(4, [(0, 1, 2), (1, 0, 2), (3, 1, 1)]))
    >>> axes.get_title()
    '2 sets of positions'
    """
    angle = np.pi / 2 - 2 * np.pi * np.arange(bound.n) / bound.n
    place = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    corners = {tuple(sorted(set(triple))) for triple in bound.triples().tolist()}
    sets = sorted(one for one in corners if len(one) > 1)
    shown = sets[:DRAWN]
    for number, one in enumerate(shown):
        color = key_color(number, len(shown))
        axes.add_patch(Polygon(place[list(one)], closed=True, facecolor=color, edgecolor=color, alpha=0.28))
    axes.plot(*place.T, "o", color=INK, ms=5 if bound.n <= NUMBERED else 2)
    for i, (x, y) in enumerate(place if bound.n <= NUMBERED else ()):
        axes.text(1.13 * x, 1.13 * y, str(i), ha="center", va="center", fontsize=8, color=INK)
    axes.set_aspect("equal")
    axes.set_xlim(-1.25, 1.25)
    axes.set_ylim(-1.25, 1.25)
    axes.axis("off")
    left = f"; {len(sets) - len(shown)} more not drawn" if len(sets) > len(shown) else ""
    axes.set_title(f"{len(shown)} sets of positions{left}", fontsize=9, color=INK)

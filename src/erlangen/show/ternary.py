"""Ternary relations for people: numbers, rows of pairs, the counted shadow, and a picture of the triples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from erlangen.relations.ternary import TernaryRelation as HyperRelation
from erlangen.relations.ternary import Triples
from erlangen.show.matrix import UNICODE, Charset, draw

if TYPE_CHECKING:
    from pathlib import Path

LISTED_ROWS = 16
"""Rows printed pair by pair: up to this many positions ..."""
LISTED_PAIRS = 12
"""... and this many pairs a row; the rest is counted."""
DRAWN = 300
"""Most triangles in a picture."""


def facts(relation: HyperRelation, bound: Triples) -> dict[str, Any]:
    """The numbers of a bound ternary relation as plain Python values.

    >>> from erlangen.relations import Triples
    >>> relation = Triples(3, [(0, 1, 2)])
    >>> facts(relation, relation)
    {'relation': 'Triples(3, [(0, 1, 2)])', 'arity': 3, 'positions': 3, 'triples': 1,
     'density': 0.037037037037037035, 'shadow_edges': 2, 'empty_queries': [1, 2]}
    """
    return {
        "relation": repr(relation),
        "arity": 3,
        "positions": bound.n,
        "triples": bound.num_triples,
        "density": bound.density,
        "shadow_edges": bound.shadow().on(bound.n).num_edges,
        "empty_queries": bound.empty_queries().tolist(),
    }


def text(relation: HyperRelation, bound: Triples, width: int = 80, characters: Charset = UNICODE) -> str:
    """The numbers, the matrix of the shadow and, for few positions, the pairs each query reads.

    >>> from erlangen.relations import Triples
    >>> relation = Triples(3, [(0, 1, 2), (1, 0, 0)])
    >>> print(text(relation, relation))
    Triples(3, [(0, 1, 2), (1, 0, 0)]) on 3 positions
    triples 2 of 27, density 0.07407, queries without a pair 1
    shadow: query i reads key j in some pair
         key j (read)
         0 1 2
      0  · ■ ■
      1  ■ · ·
      2  · · ·
    pairs of keys that each query reads together
      0  (1, 2)
      1  (0, 0)
      2  none
    """
    lines = [
        f"{relation!r} on {bound.n:,} positions",
        f"triples {bound.num_triples:,} of {bound.n**3:,}, density {bound.density:.4g}, "
        f"queries without a pair {bound.empty_queries().size or 'none'}",
        "shadow: query i reads key j in some pair",
        draw(bound.shadow().on(bound.n), width, characters),
    ]
    if 0 < bound.n <= LISTED_ROWS:
        lines.append("pairs of keys that each query reads together")
        for i in range(bound.n):
            pairs = bound.row(i)
            more = f" and {len(pairs) - LISTED_PAIRS} more" if len(pairs) > LISTED_PAIRS else ""
            shown = " ".join(map(str, pairs[:LISTED_PAIRS])) + more
            lines.append(f"{i:>3}  {shown or 'none'}")
    return "\n".join(lines)


def save(relation: HyperRelation, bound: Triples, path: Path) -> None:
    """Draw how many pairs of T_i contain j, and the triples as triangles, into a PNG or SVG file."""
    import matplotlib
    from matplotlib.figure import Figure

    from erlangen.errors import SizeError
    from erlangen.show.style import INK, PAPER

    if bound.n == 0:
        raise SizeError(f"{relation} on 0 positions has no triples to draw")
    with matplotlib.rc_context({"svg.hashsalt": "erlangen"}):
        picture = Figure(figsize=(9.0, 4.7), layout="constrained", facecolor=PAPER)
        matrix, circle = picture.subplots(1, 2)
        _counts(matrix, bound)
        _triangles(circle, bound)
        heading = f"{relation!r}\n{bound.n:,} positions, {bound.num_triples:,} triples"
        picture.suptitle(heading, fontsize=11, color=INK, parse_math=False)
        picture.savefig(path, dpi=130, metadata={"Date": None} if path.suffix.lower() == ".svg" else None)


def _counts(axes: Any, bound: Triples) -> None:
    """Cell (i, j): how many pairs of T_i contain key j; blocks where there are many positions."""
    from matplotlib.ticker import MaxNLocator

    from erlangen.show.style import DENSITY, INK

    block = max(1, -(-bound.n // 500))
    size = -(-bound.n // block)
    counts = np.zeros((size, size))
    i, j, last = bound.triples().T // block
    np.add.at(counts, (i, j), 1)
    np.add.at(counts, (i[bound.first != bound.second], last[bound.first != bound.second]), 1)
    axes.imshow(
        counts, cmap=DENSITY, interpolation="nearest", extent=(-0.5, bound.n - 0.5, bound.n - 0.5, -0.5)
    )
    axes.set_xlabel("key j", fontsize=8, color=INK)
    axes.set_ylabel("query i (reads)", fontsize=8, color=INK)
    axes.tick_params(labelsize=7, colors=INK, length=2)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(nbins=8, integer=True))
    axes.set_title(f"pairs of T_i with j: at most {counts.max():.0f}", fontsize=9, color=INK)


def _triangles(axes: Any, bound: Triples) -> None:
    """Each set of three positions that belongs in some order is a triangle; two positions make a chord."""
    from matplotlib.patches import Polygon

    from erlangen.show.style import INK, key_color

    angle = np.pi / 2 - 2 * np.pi * np.arange(bound.n) / bound.n
    place = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    sets = sorted({tuple(sorted(set(triple))) for triple in bound.triples().tolist()})
    shown = [corners for corners in sets if len(corners) > 1][:DRAWN]
    for number, corners in enumerate(shown):
        color = key_color(number, max(len(shown), 1))
        axes.add_patch(
            Polygon(place[list(corners)], closed=True, facecolor=color, edgecolor=color, alpha=0.28)
        )
    axes.plot(*place.T, "o", color=INK, ms=5 if bound.n <= 40 else 2)
    if bound.n <= 40:
        for i, (x, y) in enumerate(place):
            axes.text(1.13 * x, 1.13 * y, str(i), ha="center", va="center", fontsize=8, color=INK)
    axes.set_aspect("equal")
    axes.set_xlim(-1.25, 1.25)
    axes.set_ylim(-1.25, 1.25)
    axes.axis("off")
    left = len([corners for corners in sets if len(corners) > 1]) - len(shown)
    told = f"{len(shown)} sets of positions" + (f"; {left} more not drawn" if left else "")
    axes.set_title(told, fontsize=9, color=INK)

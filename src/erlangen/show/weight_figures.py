"""Pictures of weighted relations: the weights of every head as shades, and the bias by distance."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from erlangen.errors import SizeError
from erlangen.relations.weighted import WeightedNeighborhoods, WeightedRelation
from erlangen.show.figures import _sheet, _wrapped
from erlangen.show.style import DENSITY, INK, QUIET, UNREAD
from erlangen.show.weights import shares

LARGEST = 512
"""Matrices of more positions a side are not drawn; their bias by distance is."""
MOST_HEADS = 8
"""Most heads drawn; the picture says when some are left out."""
_NOTE = "darker: nearer to the largest weight of the row; grey: not read"


def weight_figure(
    weighted: WeightedRelation, bound: WeightedNeighborhoods, title: str | None = None
) -> Figure:
    """One panel per head, and one with the bias by j - i when it is Toeplitz.

    >>> from erlangen.relations import ALiBi
    >>> drawn = weight_figure(ALiBi([1, 2]), ALiBi([1, 2]).on(6))
    >>> [axes.get_title() for axes in drawn.axes]
    ['head 0', 'head 1', 'log-weight by j - i']
    """
    sizes = f"{bound.queries:,} queries, {bound.keys:,} keys"
    if bound.queries == 0 or bound.keys == 0:
        raise SizeError(f"{weighted} on {sizes} has no pairs to draw")
    drawn = range(min(bound.heads, MOST_HEADS)) if max(bound.queries, bound.keys) <= LARGEST else ()
    panels = len(drawn) + (bound.toeplitz is not None)
    if panels == 0:
        raise SizeError(f"{weighted} on {sizes} is too large to draw; at most {LARGEST} positions are")
    columns = min(panels, 4)
    rows = ceil(panels / columns)
    picture = _sheet((3.1 * columns, 3.3 * rows + 0.4))
    axes = list(picture.subplots(rows, columns, squeeze=False).flat)
    for head in drawn:
        _matrix(axes[head], shares(bound, head), f"head {head}" if bound.heads > 1 else "weights")
    if bound.toeplitz is not None:
        _by_distance(axes[len(drawn)], bound)
    for unused in axes[panels:]:
        unused.axis("off")
    if bound.heads > len(drawn) > 0:
        sizes += f"; the first {len(drawn)} of {bound.heads} heads"
    heading = title or repr(weighted)
    if title:
        sizes = f"{_wrapped(repr(weighted), 84)} on {sizes}"
    picture.suptitle(f"{_wrapped(heading, 84)}\n{sizes}\n{_NOTE}", fontsize=10, color=INK, parse_math=False)
    return picture


def side_by_side(shown: Sequence[tuple[str, WeightedNeighborhoods]], path: Path, title: str) -> None:
    """The first head of several weighted relations beside one another, written to a file.

    >>> import tempfile
    >>> from erlangen.relations import ALiBi, Decay
    >>> shown = [("ALiBi", ALiBi(1).on(4)), ("decay", Decay(0.5).on(4))]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     side_by_side(shown, Path(folder, "a.png"), "two")
    """
    picture = _sheet((2.9 * len(shown), 3.5))
    panels = picture.subplots(1, len(shown), squeeze=False).flat
    for axes, (name, bound) in zip(panels, shown, strict=True):
        _matrix(axes, shares(bound, 0), name)
    picture.suptitle(f"{title}\n{_NOTE}", fontsize=10, color=INK, parse_math=False)
    picture.savefig(path, dpi=130)


def save_weights(
    weighted: WeightedRelation,
    bound: WeightedNeighborhoods,
    paths: Sequence[Path],
    title: str | None = None,
) -> None:
    """Draw once and write every path; the ending of each says PNG or SVG. Equal input gives equal files."""
    with matplotlib.rc_context({"svg.hashsalt": "erlangen"}):
        picture = weight_figure(weighted, bound, title)
        for path in paths:
            dated = {"Date": None} if path.suffix.lower() == ".svg" else None
            picture.savefig(path, dpi=130, metadata=dated)


def _matrix(axes: Axes, part: np.ndarray, heading: str) -> None:
    shade = DENSITY.with_extremes(bad=UNREAD)
    # The least weight that is read must still differ from what is not.
    axes.imshow(0.2 + 0.8 * part, cmap=shade, vmin=0, vmax=1, interpolation="nearest", aspect="equal")
    _frame(axes, heading)
    axes.set_xlabel("key j (read)", fontsize=8, color=INK)
    axes.set_ylabel("query i (reads)", fontsize=8, color=INK)
    axes.xaxis.set_label_position("top")
    axes.xaxis.tick_top()


def _by_distance(axes: Axes, bound: WeightedNeighborhoods) -> None:
    assert bound.toeplitz is not None
    used = np.flatnonzero(bound.used_offsets())
    difference = used - (bound.keys - 1)
    colors = colormaps["viridis"](np.linspace(0.05, 0.85, bound.heads))
    for head in range(bound.heads):
        # Steps, for there is nothing between two positions; gaps where nothing is read.
        line = np.full(difference.max(initial=0) - difference.min(initial=0) + 1, np.nan)
        line[difference - difference.min(initial=0)] = bound.toeplitz[head, used]
        axes.plot(np.arange(line.size) + difference.min(initial=0), line, drawstyle="steps-mid",
                  color=colors[head], lw=1.4, label=f"head {head}")  # fmt: skip
    _frame(axes, "log-weight by j - i")
    axes.set_xlabel("key minus query, j - i", fontsize=8, color=INK)
    if 1 < bound.heads <= MOST_HEADS:
        axes.legend(fontsize=7, frameon=False)


def _frame(axes: Axes, heading: str) -> None:
    axes.set_title(heading, fontsize=9, color=INK, parse_math=False)
    axes.tick_params(labelsize=7, colors=INK, length=2)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    for spine in axes.spines.values():
        spine.set_color(QUIET)

"""The look of what matplotlib draws: shades, the colours of keys, frames, sheets, and files that repeat."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import fill

import matplotlib
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from erlangen.show.palette import BLUE, INK, PAPER, QUIET, UNREAD

DENSITY = LinearSegmentedColormap.from_list("density", [UNREAD, "#9ecae1", BLUE, "#08306b"])
"""From no pair read to every pair read; lightness falls throughout."""


def key_color(key: int, keys: int) -> tuple[float, float, float]:
    """The colour of a key: its column in the matrix and its arrows in the graph share it.

    >>> key_color(0, 4) != key_color(3, 4)
    True
    """
    place = 0.5 if keys == 1 else key / (keys - 1)
    return to_rgb(colormaps["viridis"](0.05 + 0.8 * place))


def text_color(background: tuple[float, float, float]) -> str:
    """Black or white, whichever can be read on the background.

    >>> text_color((1.0, 1.0, 0.5)), text_color((0.1, 0.0, 0.3))
    ('#22313f', '#ffffff')
    """
    red, green, blue = background
    return INK if 0.3 * red + 0.59 * green + 0.11 * blue > 0.55 else PAPER


def sheet(width: float, height: float) -> Figure:
    """An empty picture of so many inches."""
    return Figure(figsize=(width, height), layout="constrained", facecolor=PAPER)


def wrapped(text: str, width: int) -> str:
    """At most three lines of text."""
    return fill(text, width, max_lines=3, placeholder=" ...")


def frame(axes: Axes, heading: str, across: str, down: str = "") -> None:
    """A heading, the names of the axes, and quiet lines around."""
    axes.set_title(heading, fontsize=9, color=INK, parse_math=False)
    axes.set_xlabel(across, fontsize=8, color=INK)
    axes.set_ylabel(down, fontsize=8, color=INK)
    axes.tick_params(labelsize=7, colors=INK, length=2)
    for spine in axes.spines.values():
        spine.set_color(QUIET)


def whole_numbers(axes: Axes) -> None:
    """A few ticks, none between two positions."""
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(nbins=6, integer=True))


def write(picture: Figure, paths: Sequence[Path], dpi: int = 130) -> None:
    """Write every path; the ending of each says PNG or SVG. Equal pictures give equal files."""
    with matplotlib.rc_context({"svg.hashsalt": "erlangen"}):
        for path in paths:
            dated = {"Date": None} if path.suffix.lower() == ".svg" else None
            picture.savefig(path, dpi=dpi, metadata=dated)

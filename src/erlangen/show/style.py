"""The look of the pictures: colours that colour-blind readers can tell apart, and text sizes."""

from __future__ import annotations

from matplotlib import colormaps
from matplotlib.colors import LinearSegmentedColormap, to_rgb

INK = "#22313f"
QUIET = "#8795a1"
PAPER = "#ffffff"
UNREAD = "#eef1f4"
BLUE = "#0072b2"
ORANGE = "#d55e00"

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

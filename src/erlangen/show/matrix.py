"""The matrix of a bound relation as text: one mark per pair while it fits, shades of density beyond.

Weights are drawn as shades of the marks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from erlangen.relations.neighborhoods import Neighborhoods
from erlangen.show.density import block_areas, block_counts

MARKED = 32
"""Up to this many queries and keys every pair has its own mark and every row and column its number."""
TALLEST = 40
"""Most text rows of a drawing."""


@dataclass(frozen=True)
class Charset:
    """The characters of a drawing. `shades` goes from no pair at all to every pair."""

    read: str = "■"
    unread: str = "·"
    top: str = "▀"
    bottom: str = "▄"
    both: str = "█"
    shades: str = " ░▒▓█"


UNICODE = Charset()
ASCII = Charset(read="#", unread=".", top="'", bottom=",", both="#", shades=" .:+#")


def charset(encoding: str | None) -> Charset:
    """The characters that a stream of this encoding can carry.

    >>> charset("utf-8").read, charset("ascii").read, charset(None).read
    ('■', '#', '#')
    """
    try:
        "".join((UNICODE.read, UNICODE.unread, UNICODE.shades, UNICODE.top)).encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return UNICODE


def draw(
    bound: Neighborhoods,
    width: int = 80,
    characters: Charset = UNICODE,
    shares: np.ndarray | None = None,
) -> str:
    """The matrix, rows = queries i (reads), columns = keys j (read), at most `width` characters wide.

    `shares` are the weights of the pairs as parts of the largest in their row; they show while every pair has
    a mark of its own.

    >>> from erlangen.relations import Causal
    >>> print(draw(Causal().on(3)))
         key j (read)
         0 1 2
      0  ■ · ·
      1  ■ ■ ·
      2  ■ ■ ■
    >>> print(draw(Causal().on(100), width=28).splitlines()[-1])
    one character = 4 keys x 8 queries: ' ' none, '░' under 1/3, '▒' under 2/3, '▓' more, '█' all read
    >>> from erlangen.relations import Decay
    >>> from erlangen.show.density import shares
    >>> print(draw(Causal().on(4), shares=shares(Decay(0.7).on(4), 0)))
         key j (read)
         0 1 2 3
      0  █ · · ·
      1  ▓ █ · ·
      2  ▒ ▓ █ ·
      3  ▒ ▒ ▓ █
    weight as a part of the row's largest: '░' under 1/4, '▒' under 1/2, '▓' under 3/4, '█' more
    """
    if bound.queries == 0 or bound.keys == 0:
        return "(no pairs: there are no queries or no keys)"
    if bound.queries <= MARKED and 2 * bound.keys + 5 <= min(width, 2 * MARKED + 5):
        return _marks(bound, characters, shares if bound.num_edges else None)
    # Half blocks hold one key and two queries a character: square pixels, as characters are twice as tall.
    room = max(width - 2, 8)
    if bound.keys <= room and bound.queries <= 2 * TALLEST:
        return _half_blocks(bound, characters)
    return _shades(bound, room, characters)


def _marks(bound: Neighborhoods, characters: Charset, shares: np.ndarray | None) -> str:
    marks: np.ndarray | str = characters.read
    legend = []
    if shares is not None:
        few, some, many, most = characters.shades[1:]
        marks = np.array([few, some, many, most])[np.minimum(np.nan_to_num(shares) * 4, 3).astype(int)]
        legend = [
            f"weight as a part of the row's largest: '{few}' under 1/4, '{some}' under 1/2, "
            f"'{many}' under 3/4, '{most}' more"
        ]
    lines = ["     key j (read)"]
    if bound.keys > 10:
        lines.append(
            "     " + " ".join(str(j // 10) if j % 10 == 0 else " " for j in range(bound.keys)).rstrip()
        )
    lines.append("     " + " ".join(str(j % 10) for j in range(bound.keys)))
    for i, row in enumerate(np.where(bound.dense(), marks, characters.unread)):
        lines.append(f"{i:>3}  " + " ".join(row))
    return "\n".join([*lines, *legend])


def _half_blocks(bound: Neighborhoods, characters: Charset) -> str:
    dense = bound.dense()
    if bound.queries % 2:
        dense = np.concatenate([dense, np.zeros((1, bound.keys), bool)])
    signs = " " + characters.top + characters.bottom + characters.both
    lines = ["".join(signs[index] for index in upper + 2 * lower) for upper, lower in zip(
        dense[::2].astype(int), dense[1::2].astype(int), strict=True)]  # fmt: skip
    return "\n".join([*_frame(lines, bound.keys), "one character = 1 key x 2 queries"])


def _shades(bound: Neighborhoods, room: int, characters: Charset) -> str:
    scale = max(1, -(-bound.keys // room), -(-bound.queries // (2 * TALLEST)))
    height = 2 * scale
    counts, areas = block_counts(bound, height, scale), block_areas(bound, height, scale)
    level = 1 + (3 * counts >= areas).astype(int) + (3 * counts >= 2 * areas)
    level[counts == 0] = 0
    level[counts == areas] = 4
    lines = ["".join(characters.shades[index] for index in row) for row in level]
    none, few, some, many, every = characters.shades
    legend = (
        f"one character = {scale} {'key' if scale == 1 else 'keys'} x {height} queries: '{none}' none, "
        f"'{few}' under 1/3, '{some}' under 2/3, '{many}' more, '{every}' all read"
    )
    return "\n".join([*_frame(lines, level.shape[1]), legend])


def _frame(lines: list[str], width: int) -> list[str]:
    """Bars left and right, so that empty rows and columns can be seen."""
    rule = "+" + "-" * width + "+"
    return [rule, *(f"|{line:<{width}}|" for line in lines), rule]

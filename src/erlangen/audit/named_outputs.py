"""Which outputs of two sides are the same one: by their names, or by their order where names say nothing."""

from __future__ import annotations

from collections.abc import Collection
from itertools import zip_longest


def matched(mine: list[str], theirs: list[str]) -> list[tuple[str | None, str | None]]:
    """The outputs of two sides, those of one name side by side; None where a side has no such output.

    Where no name is common, names say nothing: a model may return a tuple and the other its first entry.

    >>> matched(["", "rows"], ["0", "1", "2"])
    [('', '0'), ('rows', '1'), (None, '2')]
    >>> matched(["logits", "hidden"], ["hidden"])
    [('logits', None), ('hidden', 'hidden')]
    """
    if not set(mine) & set(theirs):
        return list(zip_longest(mine, theirs))
    names = dict.fromkeys([*mine, *theirs])
    return [(one if one in mine else None, one if one in theirs else None) for one in names]


def place_within(whole: Collection[str], part: Collection[str]) -> str | None:
    """The place in an output at which another one lies: what stands before its names; None where it is
    nowhere.

    A step of decoding may return the logits alone, or the first of a tuple.

    >>> place_within(["0.logits", "0.value", "1"], ["logits"]), place_within(["0", "1"], [""])
    ('0', '0')
    >>> place_within(["logits"], ["logits"]), place_within(["logits"], ["rows"])
    ('', None)
    """
    above = ["", *(name[:end] for name in whole for end, mark in enumerate(name + ".") if mark == ".")]
    return next((one for one in above if all(within(one, name) in whole for name in part)), None)


def within(above: str, name: str) -> str:
    """The name of a part of what is called `above`."""
    return f"{above}.{name}" if above and name else above or name

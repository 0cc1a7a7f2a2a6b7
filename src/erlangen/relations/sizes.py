"""Validation of the integers that relations are made of."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from erlangen.errors import ParameterError, SizeError

MAX_SIZE = 2**31 - 2
"""Largest number of queries or keys: a pair of positions then always fits into 64 bits."""

MAX_POSITION = 2**61
"""Positions are smaller in size: differences, and sums with what `clamp` gives, then fit into 64 bits."""


def count(value: Any, what: str, *, least: int = 0) -> int:
    """`value` as a Python integer >= `least`; `what` names it in the error.

    >>> count(3, "Window(lookback=...)")
    3
    >>> count(-1, "Window(lookback=...)")
    Traceback (most recent call last):
    ...
    erlangen.errors.ParameterError: Window(lookback=...) must be an integer >= 0, got -1
    """
    number = _integer(value)
    if number is None or number < least:
        got = repr(value) if number is None else number
        raise ParameterError(f"{what} must be an integer >= {least}, got {got}")
    return number


def integer(value: Any, what: str) -> int:
    """`value` as a Python integer of either sign; `what` names it in the error.

    >>> integer(True, "Offset(by)")
    Traceback (most recent call last):
    ...
    erlangen.errors.ParameterError: Offset(by) must be an integer, got True
    """
    number = _integer(value)
    if number is None:
        raise ParameterError(f"{what} must be an integer, got {value!r}")
    return number


def _integer(value: Any) -> int | None:
    """`value` as a Python integer, None for anything else; True and False are none."""
    try:
        return None if isinstance(value, (bool, np.bool_)) else operator.index(value)
    except TypeError:
        return None


def size(value: Any, what: str) -> int:
    """`value` as a number of queries or keys, 0 <= value <= MAX_SIZE.

    >>> size(10**12, "keys")
    Traceback (most recent call last):
    ...
    erlangen.errors.SizeError: keys = 1000000000000 is beyond the largest size 2147483646
    """
    number = count(value, what)
    if number > MAX_SIZE:
        raise SizeError(f"{what} = {number} is beyond the largest size {MAX_SIZE}")
    return number


def index(value: Any, length: int, what: str) -> int:
    """`value` as one of the numbers 0 .. length - 1; no number counts from the end.

    >>> index(-1, 4, "query")
    Traceback (most recent call last):
    ...
    erlangen.errors.SizeError: query -1 is none of 0..3
    """
    number = integer(value, what)
    if not 0 <= number < length:
        raise SizeError(f"{what} {number} is none of " + (f"0..{length - 1}" if length else "none"))
    return number


def size_or_vectors(value: Any, what: str) -> tuple[int, Any]:
    """A number of queries or keys, given as such or by vectors (length, dim): the number, and the vectors.

    >>> size_or_vectors(np.zeros((3, 2)), "keys")[0], size_or_vectors(3, "keys")
    (3, (3, None))
    """
    shape = getattr(value, "shape", None)
    if shape is None or len(shape) == 0:
        return size(value, what), None
    if len(shape) != 2:
        raise SizeError(
            f"{what} must be a number or vectors of shape ({what}, dim), got shape {tuple(shape)}"
        )
    return size(shape[0], what), value


def clamp(value: int) -> int:
    """`value` cut to where it no longer matters for any two positions, so that arithmetic cannot overflow.

    No two positions are as far apart as 2 `MAX_POSITION`.

    >>> clamp(10**30) == 2**62, clamp(5)
    (True, 5)
    """
    return max(-2 * MAX_POSITION, min(value, 2 * MAX_POSITION))

"""Relations are sets, not conditions: `and`, `or` and `not` on them are refused."""

from __future__ import annotations

from typing import NoReturn


class Undecided:
    """Has no truth value. Python would make `a and b` silently b, where `a & b` was meant.

    >>> from erlangen.relations import Causal, Window
    >>> Causal() and Window(3)
    Traceback (most recent call last):
    ...
    TypeError: Causal() is neither true nor false: combine relations with & | ~, not with and, or, not; ask
    `is None` for a missing one, and a bound one for its num_edges
    """

    __slots__ = ()
    __array_ufunc__ = None  # NumPy would take a family for a sequence and combine it element by element

    def __bool__(self) -> NoReturn:
        raise TypeError(
            f"{self!r} is neither true nor false: combine relations with & | ~, not with and, or, not; "
            "ask `is None` for a missing one, and a bound one for its num_edges"
        )

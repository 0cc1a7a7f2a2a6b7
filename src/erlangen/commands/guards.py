"""Limits of size and time for commands: what comes from outside may say anything."""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from erlangen.errors import DataError, ParameterError

MOST_RUNS = 5_000_000
"""Relations that need more runs than this are not classified by a command: seconds and a gigabyte."""

Seconds = Annotated[
    float, typer.Option("--seconds", help="Give up after this many seconds; 0 waits for ever.")
]
SECONDS = 300.0
"""How long a command may take unless it is told otherwise."""


def small_enough(relation: Any, n: int | None, keys: int | None = None) -> None:
    """Raise `SizeError` before a relation is bound to sizes that take gigabytes.

    >>> from erlangen.relations import Causal
    >>> small_enough(Causal(), 1000)
    >>> small_enough(Causal(), 2_000_000_000)
    Traceback (most recent call last):
    ...
    erlangen.errors.SizeError: Causal() on 2,000,000,000 queries x 2,000,000,000 keys needs about
    2,000,000,000 runs, more than the 5,000,000 that are looked at; choose smaller sizes
    """
    from erlangen.relations.ternary import points
    from erlangen.show.affordable import affordable, members

    if relation.arity != 2:
        if n is not None:
            points(n, "n")  # ternary relations bound everything else themselves
        return
    for _, member in members(relation.support):
        queries, width = (n, n if keys is None else keys) if n is not None else member.own_sizes or (0, 0)
        if not member.data_dependent and min(queries, width) >= 0:
            affordable(member, queries, width, MOST_RUNS, "looked at")


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `DataError` in the main thread once the time is over, where the system has timers.

    >>> with time_limit(0.01):
    ...     while True:
    ...         pass
    Traceback (most recent call last):
    ...
    erlangen.errors.DataError: not finished after 0.01 seconds: choose smaller sizes, or more time by
    --seconds
    """
    if not math.isfinite(seconds) or seconds < 0:
        raise ParameterError(f"--seconds takes a number >= 0, got {seconds}")
    if (
        not seconds
        or not hasattr(signal, "setitimer")
        or threading.current_thread() is not threading.main_thread()
    ):
        yield
        return

    def over(*_: Any) -> None:
        raise DataError(
            f"not finished after {seconds:g} seconds: choose smaller sizes, or more time by --seconds"
        )

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

"""Ctrl-C and SIGTERM as a wish that the loop grants at the end of its step."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any


class StopWish:
    """While entered, SIGINT and SIGTERM are noted in `.signal` instead of ending the process.

    Alone, a second signal acts as it always does, so that a hanging process can be ended. Among several
    processes every signal is only noted: a launcher passes Ctrl-C on to processes that had it already.

    >>> with StopWish() as wish:
    ...     signal.raise_signal(signal.SIGTERM)
    ...     wish.signal == signal.SIGTERM
    True
    """

    WATCHED = (signal.SIGINT, signal.SIGTERM)

    def __init__(self, *, alone: bool = True) -> None:
        self.alone = alone
        self.signal: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopWish:
        # Python lets only the main thread handle signals; elsewhere whoever runs the thread does.
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in self.WATCHED}
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def _note(self, number: int, _: FrameType | None) -> None:
        self.signal = number
        if self.alone:
            self._restore()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

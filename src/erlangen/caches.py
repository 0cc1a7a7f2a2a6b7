"""What is kept between calls: every cache of the library is bounded, and known here."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache
from threading import RLock
from typing import Any, Generic, TypeVar
from weakref import WeakSet

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")
_Function = TypeVar("_Function", bound=Callable[..., Any])

CACHES: WeakSet[Any] = WeakSet()
"""Every cache: `clear_cache` calls `cache_clear()` of each."""


def cached(size: int) -> Callable[[_Function], _Function]:
    """`functools.lru_cache(size)`, emptied by `erlangen.attention.binding.clear_cache`."""

    def decorate(function: _Function) -> _Function:
        kept: Any = lru_cache(size)(function)
        CACHES.add(kept)
        return kept

    return decorate


class Recent(Generic[_Key, _Value]):
    """At most `size` values by key; the least recently used goes first. Safe between
    threads, and emptied by `clear_cache`.

    >>> recent = Recent(2)
    >>> for key in "aba":
    ...     recent.put(key, key.upper())
    >>> recent.put("c", "C")
    >>> recent.get("a"), recent.get("b"), recent.find(lambda value: value < "C")
    ('A', None, 'A')
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._values: OrderedDict[_Key, _Value] = OrderedDict()
        self._lock = RLock()
        CACHES.add(self)

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: _Key) -> _Value | None:
        """The value of a key, or None."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
            return self._values.get(key)

    def find(self, wanted: Callable[[_Value], bool]) -> _Value | None:
        """The most recently used value that is wanted, or None."""
        with self._lock:
            known = list(self._values.items())
        return next((self.get(key) for key, value in reversed(known) if wanted(value)), None)

    def put(self, key: _Key, value: _Value) -> None:
        """Keep a value."""
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            while len(self._values) > self.size:
                self._values.popitem(last=False)

    def drop(self, unwanted: Callable[[_Value], bool]) -> None:
        """Forget the values that are unwanted."""
        with self._lock:
            for key in [key for key, value in self._values.items() if unwanted(value)]:
                del self._values[key]

    def cache_clear(self) -> None:
        """Forget all."""
        self.drop(lambda value: True)

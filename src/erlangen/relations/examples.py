"""How a relation says which examples of it fit a number of positions, whoever draws them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

Option = TypeVar("Option")


class Draw(Protocol):
    """A source of choices: hypothesis in `erlangen.testing.strategies`, or anything else that can choose."""

    def integer(self, low: int, high: int) -> int:
        """An integer, low <= it <= high."""
        ...

    def integers(self, low: int, high: int, least: int, most: int) -> list[int]:
        """From `least` to `most` such integers."""
        ...

    def choice(self, options: Sequence[Option]) -> Option:
        """One of the options."""
        ...

    def relation(self, n: int) -> Any:
        """A relation of pairs that fits n positions."""
        ...

"""Replacing a function wherever it was imported by name, and putting it back."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any


@contextmanager
def replaced(matches: Callable[[Any], bool], wrap: Callable[[Any], Any]) -> Iterator[None]:
    """Replace every module-level name whose value matches by its wrapped value, for the time of a block.

    `from library import function` copies the reference, so patching the library alone would miss callers.
    """
    undo: list[tuple[dict[str, Any], str, Any]] = []
    wrapped: dict[int, Any] = {}
    try:
        for module in list(sys.modules.values()):
            names = getattr(module, "__dict__", None)
            if not isinstance(names, dict):
                continue
            for name, value in list(names.items()):
                if type(value) is FunctionType and matches(value):
                    replacement = wrapped.setdefault(id(value), wrap(value))
                    undo.append((names, name, value))
                    names[name] = replacement
        yield
    finally:
        for names, name, value in undo:
            names[name] = value

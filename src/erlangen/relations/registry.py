"""The one list of relations that can be written in text: a class enters it where it is defined."""

from __future__ import annotations

from typing import Any, TypeVar

Kind = TypeVar("Kind")

WRITTEN: dict[str, Any] = {}
"""name -> relation, family, weighted or ternary relation (or geometry) that an expression may call."""


def written(kind: Kind) -> Kind:
    """A decorator: `parse` knows the class by its name, and the completeness tests ask everything of it.

    >>> from erlangen.relations import Causal
    >>> WRITTEN["Causal"] is Causal
    True
    """
    name: str = kind.__name__  # type: ignore[attr-defined]
    if WRITTEN.setdefault(name, kind) is not kind:
        raise ValueError(f"two relations are called {name}")
    return kind

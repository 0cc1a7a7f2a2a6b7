"""The one list of relations: a class enters it where it is defined, and whoever needs all of them reads it.

Exports, the parser's names, the strategies for hypothesis, the README's table and the completeness tests.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from pkgutil import walk_packages
from typing import Any, TypeVar

from erlangen.errors import ParameterError
from erlangen.relations.protocol import AnyRelation

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
    fields: dict[str, Any] = getattr(kind, "__dataclass_fields__", {})
    if shadowed := sorted({*fields} & {*dir(AnyRelation)}):
        raise ParameterError(
            f"{name} has a parameter called {shadowed[0]!r}, which is what every relation answers "
            "(relations/protocol.py): call it otherwise"
        )
    if WRITTEN.setdefault(name, kind) is not kind:
        raise ParameterError(f"two relations are called {name}")
    return kind


def kinds(*bases: type) -> dict[str, type[Any]]:
    """The classes of the list that derive from one of `bases`, by name.

    >>> from erlangen.relations import TernaryRelation
    >>> sorted(kinds(TernaryRelation))
    ['Lines', 'Triangles', 'Triples', 'WindowSquared']
    """
    return {
        name: kind for name, kind in WRITTEN.items() if isinstance(kind, type) and issubclass(kind, bases)
    }


def discover(folders: Iterable[str], package: str) -> None:
    """Import every module in the folders of a package, so that the relations defined there enter the list."""
    for module in walk_packages(folders, f"{package}."):
        import_module(module.name)

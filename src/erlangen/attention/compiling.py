"""Relations under `torch.compile`: constants of a graph, compared by value.

Dynamo would otherwise trace into a relation's constructor, and guard a relation by identity, so that an equal
relation compiles anew."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from erlangen.relations import Batch, PerHead, Relation, algebra  # noqa: F401 (its classes are registered)

uncompiled: Any = torch.compiler.disable
"""Decorates what is never a part of a graph."""


def _with_subclasses(cls: type[Any]) -> Iterator[type[Any]]:
    yield cls
    for sub in cls.__subclasses__():
        yield from _with_subclasses(sub)


def _fx_repr(relation: Any) -> tuple[str, dict[str, type]]:
    """How generated code writes a relation: `eval(repr(r)) == r`."""
    names = {cls.__name__: cls for root in (Relation, PerHead, Batch) for cls in _with_subclasses(root)}
    return repr(relation), names


def _itself(relation: Any) -> Any:
    """The relation. Evaluated by the compiler, it is a constant of the graph that is no longer guarded by
    identity."""
    return relation


def constant(relation: Any) -> Any:
    """A relation as a constant of the graph that is being compiled."""
    return relation._itself() if hasattr(relation, "_itself") else relation


def register() -> None:
    """Make relations values for the compiler, where this PyTorch knows of such types."""
    for root in (Relation, PerHead, Batch):
        root._itself = _itself  # pyright: ignore[reportAttributeAccessIssue]
    try:
        from torch._library.opaque_object import MemberType, is_opaque_type, register_opaque_type
    except ImportError:  # an older PyTorch: relations are then guarded by identity, and made outside
        return
    for root in (Relation, PerHead, Batch):
        for cls in dict.fromkeys(_with_subclasses(root)):
            if cls.__eq__ is not object.__eq__ and not is_opaque_type(cls):
                cls.__fx_repr__ = _fx_repr
                members = {"_itself": MemberType.USE_REAL}
                register_opaque_type(cls, typ="value", members=members)

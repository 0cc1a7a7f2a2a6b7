"""Calls of `erlangen.attend`, so that models built with erlangen are audited like any other."""

from __future__ import annotations

import sys
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch

from erlangen.audit.capture.calls import AttendCall, fingerprint, masks
from erlangen.audit.capture.sdpa import fold
from erlangen.audit.capture.watching import arguments_of
from erlangen.relations import Neighborhoods
from erlangen.relations.weighted import WeightedRelation

if TYPE_CHECKING:
    from erlangen.audit.capture.session import Session

_LIBRARY = "erlangen.attention._attend"


def attend() -> FunctionType | None:
    """The function to watch; None if it was never imported."""
    return getattr(sys.modules.get(_LIBRARY), "attend", None)


def record(session: Session, watched: FunctionType, run: Any, args: Any, kwargs: Any) -> AttendCall:
    """The record of one call of attend(q, k, v, relation, kernel=..., scale=..., backend=...)."""
    arguments = arguments_of(watched, args, kwargs)
    query, key, value = arguments["q"], arguments["k"], arguments["v"]
    options = {name: arguments[name] for name in ("scale", "backend", "kernel") if name in arguments}
    if not getattr(options.get("kernel"), "exponential", True):
        del options["kernel"]  # it may vanish at zero queries, where e^0 = 1 reads every key of the relation
    given = unpacked(arguments.get("relation"))
    relation = _support(given, query.shape[-2], key.shape[-2])
    weighted = given if isinstance(given, WeightedRelation) else None
    batch, heads = fold(query.shape[:-2], session.batch)
    return AttendCall(
        session.frames.name(), batch, heads, query.shape[-2], key.shape[-2],
        run, query, key, value, relation, options, weighted,
        fingerprints=(fingerprint(query), fingerprint(key)),
    )  # fmt: skip


def unpacked(relation: Any) -> Any:
    """What was packed for a call (`erlangen.pack`), as a relation again."""
    return relation.unpacked() if hasattr(relation, "unpacked") else relation


def _support(relation: Any, queries: int, keys: int) -> Any:
    """A relation without its weights, which count as zero like any bias unless they hide keys."""
    if not isinstance(relation, WeightedRelation):
        return relation
    if relation.structured:
        values = relation.toeplitz(queries, keys)
    else:
        bound: Any = relation.support
        values = relation.per_edge(bound if isinstance(bound, Neighborhoods) else bound.on(queries, keys))
    numbers = values if isinstance(values, torch.Tensor) else torch.from_numpy(values)
    if bool(masks(numbers).any()):
        lowest = float(numbers.min())
        raise ValueError(f"log-weights as low as {lowest:g} hide keys of the relation {relation.support}")
    return relation.support

"""Calls of `erlangen.attend`, so that models built with erlangen are audited like any other."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from erlangen.audit.capture.calls import MASKING, AttendCall, fingerprint
from erlangen.audit.capture.patches import Rule, watched
from erlangen.audit.capture.sdpa import fold
from erlangen.relations import Neighborhoods
from erlangen.relations.weighted import WeightedRelation

if TYPE_CHECKING:
    from erlangen.audit.capture.session import Session

_LIBRARY = "erlangen.attention.attend"


def attend_rule(session: Session) -> list[Rule]:
    """How to watch `attend`; nothing if it was never imported."""
    library = sys.modules.get(_LIBRARY)
    if library is None:
        return []
    original = library.attend
    return [(lambda value: value is original, lambda function: watched(session, function, record))]


def record(
    session: Session, function: Any, query: Any, key: Any, value: Any, args: Any, kwargs: Any
) -> AttendCall:
    """The record of one call of attend(q, k, v, relation, kernel=..., scale=..., backend=...)."""
    options = {name: kwargs[name] for name in ("scale", "backend", "kernel") if name in kwargs}
    if not getattr(options.get("kernel"), "exponential", True):
        del options["kernel"]  # it may vanish at zero queries, where e^0 = 1 reads every key of the relation
    given = args[0] if args else kwargs.get("relation")
    relation = _support(given, query.shape[-2], key.shape[-2])
    weighted = given if isinstance(given, WeightedRelation) else None
    batch, heads = fold(query.shape[:-2], session.batch)
    return AttendCall(
        session.frames.name(), batch, heads, query.shape[-2], key.shape[-2],
        function, query, key, value, relation, options, weighted,
        fingerprints=(fingerprint(query), fingerprint(key)),
    )  # fmt: skip


def _support(relation: Any, queries: int, keys: int) -> Any:
    """A relation without its weights, which count as zero like any bias unless they hide keys."""
    if not isinstance(relation, WeightedRelation):
        return relation
    if relation.structured:
        values = relation.toeplitz(queries, keys)
    else:
        bound: Any = relation.support
        values = relation.per_edge(bound if isinstance(bound, Neighborhoods) else bound.on(queries, keys))
    lowest = float(values.min()) if 0 not in values.shape else 0.0
    if lowest <= MASKING:
        raise ValueError(f"log-weights as low as {lowest:g} hide keys of the relation {relation.support}")
    return relation.support

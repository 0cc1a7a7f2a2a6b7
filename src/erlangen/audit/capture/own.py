"""Calls of `erlangen.attend`, so that models built with erlangen are audited like any other."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from erlangen.audit.capture.calls import AttendCall, fingerprint
from erlangen.audit.capture.patches import Rule, watched
from erlangen.audit.capture.sdpa import fold

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
    """The record of one call of attend(q, k, v, relation, scale=..., backend=...)."""
    options = {name: kwargs[name] for name in ("scale", "backend") if name in kwargs}
    relation = args[0] if args else kwargs.get("relation")
    if getattr(relation, "data_dependent", False):
        raise ValueError(f"{relation} depends on the queries, which a probe sets to zero")
    batch, heads = fold(query.shape[:-2], session.batch)
    return AttendCall(
        session.frames.name(), batch, heads, query.shape[-2], key.shape[-2],
        function, query, key, value, relation, options, fingerprints=(fingerprint(query), fingerprint(key)),
    )  # fmt: skip

"""Calls of `F.multi_head_attention_forward`."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from erlangen.audit.capture.calls import MHACall, fingerprint

if TYPE_CHECKING:
    from erlangen.audit.capture.session import Session


def record(session: Session, function: Any, args: Any, kwargs: Any) -> MHACall:
    """The record of one call. Queries and keys come as (length, batch, dim), or (length, dim) unbatched."""
    given = arguments(function, args, kwargs)
    query, key = given["query"], given["key"]
    batch = query.shape[1] if query.dim() == 3 else 1
    return MHACall(
        session.frames.name(), batch, given["num_heads"], query.shape[0], key.shape[0],
        function, given, fingerprints=(fingerprint(query), fingerprint(key)),
    )  # fmt: skip


def arguments(function: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    """Every argument of a call by its name."""
    bound = inspect.signature(function).bind(*args, **kwargs)
    bound.apply_defaults()
    return dict(bound.arguments)

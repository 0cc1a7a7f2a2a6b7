"""Calls of `F.multi_head_attention_forward`."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from erlangen.audit.capture.calls import MHACall, fingerprint

if TYPE_CHECKING:
    from erlangen.audit.capture.session import Session


def record(session: Session, function: Any, args: Any, kwargs: Any) -> MHACall:
    """The record of one call. Queries and keys come as (length, batch, dim), or (length, dim) unbatched."""
    bound = inspect.signature(function).bind(*args, **kwargs)
    bound.apply_defaults()
    arguments = dict(bound.arguments)
    query, key = arguments["query"], arguments["key"]
    batch = query.shape[1] if query.dim() == 3 else 1
    return MHACall(
        session.frames.name(), batch, arguments["num_heads"], query.shape[0], key.shape[0],
        function, arguments, fingerprints=(fingerprint(query), fingerprint(key)),
    )  # fmt: skip

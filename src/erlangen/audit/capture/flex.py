"""Calls of FlexAttention, plain or compiled, however the function was reached."""

from __future__ import annotations

import sys
from types import FunctionType
from typing import TYPE_CHECKING, Any

from erlangen.audit.capture.calls import FlexCall, fingerprint
from erlangen.audit.capture.watching import arguments_of

if TYPE_CHECKING:
    from erlangen.audit.capture.session import Session

_LIBRARY = "torch.nn.attention.flex_attention"


def flex_attention() -> FunctionType | None:
    """The function to watch; None if it was never imported."""
    return getattr(sys.modules.get(_LIBRARY), "flex_attention", None)


def record(session: Session, watched: FunctionType, run: Any, args: Any, kwargs: Any) -> FlexCall:
    """The record of one call of flex_attention(query, key, value, score_mod, block_mask, scale, ...)."""
    options = arguments_of(watched, args, kwargs)
    query, key, value = (options.pop(name) for name in ("query", "key", "value"))
    score_mod, block_mask = options.pop("score_mod", None), options.pop("block_mask", None)
    batch, heads, queries, _ = query.shape
    return FlexCall(
        session.frames.name(), batch, heads, queries, key.shape[-2],
        run, query, key, value, score_mod, block_mask, options,
        fingerprints=(fingerprint(query), fingerprint(key)),
    )  # fmt: skip

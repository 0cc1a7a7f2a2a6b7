"""Calls of FlexAttention, plain or compiled, wherever the function was imported."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from erlangen.audit.capture.calls import FlexCall, fingerprint
from erlangen.audit.capture.patches import Rule, watched

if TYPE_CHECKING:
    from erlangen.audit.capture.session import Session

_LIBRARY = "torch.nn.attention.flex_attention"
_CALLERS = {"compile_friendly_flex_attention"}


def flex_rule(session: Session) -> list[Rule]:
    """How to watch FlexAttention; nothing if it was never imported."""
    library = sys.modules.get(_LIBRARY)
    if library is None:
        return []
    original = library.flex_attention

    def matches(value: Any) -> bool:
        plain = value is original or getattr(value, "_torchdynamo_orig_callable", None) is original
        return plain or value.__name__ in _CALLERS

    return [(matches, lambda function: watched(session, function, record))]


def record(
    session: Session, function: Any, query: Any, key: Any, value: Any, args: Any, kwargs: Any
) -> FlexCall:
    """The record of one call of flex_attention(query, key, value, score_mod, block_mask, scale, ...)."""
    options = dict(zip(("score_mod", "block_mask", "scale", "enable_gqa"), args, strict=False)) | kwargs
    score_mod, block_mask = options.pop("score_mod", None), options.pop("block_mask", None)
    batch, heads, queries, _ = query.shape
    return FlexCall(
        session.frames.name(), batch, heads, queries, key.shape[-2],
        function, query, key, value, score_mod, block_mask, options,
        fingerprints=(fingerprint(query), fingerprint(key)),
    )  # fmt: skip

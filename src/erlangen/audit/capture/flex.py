"""Calls of FlexAttention, plain or compiled, wherever the function was imported."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from torch import nn

from erlangen.audit.capture.calls import FlexCall, fingerprint
from erlangen.audit.capture.patches import replaced, watched

if TYPE_CHECKING:
    from erlangen.audit.capture.session import Session

_LIBRARY = "torch.nn.attention.flex_attention"
_CALLERS = {"compile_friendly_flex_attention"}


def flex_patches(session: Session, model: nn.Module) -> AbstractContextManager[Any]:
    """Watch every reference to FlexAttention while the block runs; nothing if it was never imported."""
    library = sys.modules.get(_LIBRARY)
    if library is None:
        return nullcontext()
    original = library.flex_attention

    def matches(value: Any) -> bool:
        plain = value is original or getattr(value, "_torchdynamo_orig_callable", None) is original
        return plain or value.__name__ in _CALLERS

    return replaced(model, matches, lambda function: watched(session, function, record))


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

"""Calls of `F.scaled_dot_product_attention`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from erlangen.audit.capture.calls import SDPACall, fingerprint

if TYPE_CHECKING:
    from erlangen.audit.capture.session import Session


def _arguments(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **options: Any,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None, bool, dict[str, Any]]:
    return query, key, value, attn_mask, is_causal, options


def record(session: Session, function: Any, args: Any, kwargs: Any) -> SDPACall:
    """The record of one call."""
    query, key, value, mask, is_causal, options = _arguments(*args, **kwargs)
    batch, heads = fold(query.shape[:-2], session.batch)
    return SDPACall(
        session.frames.name(), batch, heads, query.shape[-2], key.shape[-2],
        function, query, key, value, mask, is_causal, options,
        fingerprints=(fingerprint(query), fingerprint(key)),
    )  # fmt: skip


def fold(leading: torch.Size | tuple[int, ...], batch: int) -> tuple[int, int]:
    """(batch items, heads) of the leading dimensions of an attention matrix.

    Batch items come first; everything behind them (heads, groups of heads, windows) counts as heads.

    >>> fold((2, 8), 2), fold((16,), 2), fold((), 1), fold((3, 8), 2)
    ((2, 8), (2, 8), (1, 1), (3, 8))
    """
    total = 1
    for size in leading:
        total *= size
    if len(leading) >= 2 and leading[0] % batch:
        return leading[0], total // max(leading[0], 1)
    return (batch, total // batch) if total % batch == 0 else (1, total)

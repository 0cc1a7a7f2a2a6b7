"""PyTorch's fused attention: exact with `is_causal` or no mask, and with a dense mask otherwise."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from erlangen.attention.binding import Bound


def attend(q: Tensor, k: Tensor, v: Tensor, bound: Bound, *, scale: float, dropout: float = 0.0) -> Tensor:
    """Attention through `F.scaled_dot_product_attention`; empty rows are zero, with zero gradient.

    SDPA leaves a fully masked row to each kernel (NaN or uniform). Such rows are unmasked here and cut out
    of the result, so neither they nor their gradients reach anything.
    """
    grouped = q.shape[1] != k.shape[1]
    if bound.is_full and bound.keys:
        return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, scale=scale, enable_gqa=grouped)
    if bound.is_causal and bound.keys:
        return F.scaled_dot_product_attention(
            q, k, v, dropout_p=dropout, scale=scale, is_causal=True, enable_gqa=grouped
        )
    if bound.keys == 0:
        return q.new_zeros((*q.shape[:-1], v.shape[-1])) + 0 * (q.sum() + k.sum() + v.sum())
    mask = bound.mask(q.device)
    if not bound.has_empty_queries:
        return F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, dropout_p=dropout, scale=scale, enable_gqa=grouped
        )
    empty = bound.empty(q.device)
    out = F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask | empty, dropout_p=dropout, scale=scale, enable_gqa=grouped
    )
    return out.masked_fill(empty, 0.0)

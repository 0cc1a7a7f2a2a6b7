"""PyTorch's fused attention: exact with `is_causal` or no mask, and with a dense mask otherwise."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from erlangen.attention.binding import Bound

Prepared = tuple[Tensor | None, Tensor | None, bool]
"""The mask where one is needed, which queries read nothing where there are such, and `is_causal`."""


def prepare(bound: Bound, device: str) -> Prepared:
    """What `attend` needs of a bound relation.

    SDPA leaves a fully masked row to each kernel (NaN or uniform). Such rows are unmasked here and cut out
    of the result, so neither they nor their gradients reach anything.
    """
    if bound.is_causal or bound.is_full:
        return None, None, bound.is_causal
    if not bound.has_empty_queries:
        return bound.mask(device), None, False
    empty = bound.empty(device)
    return bound.mask(device) | empty, empty, False


def attend(
    q: Tensor, k: Tensor, v: Tensor, prepared: Prepared, *, scale: float, dropout: float = 0.0
) -> Tensor:
    """Attention through `F.scaled_dot_product_attention`; empty rows are zero, with zero gradient."""
    if k.shape[2] == 0:
        return nothing(q, k, v)
    mask, empty, causal = prepared
    out = F.scaled_dot_product_attention(
        q,
        k,
        v,
        attn_mask=mask,
        dropout_p=dropout,
        is_causal=causal,
        scale=scale,
        enable_gqa=q.shape[1] != k.shape[1],
    )
    return out if empty is None else out.masked_fill(empty, 0.0)


def nothing(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The output when there are no keys: zero, connected to the inputs by zero gradients."""
    return q.new_zeros((*q.shape[:-1], v.shape[-1])) + 0 * (q.sum() + k.sum() + v.sum())

"""PyTorch's fused attention: exact with `is_causal` or no mask, and with a dense mask otherwise."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from erlangen.attention.backend import Cost, Rank, register
from erlangen.attention.biases import pair_indices
from erlangen.attention.call import Call
from erlangen.attention.products import Products


class FusedMask(NamedTuple):
    """The mask where one is needed, which queries read nothing where there are such, and `is_causal`."""

    mask: Tensor | None
    empty: Tensor | None
    causal: bool
    indices: Tensor | None = None


@register
class SdpaBackend(Products):
    name = "sdpa"
    computes = "PyTorch's fused attention, with `is_causal` or a dense mask"
    scales = "queries x keys"
    lse = False
    maps = False
    per_edge = True

    def cost(self, call: Call) -> Cost:
        if call.needs.bias:
            return Cost(Rank.MASKED, 0, "a bias is added to a dense mask there")
        if call.unmasked:
            return Cost(Rank.UNMASKED, 0, "exact there without a mask")
        return Cost(Rank.MASKED, 0, "no faster backend here: a dense mask of queries x keys")

    def pairs(self, call: Call) -> int:
        return super().pairs(call) if call.unmasked else call.all_pairs

    def prepare(self, call: Call) -> FusedMask:
        """A bias is added to a mask, so it always needs one.

        SDPA leaves a fully masked row to each kernel (NaN or uniform). Such rows are unmasked here and cut
        out of the result, so neither they nor their gradients reach anything.
        """
        bound, device = call.bound, call.device
        assert bound is not None
        if call.unmasked and not call.needs.bias:
            return FusedMask(None, None, bound.is_causal)
        indices = pair_indices(bound, device) if call.needs.bias else None
        if not bound.has_empty_queries:
            return FusedMask(bound.mask(device), None, False, indices)
        empty = bound.empty(device)
        return FusedMask(bound.mask(device) | empty, empty, False, indices)

    def products(self, q, k, v, prepared, form, bias, dropout):
        """SDPA takes a bias in the type of the queries. Half precision has too few digits for log-weights,
        which grow with the distance: everything is then computed in float32."""
        given, scale = q.dtype, form.scale
        if bias is not None and given in (torch.float16, torch.bfloat16):
            q, k, v = q.float(), k.float(), v.float()
        if k.shape[2] == 0:
            return _nothing(q, k, v).to(given), None
        mask, empty, causal, indices = prepared
        read = None if mask is None else mask.any(-2)
        if bias is not None and mask is not None:
            added = bias.matrix(q.shape[2], k.shape[2], indices).to(q.dtype)
            mask = added.masked_fill(~mask, -torch.inf)
        if causal and scale <= 0:
            q, scale = q * scale, 1.0  # PyTorch fills with -inf before it scales
        if read is not None:
            k, v = _only(read, k, v)
        grouped = q.shape[1] != k.shape[1]
        out = F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=causal, scale=scale, enable_gqa=grouped
        ).to(given)
        return out if empty is None else out.masked_fill(empty, 0.0), None


def _only(read: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values, zero where nobody reads them: there may be NaN behind padding, and 0 * NaN is no zero.

    `read` is (batch or 1, heads or 1, keys). Where heads that share a key differ, it is read by any of them.
    """
    if read.shape[1] > k.shape[1]:
        read = read.unflatten(1, (k.shape[1], -1)).any(2)
    unread = ~read.unsqueeze(-1)
    return k.masked_fill(unread, 0.0), v.masked_fill(unread, 0.0)


def _nothing(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The output when there are no keys: zero, connected to the inputs by zero gradients."""
    # The sums are over nothing: numbers of q could overflow, and 0 * inf is no zero.
    return q.new_zeros((*q.shape[:-1], v.shape[-1])) + (q[..., :0].sum() + k.sum() + v.sum())

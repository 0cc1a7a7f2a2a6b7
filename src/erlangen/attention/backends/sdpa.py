"""PyTorch's fused attention: exact with `is_causal` or no mask, and with a dense mask otherwise."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from erlangen.attention.backend import Cost, Rank, register
from erlangen.attention.biases import Bias, places
from erlangen.attention.call import Call
from erlangen.attention.kernels.form import Form
from erlangen.attention.products import Products


class Prepared(NamedTuple):
    """The mask where one is needed, which queries read nothing where there are such, and `is_causal`."""

    mask: Tensor | None
    empty: Tensor | None
    causal: bool
    places: Tensor | None = None


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    prepared: Prepared,
    *,
    scale: float,
    bias: Bias | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Attention through `F.scaled_dot_product_attention`; empty rows are zero, with zero gradient.

    SDPA takes a bias in the type of the queries. Half precision has too few digits for log-weights, which
    grow with the distance: everything is then computed in float32.
    """
    given = q.dtype
    if bias is not None and given in (torch.float16, torch.bfloat16):
        q, k, v = q.float(), k.float(), v.float()
    if k.shape[2] == 0:
        return nothing(q, k, v).to(given)
    mask, empty, causal, numbers = prepared
    read = None if mask is None else mask.any(-2)
    if bias is not None and mask is not None:
        added = bias.matrix(q.shape[2], k.shape[2], numbers).to(q.dtype)
        mask = added.masked_fill(~mask, -torch.inf)
    if causal and scale <= 0:
        q, scale = q * scale, 1.0  # PyTorch fills with -inf before it scales
    if read is not None:
        k, v = only(read, k, v)
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
    out = out.to(given)
    return out if empty is None else out.masked_fill(empty, 0.0)


def only(read: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values, zero where nobody reads them: there may be NaN behind padding, and 0 * NaN is no zero.

    `read` is (batch or 1, heads or 1, keys). Where heads that share a key differ, it is read by any of them.
    """
    if read.shape[1] > k.shape[1]:
        read = read.unflatten(1, (k.shape[1], -1)).any(2)
    unread = ~read.unsqueeze(-1)
    return k.masked_fill(unread, 0.0), v.masked_fill(unread, 0.0)


def nothing(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The output when there are no keys: zero, connected to the inputs by zero gradients."""
    # The sums are over nothing: numbers of q could overflow, and 0 * inf is no zero.
    return q.new_zeros((*q.shape[:-1], v.shape[-1])) + (q[..., :0].sum() + k.sum() + v.sum())


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

    def prepare(self, call: Call) -> Prepared:
        """A bias is added to a mask, so it always needs one.

        SDPA leaves a fully masked row to each kernel (NaN or uniform). Such rows are unmasked here and cut
        out of the result, so neither they nor their gradients reach anything.
        """
        bound, device = call.bound, call.device
        assert bound is not None
        if call.unmasked and not call.needs.bias:
            return Prepared(None, None, bound.is_causal)
        numbers = places(bound, device) if call.needs.bias else None
        if not bound.has_empty_queries:
            return Prepared(bound.mask(device), None, False, numbers)
        empty = bound.empty(device)
        return Prepared(bound.mask(device) | empty, empty, False, numbers)

    def products(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        prepared: Prepared,
        form: Form,
        bias: Bias | None,
        dropout: float,
    ) -> tuple[Tensor, None]:
        return attend(q, k, v, prepared, scale=form.scale, bias=bias, dropout=dropout), None

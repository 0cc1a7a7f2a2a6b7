"""FlexAttention over the blocks of a relation: compiled on CUDA, as PyTorch's eager form elsewhere."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import AuxRequest, BlockMask, flex_attention

from erlangen.attention.backend import Cost, Rank, register
from erlangen.attention.block_masks import from_bound
from erlangen.attention.call import Call
from erlangen.attention.kernels.form import Map
from erlangen.attention.products import Products
from erlangen.caches import cached
from erlangen.errors import BackendError


@cached(1)
def _compiled() -> Any:
    return torch.compile(flex_attention, dynamic=False)


Prepared = tuple[BlockMask, Tensor | None]
"""The blocks, and which queries read nothing where there are such."""


@register
class FlexBackend(Products):
    name = "flex"
    computes = (
        "FlexAttention with a `BlockMask` built from tiles "
        "(compiled on CUDA; on a CPU its eager form, for checks)"
    )
    scales = "the blocks"

    def refuses(self, call: Call) -> str | None:
        why = super().refuses(call)
        if why is None and call.needs.dropout:
            return "has no dropout on the attention weights"
        if why is None and not (call.queries and call.keys):
            return "needs at least one query and one key"
        return why

    def cost(self, call: Call) -> Cost | None:
        if not call.device.startswith("cuda") or call.needs.bias or not call.needs.plain:
            return None
        return Cost(Rank.BLOCKS, 0, "on CUDA FlexAttention skips the empty blocks")

    def prepare(self, call: Call) -> Prepared:
        bound, device = call.bound, call.device
        assert bound is not None
        blocks = bound.derived(("block mask", device), lambda: from_bound(bound, device=device))
        return blocks, bound.empty(device) if bound.has_empty_queries else None

    def products(self, q, k, v, prepared, form, bias, dropout):
        blocks, empty = prepared
        on_cpu = q.device.type == "cpu"
        if on_cpu and torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v)):
            raise BackendError(
                "backend 'flex' has no backward pass on a CPU: leave backend= out, run under torch.no_grad(),"
                " or move the tensors to CUDA"
            )
        function: Any = _compiled() if q.device.type == "cuda" else flex_attention
        with warnings.catch_warnings():
            # Off CUDA the eager form is what was asked for: it is for checks, not for speed.
            warnings.filterwarnings("ignore", message="flex_attention called without torch.compile")
            out, auxiliary = function(
                q,
                k,
                v,
                score_mod=_score_mod(form.map, None if bias is None else bias.values, q.shape[2]),
                block_mask=blocks,
                scale=form.scale,
                enable_gqa=q.shape[1] != k.shape[1],
                return_aux=AuxRequest(lse=True),
            )
        lse: Tensor = auxiliary.lse
        if empty is None:
            return out, lse
        return out.masked_fill(empty, 0.0), lse.masked_fill(empty.squeeze(-1), -torch.inf)


def _score_mod(map: Map, bias: Tensor | None, queries: int) -> Any:
    """What maps a score and adds a Toeplitz bias (1 or heads, queries + keys - 1), as `tiles` does."""
    if map.kind == "identity" and bias is None:
        return None

    def modify(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        score = map(score)
        if bias is None:
            return score
        return score + bias[h * 0 if bias.shape[0] == 1 else h, j - i + queries - 1]

    return modify

"""The dense oracle: every formula as written, at a cost of queries x keys. Other backends agree with it."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from erlangen.attention.backend import Backend, Cost, Rank, register
from erlangen.attention.biases import LogitBias, pair_indices
from erlangen.attention.call import Call
from erlangen.attention.dropout import Drop
from erlangen.attention.kernels import Kernel, SoftmaxDot

in_transform: Any = torch._C._functorch.maybe_current_level  # pyright: ignore[reportAttributeAccessIssue]
"""The level of `torch.func`, or None: under `vmap` nothing can be asked of numbers."""


class DenseMask(NamedTuple):
    """The mask, and the indices i * keys + j of the related pairs where there is one relation."""

    mask: Tensor
    indices: Tensor | None


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    prepared: DenseMask,
    *,
    kernel: Kernel | None = None,
    bias: LogitBias | None = None,
    dropout: float | Drop = 0.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Output, log-sum-exp and weights of attention over N_i only; half precision is computed in float32.

    An empty row has zero weights, zero output, zero gradient, and log-sum-exp -inf.
    """
    kernel = SoftmaxDot() if kernel is None else kernel
    groups = q.shape[1] // k.shape[1]
    wide = torch.float32 if q.dtype in (torch.float16, torch.bfloat16) else q.dtype
    queries, keys, values = (
        x.to(wide) for x in (q, k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1))
    )
    unread = ~prepared.mask.any(-2).unsqueeze(-1)
    keys, values = keys.masked_fill(unread, 0.0), values.masked_fill(unread, 0.0)
    added = None if bias is None else bias.matrix(q.shape[2], k.shape[2], prepared.indices)
    scores, top = kernel.matrix(queries, keys), None
    if kernel.exponential:
        scores = (scores if added is None else scores + added).masked_fill(~prepared.mask, -torch.inf)
        top = _row_maximum(scores)
        scores = (scores - top).exp()
    else:
        scores = (scores if added is None else scores * added.exp()).masked_fill(~prepared.mask, 0.0)
    total = scores.sum(-1, keepdim=True)
    none = total == 0
    lse = total.masked_fill(none, 1.0).log().masked_fill(none, -torch.inf)
    weights = scores / total.masked_fill(none, 1.0)
    if isinstance(dropout, Drop):
        items, heads, i, j = (
            torch.arange(size, device=q.device).reshape([-1 if d == n else 1 for d in range(4)])
            for n, size in enumerate(weights.shape)
        )
        weights = dropout(weights, items, heads, i, j)
    elif dropout:
        weights = torch.nn.functional.dropout(weights, dropout)
    lse = (lse if top is None else lse + top).squeeze(-1)
    return _mean(weights, values, prepared.mask).to(q.dtype), lse, weights.to(q.dtype)


def _mean(weights: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """weights @ values over the pairs of the mask alone: 0 * NaN is no zero."""
    odd = ~values.isfinite()
    if not (torch.compiler.is_compiling() or in_transform() or odd.any()):
        return weights @ values
    reads_odd = mask.to(values.dtype) @ odd.to(values.dtype) > 0
    return torch.where(reads_odd, weights @ values, weights @ values.masked_fill(odd, 0.0))


def _row_maximum(scores: Tensor) -> Tensor:
    """The maximum of each row of scores, 0 in a row without any."""
    if scores.shape[-1] == 0:
        return scores.new_zeros((*scores.shape[:-1], 1))
    top = scores.detach().amax(-1, keepdim=True)
    return top.masked_fill(top == -torch.inf, 0.0)


@register
class ReferenceBackend(Backend):
    name = "reference"
    computes = "the dense oracle, in any dtype"
    scales = "queries x keys"
    weights = True

    def refuses(self, call: Call) -> str | None:
        return None

    def cost(self, call: Call) -> Cost | None:
        if call.weights:
            return Cost(Rank.DENSE, 0, "the weights were asked for, and only the dense oracle forms them")
        if call.needs.bias or not call.needs.plain:
            return None
        return Cost(Rank.DENSE, 0, "the log-sum-exp was asked for, and SDPA does not return it")

    def pairs(self, call: Call) -> int:
        return call.all_pairs

    def prepare(self, call: Call) -> DenseMask:
        assert call.bound is not None
        return DenseMask(call.bound.mask(call.device), pair_indices(call.bound, call.device))

    def run(self, prepared, call, q, k, v, bias):
        kernel = SoftmaxDot(call.scale) if call.kernel is None else call.kernel
        # Half precision is computed in float32; autocast would round the scores again.
        with torch.autocast(q.device.type, enabled=False):
            out, lse, weights = attend(q, k, v, prepared, kernel=kernel, bias=bias, dropout=call.dropout)
        return out, weights, lse

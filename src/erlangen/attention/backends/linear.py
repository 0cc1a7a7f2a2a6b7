"""Linear attention over the full and the causal relation: sums over keys are shared, O(n dim^2)."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

from erlangen.attention.backend import Backend, Cost, Rank, register
from erlangen.attention.call import Call
from erlangen.attention.kernels.features import Linear

CHUNK = 64
"""Queries of the causal relation that are computed together, with their own keys as a matrix."""


def attend(q: Tensor, k: Tensor, v: Tensor, causal: bool, *, kernel: Linear) -> tuple[Tensor, Tensor]:
    """Output and the logarithm of the sums of weights (NaN where a signed kernel's are negative).

    >>> x = torch.ones(1, 1, 2, 1)
    >>> attend(x, x, torch.tensor([[[[0.0], [1.0]]]]), True, kernel=Linear())[0].flatten()
    tensor([0.0000, 0.5000])
    """
    queries, keys, shift = kernel.vectors(q, k)
    group = q.shape[1] // k.shape[1]
    # A column of ones: sums of weights are sums of weighted ones.
    values = torch.cat([v.to(keys.dtype), torch.ones_like(v[..., :1], dtype=keys.dtype)], -1)
    queries = queries.unflatten(1, (k.shape[1], group))
    sums = _causal(queries, keys, values) if causal else queries @ (keys.mT @ values).unsqueeze(2)
    sums = sums.flatten(1, 2)
    out, total = sums[..., :-1], sums[..., -1]
    none = total == 0
    safe = total.masked_fill(none, 1.0)
    lse = safe.log().masked_fill(none, -torch.inf)
    return (out / safe.unsqueeze(-1)).to(q.dtype), lse if shift is None else lse + shift


def _causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """sum over j <= i of <q_i, k_j> v_j, for q (batch, kv heads, group, n, features).

    The sum over earlier chunks is a matrix that grows chunk by chunk; within a chunk pairs are masked.
    """
    n = k.shape[2]
    missing = -n % CHUNK
    pad = torch.nn.functional.pad
    q, k, v = (pad(x, (0, 0, 0, missing)) for x in (q, k, v))
    q, k, v = q.unflatten(3, (-1, CHUNK)), k.unflatten(2, (-1, CHUNK)), v.unflatten(2, (-1, CHUNK))
    states = (k.mT @ v).cumsum(2)
    before = pad(states[:, :, :-1], (0, 0, 0, 0, 1, 0)).unsqueeze(2)
    within = (q @ k.mT.unsqueeze(2)).tril() @ v.unsqueeze(2)
    return (q @ before + within).flatten(3, 4)[..., :n, :]


@register
class LinearBackend(Backend):
    name = "linear"
    computes = "the kernel `Linear` over the full and the causal relation"
    scales = "queries x dim^2"

    def refuses(self, call: Call) -> str | None:
        if not call.needs.linear:
            return "computes the kernel Linear, without bias and dropout"
        return None if call.unmasked else "takes the full and the causal relation; use 'edges'"

    def cost(self, call: Call) -> Cost:
        return Cost(Rank.SPECIAL, 0, "sums over keys are shared by all queries: linear in their number")

    def prepare(self, call: Call) -> bool:
        """Whether the relation is causal; it is full otherwise."""
        assert call.bound is not None
        return not call.bound.is_full

    def run(self, prepared, call, q, k, v, bias):
        with torch.autocast(q.device.type, enabled=False):
            out, lse = attend(q, k, v, prepared, kernel=cast(Linear, call.kernel))
        return out, None, lse

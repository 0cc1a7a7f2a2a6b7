"""The dense oracle: every formula as written, at a cost of queries x keys. Other backends agree with it."""

from __future__ import annotations

import torch
from torch import Tensor

from erlangen.attention.binding import Bound

Prepared = tuple[Tensor, Tensor]
"""The mask, and which queries read nothing."""


def prepare(bound: Bound, device: str) -> Prepared:
    """What `attend` needs of a bound relation."""
    return bound.mask(device), bound.empty(device)


def attend(
    q: Tensor, k: Tensor, v: Tensor, prepared: Prepared, *, scale: float, dropout: float = 0.0
) -> tuple[Tensor, Tensor, Tensor]:
    """Output, log-sum-exp and weights of attention over N_i only; half precision is computed in float32.

    An empty row has zero weights, zero output, zero gradient, and log-sum-exp -inf.
    """
    mask, empty = prepared
    groups = q.shape[1] // k.shape[1]
    wide = torch.float32 if q.dtype in (torch.float16, torch.bfloat16) else q.dtype
    queries, keys, values = (
        x.to(wide) for x in (q, k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1))
    )
    scores = (queries @ keys.mT * scale).masked_fill(~mask, -torch.inf)
    if k.shape[2] == 0:
        top = scores.new_zeros((*scores.shape[:-1], 1))
    else:
        top = scores.detach().amax(-1, keepdim=True)
        top = top.masked_fill(top == -torch.inf, 0.0)
    exponentials = (scores - top).exp()
    total = exponentials.sum(-1, keepdim=True)
    lse = (total.log() + top).squeeze(-1)
    weights = exponentials / total.masked_fill(empty, 1.0)
    if dropout:
        weights = torch.nn.functional.dropout(weights, dropout)
    return (weights @ values).to(q.dtype), lse, weights.to(q.dtype)

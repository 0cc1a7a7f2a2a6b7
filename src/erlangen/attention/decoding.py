"""A step of decoding: one query per head, at a number of keys that has not been seen before."""

from __future__ import annotations

from math import sqrt
from typing import Any

import torch
from torch import Tensor

from erlangen.attention import native, packing
from erlangen.relations import Relation


def decode(q: Tensor, k: Tensor, v: Tensor, relation: Any, scale: float | None) -> Tensor | None:
    """Attention of one query per head, where it reads one run of keys; None where this is not such a call.

    The general way binds the relation to the number of keys and keeps what it finds. While decoding, that
    number grows at every step, and binding takes longer than attention: here only the row is asked for.

    >>> from erlangen.relations import Window
    >>> x = torch.ones(1, 1, 4, 2)
    >>> out = decode(x[..., 3:, :], x, x, Window(lookback=1), None)
    >>> out is None or out.tolist()  # None without the native extension
    [[[[1.0, 1.0]]]]
    >>> decode(x, x, x, Window(lookback=1), None) is None  # four queries
    True
    """
    # Every line is a part of each step: what fails most often is asked first, what is cheap before the rest.
    if q.dim() != 4 or q.size(2) != 1 or k.dim() != 4 or v.dim() != 4:
        return None
    if packing.native is None or not isinstance(relation, Relation) or not native._unwatched(q, k, v):
        return None
    if not (q.is_cpu and k.is_cpu and v.is_cpu) or torch.is_autocast_enabled("cpu"):
        return None
    if q.requires_grad or k.requires_grad or v.requires_grad:
        if torch.is_grad_enabled():
            return None
        q, k, v = q.detach(), k.detach(), v.detach()
    keys = k.size(2)
    run = relation.run(keys - 1, keys)
    if run is None:
        return None
    dim, value_dim = q.size(3), v.size(3)
    out = torch.empty_like(q) if dim == value_dim else q.new_empty((q.size(0), q.size(1), 1, value_dim))
    try:
        packing.native.run_forward(
            *native._capsules(q, k, v, out),
            run.start,
            run.stop,
            1 / sqrt(dim) if scale is None else float(scale),
            torch.get_num_threads(),
        )
    except (ValueError, TypeError):
        return None  # tensors that do not fit: the general way says in words what is wrong with them
    return out

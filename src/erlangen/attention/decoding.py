"""A step of decoding: one query per head, at a number of keys that has not been seen before."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from erlangen.attention import packing
from erlangen.attention.operators import unwatched
from erlangen.relations import Relation

run_forward = getattr(packing.native, "run_forward", None)
MAKES_TENSORS = hasattr(Tensor, "__dlpack_c_exchange_api__")
"""Whether this PyTorch makes tensors for the extension; an older one makes the output before the call."""


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
    # Every line is a part of each step: what fails most often is asked first, the rest by the kernel.
    if not isinstance(q, Tensor) or q.dim() != 4 or q.size(2) != 1 or k.dim() != 4 or not q.is_cpu:
        return None
    if run_forward is None or not isinstance(relation, Relation) or isinstance(scale, Tensor):
        return None
    if not unwatched(q, k, v) or torch.is_autocast_enabled("cpu"):
        return None
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
        return None
    keys = k.size(2)
    run = relation.run(keys - 1, keys)
    if run is None:
        return None
    out = None if MAKES_TENSORS else q.new_empty((*q.shape[:3], v.size(-1)))
    try:
        made = run_forward(q, k, v, run.start, run.stop, scale, torch.get_num_threads(), out)
        return made if out is None else out
    except (ValueError, TypeError):
        return None  # tensors that do not fit: the general way takes them, or says in words what is wrong

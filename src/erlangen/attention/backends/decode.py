"""A step of decoding: one query per head, at a number of keys that has not been seen before."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from erlangen.attention import packing
from erlangen.attention.backend import Backend, Cost, Rank, register
from erlangen.attention.call import Call
from erlangen.attention.operators import unwatched

run_forward: Any = getattr(packing.native, "run_forward", None)
MAKES_TENSORS = hasattr(Tensor, "__dlpack_c_exchange_api__")
"""Whether this PyTorch makes tensors for the extension; an older one makes the output before the call."""


def step(q: Tensor, k: Tensor, v: Tensor, relation: Any, scale: float | None) -> Tensor | None:
    """Attention of one query per head, where it reads one run of keys; None where this is not such a call.

    Other backends bind the relation to the number of keys and keep what they find. While decoding, that
    number grows at every step, and binding takes longer than attention: here only the row is computed.

    >>> from erlangen.relations import Window
    >>> x = torch.ones(1, 1, 4, 2)
    >>> out = step(x[..., 3:, :], x, x, Window(lookback=1), None)
    >>> out is None or out.tolist()  # None without the native extension
    [[[[1.0, 1.0]]]]
    >>> step(x, x, x, Window(lookback=1), None) is None  # four queries
    True
    """
    read = _read(q, k, v, relation, scale)
    if read is None:
        return None
    try:
        return _attend(q, k, v, read, scale)
    except (ValueError, TypeError):
        return None  # tensors that do not fit: other backends take them, or `attend` says what is wrong


def one_run(q: Tensor, k: Tensor, v: Tensor, relation: Any, scale: float | None) -> range | None:
    """The keys that the query of each head reads, where `step` computes the call; else None."""
    read = _read(q, k, v, relation, scale)
    if read is None:
        return None
    try:
        _attend(q, k, v, range(0), scale)  # of no keys the kernel computes nothing, after the same checks
    except (ValueError, TypeError):
        return None
    return read


def _read(q: Tensor, k: Tensor, v: Tensor, relation: Any, scale: Any) -> range | None:
    # Every line is a part of each step: what fails most often is tested first, the rest by the kernel.
    if not isinstance(q, Tensor) or q.dim() != 4 or q.size(2) != 1 or k.dim() != 4 or not q.is_cpu:
        return None
    if run_forward is None or isinstance(scale, Tensor):
        return None
    if not unwatched(q, k, v) or torch.is_autocast_enabled("cpu"):
        return None
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
        return None
    keys, run = k.size(2), getattr(relation, "run", None)  # what is no relation has none
    return None if run is None or isinstance(relation, type) else run(keys - 1, keys)


def _attend(q: Tensor, k: Tensor, v: Tensor, read: range, scale: float | None) -> Tensor:
    out = None if MAKES_TENSORS else q.new_empty((*q.shape[:3], v.size(-1)))
    made = run_forward(q, k, v, read.start, read.stop, scale, torch.get_num_threads(), out)
    return made if out is None else out


@register
class DecodeBackend(Backend):
    name = "decode"
    computes = "one query per head that reads one run of keys: a step of decoding, native, without an index"
    scales = "the edges"
    lse = False

    def refuses(self, call: Call) -> str | None:
        if call.kernel is None and not call.needs.dropout and call.one_run is not None:
            return None
        return (
            "takes one query per head that reads one run of keys, without kernel, bias, dropout and gradient"
        )

    def cost(self, call: Call) -> Cost:
        return Cost(Rank.SPECIAL, 0, "one query that reads one run of keys: nothing is bound")

    def prepare(self, call: Call) -> range | None:
        return call.one_run

    def run(self, prepared, call, q, k, v, bias):
        return _attend(q, k, v, prepared, call.scale), None, None

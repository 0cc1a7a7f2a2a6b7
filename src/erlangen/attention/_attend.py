"""Attention over a relation: the one function that every layer calls."""

from __future__ import annotations

from operator import index
from typing import Any, Never

import torch
from torch import Tensor

from erlangen.attention._plan import decide, decide_once, fitting
from erlangen.attention.backend import BACKENDS
from erlangen.attention.backends.decode import step
from erlangen.attention.biases import bias_of
from erlangen.attention.call import call_of, items_differ, run_time_only
from erlangen.attention.compiling import register, uncompiled
from erlangen.attention.foreign import refuse
from erlangen.attention.kernels import Kernel
from erlangen.attention.kernels.softmax import absorb
from erlangen.attention.prepared import PackedRelation
from erlangen.attention.shapes import fold
from erlangen.relations import Bindable, Full, Neighborhoods, WeightedRelation


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    relation: Bindable | Neighborhoods | WeightedRelation | PackedRelation | None = None,
    *,
    kernel: Kernel | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
    backend: str | None = None,
    return_weights: bool = False,
    return_lse: bool = False,
    **foreign: Never,
) -> Any:
    """Attention in which query i reads exactly the keys N_i of the relation.

        h_i = sum over j in N_i of alpha_ij v_j,   alpha_i = softmax over N_i of (scale <q_i, k_j>)

    **A query that reads nothing gives zero, with zero gradient**, in every backend.

    Shapes are those of `F.scaled_dot_product_attention`: q (..., heads, queries, dim), k (..., kv heads,
    keys, dim), v (..., kv heads, keys, value dim). With fewer kv heads than heads, each kv head serves
    heads / kv heads consecutive heads. `relation` is a relation, a family (`PerHead`, `Batch`: one member
    per item of the flattened leading dimensions), neighborhoods, or what `pack` made; `Full()` if not given.
    With fewer queries than keys the queries are the last positions. A weighted relation (`ALiBi`,
    `RelativeBias`, ...) adds its log-weights to the logits; gradients reach them.

    `kernel` replaces the exponential by another function of query and key (see `erlangen.kernels`), still
    normalised over N_i. `scale` is that of the default kernel, 1 / sqrt(dim) if not given. `dropout` acts on
    the weights and draws from torch's generator. `backend` forces one by name and never falls back;
    by default `plan` decides. Returns the output, or a tuple with the weights (..., heads, queries,
    keys) and the log-sum-exp (..., heads, queries; -inf on empty rows) where asked for, in this order.
    An argument of another library (`attn_mask=`, `is_causal=`, `dropout_p=`, ...) is refused with the word
    for it here.

    >>> import torch
    >>> from erlangen.relations import Causal
    >>> x = torch.ones(1, 3, 4)
    >>> attend(x, x, torch.arange(3.).reshape(1, 3, 1), Causal())
    tensor([[[0.0000],
             [0.5000],
             [1.0000]]])
    """
    if foreign:
        refuse("attend", foreign)
    if kernel is None and backend in (None, "decode") and not (dropout or return_weights or return_lse):
        # A step of decoding takes as long as making the call, so `decode` is asked before anything is made.
        out = step(q, k, v, Full() if relation is None else relation, scale)
        if out is not None:
            return out
    if torch.compiler.is_dynamo_compiling() and run_time_only(relation):
        # Which keys are read is known when the call runs: the graph breaks here, or fullgraph=True refuses.
        return _uncompiled(
            *(q, k, v, relation), kernel=kernel, scale=scale, dropout=dropout, backend=backend,
            return_weights=return_weights, return_lse=return_lse,
        )  # fmt: skip
    call = call_of(q, k, v, relation, kernel, scale, dropout, backend, return_weights, return_lse)
    q4, k4, v4 = (fold(x) for x in (q, k, v))
    bound = None
    if isinstance(call.reads, PackedRelation):
        chosen, prepared = fitting(call).backend, call.reads.index
    else:
        batch = index(q4.shape[0]) if items_differ(call.reads) else 1
        if torch.compiler.is_compiling():
            chosen, prepared = decide_once(call.reads, batch, *call.facts[:-1], *call.needs)
        else:
            chosen, prepared, bound = decide(call, batch, (q4, k4))
    bias = None if call.weighted is None else bias_of(call.weighted, bound, call.queries, call.keys, q4)
    out, weights, lse = BACKENDS[chosen].run(prepared, call, q4, k4, v4, bias)
    if kernel is not None and kernel.sink is not None:
        assert lse is not None
        out, weights, lse = absorb(kernel.sink, out, weights, lse)
    asked_for = [out, *([weights] if return_weights else []), *([lse] if return_lse else [])]
    lead = q.shape[:-3]
    if len(lead) != 1:
        asked_for = [x.reshape(*lead, *x.shape[1:]) for x in asked_for]
    return asked_for[0] if len(asked_for) == 1 else tuple(asked_for)


_uncompiled = uncompiled(attend)
register()

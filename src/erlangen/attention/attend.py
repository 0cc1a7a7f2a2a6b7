"""Attention over a relation: the one function that every layer calls."""

from __future__ import annotations

from math import sqrt
from operator import index
from typing import Any, Never

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from erlangen.attention.biases import bias_of, support
from erlangen.attention.binding import Bound, bind, made_plain
from erlangen.attention.compiling import constant, register, uncompiled
from erlangen.attention.decoding import decode
from erlangen.attention.foreign import refuse
from erlangen.attention.kernels import Kernel
from erlangen.attention.kernels.form import number
from erlangen.attention.kernels.softmax import absorb
from erlangen.attention.needs import PLAIN, Needs, bias_kind, needs_of
from erlangen.attention.packing import Packed
from erlangen.attention.plan import choose, prepare, run
from erlangen.attention.prepared import PackedRelation
from erlangen.attention.shapes import check, fold
from erlangen.errors import BackendError, ParameterError
from erlangen.relations import Batch, Bindable, Full, Neighborhoods, WeightedRelation


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
    the weights and draws from torch's generator. `backend` forces one of `plan.BACKENDS` and never falls
    back; by default `plan` decides. Returns the output, or a tuple with the weights (..., heads, queries,
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
    relation = Full() if relation is None else relation
    if backend is None and kernel is None and not (dropout or return_weights or return_lse):
        step = decode(q, k, v, relation, scale)
        if step is not None:
            return step
    if torch.compiler.is_compiling():
        relation = constant(relation)
    reads, weighted = support(relation)
    # Of a packed relation nothing is asked: the compiler would guard it by identity.
    unpacked = not isinstance(reads, PackedRelation)
    if torch.compiler.is_dynamo_compiling() and unpacked and _data_dependent(reads):
        # Which keys are read is known when the call runs: the graph breaks here, or fullgraph=True refuses.
        return _uncompiled(
            q,
            k,
            v,
            relation,
            kernel=kernel,
            scale=scale,
            dropout=dropout,
            backend=backend,
            return_weights=return_weights,
            return_lse=return_lse,
        )
    check(q, k, v, reads, PackedRelation)
    if not 0.0 <= dropout < 1.0:
        raise ParameterError(f"dropout must be in [0, 1), got {dropout}")
    lead = q.shape[:-3]
    q4, k4, v4 = (fold(x) for x in (q, k, v))
    heads, queries, keys = index(q4.shape[1]), q4.shape[2], k4.shape[2]
    if not isinstance(reads, PackedRelation):
        # A relation is bound to numbers: `index` makes the compiler settle on them where it would keep
        # symbols. The size of the batch stays a symbol unless items differ in what they read.
        queries, keys = index(queries), index(keys)
    if (torch.compiler.is_compiling() or torch._C._is_tracing()) and unpacked and _data_dependent(reads):
        tracer = "torch.export" if torch.compiler.is_compiling() else "torch.jit.trace"
        raise ParameterError(
            f"{relation} depends on the data, and {tracer} would keep what it reads in this call for "
            "all others; use torch.compile, in which the graph breaks at this call"
        )
    batch = index(q4.shape[0]) if _items_differ(reads) else 1
    if kernel is None:
        scale = 1 / sqrt(max(q.shape[-1], 1)) if scale is None else number(scale, "attend(scale)")
        needs = PLAIN if weighted is None else Needs(bias=bias_kind(weighted))
    else:
        if not isinstance(kernel, Kernel):
            raise ParameterError(f"kernel must be one of erlangen.kernels, got {kernel!r}")
        if scale is not None:
            raise ParameterError(f"scale={scale} is that of the default kernel; give it to {kernel!r}")
        kernel.check(heads, q4.shape[3])
        needs = needs_of(kernel, q4.shape[3], weighted, dropout)
        if return_lse and not kernel.positive:
            raise ParameterError(f"{kernel!r} is not positive: its sums have no logarithm to return")
    needs_lse = return_lse or (kernel is not None and kernel.sink is not None)
    asked = (batch, heads, queries, keys, str(q.device), backend, return_weights, needs_lse)
    if isinstance(reads, PackedRelation):
        reads.check(queries, keys, needs)
        if return_weights or backend not in (None, reads.backend):
            asked_for = "the weights" if return_weights else f"backend {backend!r}"
            raise BackendError(
                f"the relation was packed for {reads.backend!r}, which does not give {asked_for}"
            )
        chosen, prepared, bound = reads.backend, reads.index, None
    elif torch.compiler.is_compiling():
        chosen, prepared = _decide_once(reads, *asked, *needs)
        bound = None
    else:
        chosen, prepared, bound = _decide(reads, *asked, needs, vectors=(q4, k4))
    bias = None if weighted is None else bias_of(weighted, bound, queries, keys, q4)
    out, weights, lse = run(
        chosen, q4, k4, v4, prepared, kernel=kernel, scale=scale, bias=bias, dropout=dropout
    )
    if kernel is not None and kernel.sink is not None:
        out, weights, lse = absorb(kernel.sink, out, weights, lse)
    asked_for = [out, *([weights] if return_weights else []), *([lse] if return_lse else [])]
    if len(lead) != 1:
        asked_for = [x.reshape(*lead, *x.shape[1:]) for x in asked_for]
    return asked_for[0] if len(asked_for) == 1 else tuple(asked_for)


def _items_differ(reads: Any) -> bool:
    if isinstance(reads, Batch | PackedRelation):
        return isinstance(reads, Batch)
    return _data_dependent(reads)


@torch.compiler.assume_constant_result
def _data_dependent(relation: Any) -> bool:
    return isinstance(relation, Bindable) and relation.data_dependent


@uncompiled
def _decide(
    relation: Bindable | Neighborhoods,
    batch: int,
    heads: int,
    queries: int,
    keys: int,
    device: str,
    backend: str | None,
    weights: bool,
    lse: bool,
    needs: Needs,
    vectors: tuple[Tensor, Tensor] | None = None,
) -> tuple[str, Any, Bound]:
    bound = bind(relation, batch=batch, heads=heads, queries=queries, keys=keys, vectors=vectors)

    def decide() -> tuple[str, Any]:
        chosen, _ = choose(bound, device, backend, weights, lse, needs)
        return chosen, prepare(chosen, bound, device, needs)

    chosen, prepared = bound.derived((device, backend, weights, lse, needs), decide)
    return chosen, prepared, bound


@torch.compiler.assume_constant_result
def _decide_once(relation: Any, *asked: Any) -> tuple[str, Any]:
    """Under `torch.compile` the backend and its indices are settled while tracing, and kept for the graph."""
    split = -len(Needs._fields)  # the compiler passes plain values
    needs: Any = Needs._make(asked[split:])

    def decide() -> tuple[str, Any]:
        chosen, prepared, _ = _decide(relation, *asked[:split], needs=needs)
        # The index is a tensor of the graph, so that the relation goes wherever the graph does.
        return chosen, prepared.index if isinstance(prepared, Packed) else prepared

    with _disable_current_modes():  # what is kept for later calls must not be a fake tensor
        return made_plain(decide)


_uncompiled = uncompiled(attend)
register()

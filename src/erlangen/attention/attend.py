"""Attention over a relation: the one function that every layer calls."""

from __future__ import annotations

from math import sqrt
from operator import index
from typing import Any

import torch
from torch import Tensor

from erlangen.attention.binding import Bound, bind
from erlangen.attention.plan import choose, prepare, run
from erlangen.attention.shapes import check, fold
from erlangen.errors import ParameterError
from erlangen.relations import Bindable, Full, Neighborhoods


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    relation: Bindable | Neighborhoods | None = None,
    *,
    scale: float | None = None,
    dropout: float = 0.0,
    backend: str | None = None,
    return_weights: bool = False,
    return_lse: bool = False,
) -> Any:
    """Softmax attention in which query i reads exactly the keys N_i of the relation.

        h_i = sum over j in N_i of alpha_ij v_j,   alpha_i = softmax over N_i of (scale <q_i, k_j>)

    **A query that reads nothing gives zero, with zero gradient**, in every backend.

    Shapes are those of `F.scaled_dot_product_attention`: q (..., heads, queries, dim), k (..., kv heads,
    keys, dim), v (..., kv heads, keys, value dim). With fewer kv heads than heads, each kv head serves
    heads / kv heads consecutive heads. `relation` is a relation, a family (`PerHead`, `Batch`: one member
    per item of the flattened leading dimensions), or neighborhoods; `Full()` if not given. With fewer
    queries than keys the queries are the last positions.

    `scale` is 1 / sqrt(dim) by default. `dropout` acts on the weights and draws from torch's generator.
    `backend` forces "reference", "sdpa", "tiles", "edges" or "flex" and never falls back; by default `plan`
    decides. Returns the output, or a tuple with the weights (..., heads, queries, keys) and the log-sum-exp
    (..., heads, queries; -inf on empty rows) where asked for, in this order.

    >>> import torch
    >>> from erlangen.relations import Causal
    >>> x = torch.ones(1, 3, 4)
    >>> attend(x, x, torch.arange(3.).reshape(1, 3, 1), Causal())
    tensor([[[0.0000],
             [0.5000],
             [1.0000]]])
    """
    relation = Full() if relation is None else relation
    check(q, k, v, relation)
    if not 0.0 <= dropout < 1.0:
        raise ParameterError(f"dropout must be in [0, 1), got {dropout}")
    lead = q.shape[:-3]
    q4, k4, v4 = (fold(x) for x in (q, k, v))
    # A relation is bound to numbers: `index` makes the compiler settle on them where it would keep symbols.
    batch, heads, queries, keys = (
        index(q4.shape[0]),
        index(q4.shape[1]),
        index(q4.shape[2]),
        index(k4.shape[2]),
    )
    asked = (batch, heads, queries, keys, str(q.device), backend)
    if torch.compiler.is_compiling():
        chosen, prepared = _decide_once(relation, *asked, return_weights, return_lse)
        bound = None
    else:
        chosen, prepared, bound = _decide(relation, *asked, return_weights, return_lse, vectors=(q4, k4))
    scale = 1 / sqrt(q.shape[-1]) if scale is None else float(scale)
    out, weights, lse = run(chosen, q4, k4, v4, prepared, scale=scale, dropout=dropout)
    del bound  # a native index lives as long as its binding
    asked_for = [out, *([weights] if return_weights else []), *([lse] if return_lse else [])]
    if len(lead) != 1:
        asked_for = [x.reshape(*lead, *x.shape[1:]) for x in asked_for]
    return asked_for[0] if len(asked_for) == 1 else tuple(asked_for)


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
    vectors: tuple[Tensor, Tensor] | None = None,
) -> tuple[str, Any, Bound]:
    bound = bind(relation, batch=batch, heads=heads, queries=queries, keys=keys, vectors=vectors)

    def decide() -> tuple[str, Any]:
        chosen, _ = choose(bound, device, backend, weights, lse)
        return chosen, prepare(chosen, bound, device)

    chosen, prepared = bound.derived((device, backend, weights, lse), decide)
    return chosen, prepared, bound


_kept: list[Bound] = []


@torch.compiler.assume_constant_result
def _decide_once(*arguments: Any) -> tuple[str, Any]:
    """Under `torch.compile` the backend and its indices are settled while tracing, and kept for the graph."""
    chosen, prepared, bound = _decide(*arguments)
    _kept.append(bound)
    return chosen, prepared

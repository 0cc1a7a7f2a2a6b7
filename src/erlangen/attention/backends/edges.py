"""Native attention over the edges of a relation: for irregular graphs, and for few queries."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from erlangen.attention import native, packing
from erlangen.attention.backend import Cost, Rank, register
from erlangen.attention.biases import Bias
from erlangen.attention.call import Call
from erlangen.attention.kernels.form import IDENTITY, Form, Map
from erlangen.attention.products import NativeProducts, seed_of


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    prepared: packing.Packed | Tensor,
    *,
    scale: float,
    dropout: float = 0.0,
    seed: Tensor | None = None,
    bias: Tensor | None = None,
    map: Map = IDENTITY,
    vector: Tensor | None = None,
    per_edge: bool = False,
) -> tuple[Tensor, Tensor]:
    """Attention of q (B, H, L, D) to k (B, Hkv, S, D) and v (B, Hkv, S, Dv): the output and the log-sum-exp.

    One pass over the runs of each query; nothing is stored per edge.
    Query head h reads key head h // (H / Hkv). `seed` decides what dropout drops. `bias` (1 or H, L + S - 1)
    adds bias[h, j - i + L - 1] to the score of query i and key j; place S - 1 is the diagonal j = i + S - L.
    `map` is applied to scaled products before the bias is added.
    With `per_edge` the bias has shape (1 or H, edges), in the order of the edges. With a `vector` (1 or H, D)
    the score is sum over d of vector_d map(q_d + k_d) instead.

    >>> import torch
    >>> from erlangen.attention.binding import bind
    >>> from erlangen.relations import Causal
    >>> bound = bind(Causal(), batch=1, heads=1, queries=3, keys=3)
    >>> v = torch.eye(3).view(1, 1, 3, 3)
    >>> if native.available():
    ...     out, lse = attend(torch.zeros(1, 1, 3, 3), v, v, bound.packed, scale=1.0)
    ...     assert torch.allclose(out[0, 0], torch.tensor([[1, 0, 0], [1 / 2, 1 / 2, 0], [1 / 3] * 3]))
    """
    q, k, v, bias = native.cast(q, k, v, bias, per_edge)
    if vector is None and not per_edge and map is IDENTITY:
        return native.call_edges(q, k, v, bias, prepared, scale, dropout, seed)
    if vector is not None:
        vector = vector.to(torch.float64 if q.dtype == torch.float64 else torch.float32)
    return native.call_edges(
        q, k, v, bias, prepared, scale, dropout, seed, vector, per_edge, map.code, map.a, map.b
    )


@register
class EdgesBackend(NativeProducts):
    name = "edges"
    computes = "query by query over its runs of keys, native"
    scales = "the edges"
    vector = True
    per_edge = True

    def cost(self, call: Call) -> Cost:
        assert call.bound is not None
        edges = call.bound.num_edges
        return Cost(Rank.NATIVE, edges, f"edge by edge {edges} units of work")

    def products(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        prepared: packing.Packed | Tensor,
        form: Form,
        bias: Bias | None,
        dropout: float,
    ) -> tuple[Tensor, Tensor]:
        options: dict[str, Any] = {"map": form.map}
        if form.vector is not None:
            options["vector"] = form.vector if form.vector.dim() == 2 else form.vector[None]
        if bias is not None:
            options |= {"bias": bias.values, "per_edge": bias.per_edge}
        seed = seed_of(dropout)
        return attend(q, k, v, prepared, scale=form.scale, dropout=dropout, seed=seed, **options)

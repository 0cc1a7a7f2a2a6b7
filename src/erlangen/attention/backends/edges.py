"""Native attention over the edges of a relation: for irregular graphs, and for few queries."""

from __future__ import annotations

import torch
from torch import Tensor

from erlangen.attention import native, packing


def available() -> bool:
    """Whether this backend can run here: the native extension is built.

    >>> from erlangen.attention import native
    >>> available() == native.available()
    True
    """
    return native.available()


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bound: packing.Binding,
    *,
    scale: float,
    dropout: float = 0.0,
    seed: int = 0,
    bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention of q (B, H, L, D) to k (B, Hkv, S, D) and v (B, Hkv, S, Dv): the output and the log-sum-exp.

    One pass over the runs of each query; nothing is stored per edge. H must be a multiple of
    Hkv: query head h reads key head h // (H / Hkv). `bias` (1 or H, L + S - 1) adds bias[h, j - i + L - 1] to
    the score of query i and key j: its place S - 1 is the diagonal j = i + S - L.

    >>> import numpy as np, torch
    >>> from erlangen.relations import Causal
    >>> class Bound: distinct, index, queries, keys = (Causal().on(3),), np.zeros((1, 1), np.int64), 3, 3
    >>> v = torch.eye(3).view(1, 1, 3, 3)
    >>> if available():
    ...     out, lse = attend(torch.zeros(1, 1, 3, 3), v, v, Bound(), scale=1.0)
    ...     assert torch.allclose(out[0, 0], torch.tensor([[1, 0, 0], [1 / 2, 1 / 2, 0], [1 / 3] * 3]))
    """
    q, k, v, bias = native.prepare(q, k, v, bound, bias)
    if torch.compiler.is_compiling():
        index = packing.pinned_runs(bound)
    else:
        index = packing.number_of(bound, packing.PackedRuns)
    return native.call_edges(q, k, v, bias, index, scale, dropout, seed)

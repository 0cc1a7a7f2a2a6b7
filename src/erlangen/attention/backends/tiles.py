"""Native attention over the tiles of a relation: for relations whose pairs lie close together."""

from __future__ import annotations

from torch import Tensor

from erlangen.attention import native, packing
from erlangen.attention.binding import Bound
from erlangen.attention.kernels.form import IDENTITY, Map


def prepare(bound: Bound, device: str) -> packing.Packed:
    """The packed relation; it lives as long as `bound`, or as a graph that needs it."""
    return bound.packed


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
) -> tuple[Tensor, Tensor]:
    """Attention of q (B, H, L, D) to k (B, Hkv, S, D) and v (B, Hkv, S, Dv): the output and the log-sum-exp.

    Tiles of 64 x 64 pairs outside the relation are never touched, full ones need no mask.
    Query head h reads key head h // (H / Hkv). `seed` decides what dropout drops. `bias` (1 or H, L + S - 1)
    adds bias[h, j - i + L - 1] to the score of query i and key j; place S - 1 is the diagonal j = i + S - L.
    `map` is applied to scaled products before the bias is added.

    >>> import torch
    >>> from erlangen.attention.binding import bind
    >>> from erlangen.relations import Causal
    >>> bound = bind(Causal(), batch=1, heads=1, queries=3, keys=3)
    >>> v = torch.eye(3).view(1, 1, 3, 3)
    >>> if native.available():
    ...     out, lse = attend(torch.zeros(1, 1, 3, 3), v, v, prepare(bound, "cpu"), scale=1.0)
    ...     assert torch.allclose(out[0, 0], torch.tensor([[1, 0, 0], [1 / 2, 1 / 2, 0], [1 / 3] * 3]))
    """
    q, k, v, bias = native.cast(q, k, v, bias)
    if map is IDENTITY:
        return native.call_tiles(q, k, v, bias, prepared, scale, dropout, seed)
    return native.call_tiles(q, k, v, bias, prepared, scale, dropout, seed, map.code, map.a, map.b)

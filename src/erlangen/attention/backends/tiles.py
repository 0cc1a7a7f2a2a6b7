"""Native attention over the tiles of a relation: for relations whose pairs lie close together."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from erlangen.attention import native, packing
from erlangen.attention.backend import Cost, Rank, register
from erlangen.attention.biases import Bias
from erlangen.attention.call import Call
from erlangen.attention.kernels.form import IDENTITY, Form, Map
from erlangen.attention.products import NativeProducts, seed_of

# The cost in units of one edge of the `edges` backend (measured, float32, AVX2): a tile costs a little to
# visit and then by the 8 x 16 pieces in which anything is related.
TILE_VISIT = 60
TILE_PIECE = 24
PIECE = (8, 16)
FEW_QUERIES = 8
"""Below this a tile is mostly empty rows, and looking for tiles takes longer than decoding a step."""


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
    ...     out, lse = attend(torch.zeros(1, 1, 3, 3), v, v, bound.packed, scale=1.0)
    ...     assert torch.allclose(out[0, 0], torch.tensor([[1, 0, 0], [1 / 2, 1 / 2, 0], [1 / 3] * 3]))
    """
    q, k, v, bias = native.cast(q, k, v, bias)
    if map is IDENTITY:
        return native.call_tiles(q, k, v, bias, prepared, scale, dropout, seed)
    return native.call_tiles(q, k, v, bias, prepared, scale, dropout, seed, map.code, map.a, map.b)


@register
class TilesBackend(NativeProducts):
    name = "tiles"
    computes = (
        "64 x 64 tiles, native: full ones unmasked, partial ones by their bits, empty ones never touched"
    )
    scales = "the tiles"

    def cost(self, call: Call) -> Cost:
        assert call.bound is not None
        if call.queries < FEW_QUERIES:
            return Cost(Rank.NATIVE, float("inf"), "too few queries to fill a tile")
        packed = call.bound.packed
        work = call.bound.derived("work by tiles", lambda: _work(packed))
        return Cost(Rank.NATIVE, work, f"by tiles {work} units of work")

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
        values, seed = None if bias is None else bias.values, seed_of(dropout)
        return attend(
            q, k, v, prepared, scale=form.scale, dropout=dropout, seed=seed, bias=values, map=form.map
        )


def _work(packed: packing.Packed) -> int:
    """Estimated work over all heads and items."""
    uses = np.bincount(packed.which.ravel(), minlength=len(packed.distinct)).tolist()
    return sum(n * _work_of(packed, member) for member, n in enumerate(uses))


def _work_of(packed: packing.Packed, member: int) -> int:
    near = packed.distinct[member]
    # Visiting the tiles in which a run starts may already cost more than all edges: then none is cut out.
    blocks = np.repeat(np.arange(near.queries) // 64, np.diff(near.indptr)) * (near.keys // 64 + 1)
    visits = TILE_VISIT * np.unique(blocks + near.starts // 64).size
    if visits > near.num_edges:
        return visits
    tiles = packed.cut(member)
    height, width = PIECE
    rows = np.bitwise_or.reduce(tiles.patterns.reshape(-1, 64 // height, height), axis=2)
    pieces = np.count_nonzero(rows.view(np.uint16), axis=1)  # a row of bits holds 64 / 16 of them
    partial = np.bincount(tiles.pattern[tiles.pattern >= 0], minlength=len(pieces)) @ pieces
    whole = tiles.num_full * (64 // height) * (64 // width)
    return TILE_VISIT * tiles.columns.size + TILE_PIECE * (int(partial) + whole)

"""Native attention over the tiles of a relation: for relations whose pairs lie close together."""

from __future__ import annotations

from functools import partial

import numpy as np

from erlangen.attention import native, packing
from erlangen.attention.backend import Cost, Rank, register
from erlangen.attention.call import Call
from erlangen.attention.products import NativeProducts

# The cost in units of one edge of the `edges` backend (measured, float32, AVX2): a tile costs a little to
# visit and then by the 8 x 16 pieces in which anything is related.
TILE_VISIT = 60
TILE_PIECE = 24
PIECE = (8, 16)
FEW_QUERIES = 8
"""Below this a tile is mostly empty rows, and looking for tiles takes longer than decoding a step."""

attend = partial(native.attend, native.by_tiles)


@register
class TilesBackend(NativeProducts):
    name = "tiles"
    computes = (
        "64 x 64 tiles, native: full ones unmasked, partial ones by their bits, empty ones never touched"
    )
    scales = "the tiles"
    attend = staticmethod(attend)

    def cost(self, call: Call) -> Cost:
        assert call.bound is not None
        if call.queries < FEW_QUERIES:
            return Cost(Rank.NATIVE, float("inf"), "too few queries to fill a tile")
        packed = call.bound.packed
        work = call.bound.derived("work by tiles", lambda: _work(packed))
        return Cost(Rank.NATIVE, work, f"by tiles {work} units of work")


def _work(packed: packing.PackedNeighborhoods) -> int:
    """Estimated work over all heads and items."""
    uses = np.bincount(packed.which.ravel(), minlength=len(packed.distinct)).tolist()
    return sum(n * _work_of(packed, member) for member, n in enumerate(uses))


def _work_of(packed: packing.PackedNeighborhoods, member: int) -> int:
    bound = packed.distinct[member]
    # Visiting the tiles in which a run starts may already cost more than all edges: then none is cut out.
    blocks = np.repeat(np.arange(bound.queries) // 64, np.diff(bound.indptr)) * (bound.keys // 64 + 1)
    visits = TILE_VISIT * np.unique(blocks + bound.starts // 64).size
    if visits > bound.num_edges:
        return visits
    tiles = packed.cut(member)
    height, width = PIECE
    rows = np.bitwise_or.reduce(tiles.patterns.reshape(-1, 64 // height, height), axis=2)
    pieces = np.count_nonzero(rows.view(np.uint16), axis=1)  # a row of bits holds 64 / 16 of them
    partial = np.bincount(tiles.pattern[tiles.pattern >= 0], minlength=len(pieces)) @ pieces
    whole = tiles.num_full * (64 // height) * (64 // width)
    return TILE_VISIT * tiles.columns.size + TILE_PIECE * (int(partial) + whole)

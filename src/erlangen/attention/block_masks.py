"""FlexAttention: a `mask_mod` and a `BlockMask` from a relation, in O(tiles) and not O(n^2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_mask

from erlangen.attention.binding import Bound, bind
from erlangen.attention.packing import joined_runs
from erlangen.relations import Batch, Bindable, FromMask, Neighborhoods, PerHead, Tiles
from erlangen.relations.lookup import search

BLOCK = 128
"""FlexAttention's block size."""

MaskMod = Callable[[Any, Any, Any, Any], Any]


def mask_mod(
    relation: Any,
    queries: int,
    keys: int | None = None,
    *,
    batch: int = 1,
    heads: int = 1,
    device: torch.device | str = "cpu",
) -> MaskMod:
    """A FlexAttention `mask_mod(b, h, i, j)` for a relation at these sizes.

    Arithmetic relations stay arithmetic (a window compiles to two comparisons); the others look their runs
    up in tables. With fewer queries than keys, query i sits at position keys - queries + i.

    >>> from erlangen.relations import Causal
    >>> bool(mask_mod(Causal(), 1, 4)(0, 0, torch.tensor(0), torch.tensor(3)))
    True
    """
    keys = queries if keys is None else keys
    offset = keys - queries
    if relation.arithmetic:
        return lambda b, h, i, j: relation.holds(i + offset, j, keys)
    return _table_mod(bind(relation, batch=batch, heads=heads, queries=queries, keys=keys), device)


def block_mask(
    relation: Bindable | Neighborhoods,
    queries: int,
    keys: int | None = None,
    *,
    batch: int = 1,
    heads: int = 1,
    device: torch.device | str = "cpu",
) -> BlockMask:
    """The `BlockMask` of a relation, equal to `create_block_mask`'s, from tiles.

    Relations that are the same for all items and heads give one that broadcasts over both.

    >>> from erlangen.relations import Window
    >>> block_mask(Window(lookback=10), 256).kv_num_blocks
    tensor([[[1, 2]]], dtype=torch.int32)
    """
    keys = queries if keys is None else keys
    bound = bind(relation, batch=batch, heads=heads, queries=queries, keys=keys)
    return from_bound(
        bound, mask_mod(relation, queries, keys, batch=batch, heads=heads, device=device), device
    )


def from_bound(bound: Bound, mod: MaskMod | None = None, device: torch.device | str = "cpu") -> BlockMask:
    """The `BlockMask` of a bound relation; without `mod` it looks the runs up in tables."""
    tiles = [member.tiles(BLOCK) for member in bound.distinct]
    partial = [_blocks(t, ~_whole(t)) for t in tiles]
    full = [_blocks(t, _whole(t)) for t in tiles]

    def spread(values: list[np.ndarray]) -> Tensor:
        return torch.from_numpy(np.stack(values)[bound.index]).to(device)

    return BlockMask.from_kv_blocks(
        spread([count for count, _ in partial]),
        spread([order for _, order in partial]),
        spread([count for count, _ in full]),
        spread([order for _, order in full]),
        BLOCK_SIZE=BLOCK,
        mask_mod=_table_mod(bound, device) if mod is None else mod,
        seq_lengths=(bound.queries, bound.keys),
    )


def from_block_mask(mask: BlockMask) -> FromMask | Batch:
    """The relation of a `BlockMask`, one per head and item where it has several."""
    b, h = mask.kv_num_blocks.shape[:2]
    queries, keys = mask.seq_lengths
    device = mask.kv_num_blocks.device
    dense = create_mask(mask.mask_mod, b, h, queries, keys, device=str(device))
    visited = mask.to_dense().bool()
    visited = visited.repeat_interleave(mask.BLOCK_SIZE[0], -2).repeat_interleave(mask.BLOCK_SIZE[1], -1)
    dense = dense & visited[..., :queries, :keys]
    if b == h == 1:
        return FromMask(dense[0, 0])
    return Batch([PerHead([FromMask(head) for head in item]) for item in dense])


def _whole(tiles: Tiles) -> np.ndarray:
    """Full tiles that are not cut at a ragged end: FlexAttention masks the cut ones."""
    inside = (tiles.rows < tiles.queries // BLOCK) & (tiles.columns < tiles.keys // BLOCK)
    return (tiles.pattern < 0) & inside


def _blocks(tiles: Tiles, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Per block row: how many blocks, and their columns first, the others after, as FlexAttention wants."""
    present = np.zeros((tiles.block_rows, tiles.block_columns), bool)
    present[tiles.rows[chosen], tiles.columns[chosen]] = True
    order = np.argsort(~present, axis=1, kind="stable").astype(np.int32)
    return present.sum(1).astype(np.int32), order


def _table_mod(bound: Bound, device: torch.device | str) -> MaskMod:
    """Look the runs up: all distinct neighborhoods one behind the other, each with a first row of its own."""
    indptr, starts, stops = (torch.tensor(array, device=device) for array in joined_runs(bound.distinct))
    which = torch.tensor(bound.index * (bound.queries + 1), device=device)
    items, heads = bound.index.shape
    steps = max(member.search_steps for member in bound.distinct)
    if starts.numel() == 0:
        return lambda b, h, i, j: (i < 0) & (j < 0)

    def mod(b: Any, h: Any, i: Any, j: Any) -> Any:
        first = which[b if items > 1 else b * 0, h if heads > 1 else h * 0]
        return search(indptr, starts, stops, steps, first + i, j)

    return mod

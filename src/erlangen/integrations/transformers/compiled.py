"""Masks in a graph that is being compiled: the relation of a batch is data, made by an operator.

The expression of a mask function is known while tracing; padding, packed documents and the length are known
when the graph runs. `erlangen::mask_index` reads them there, into the index that attention takes."""

from __future__ import annotations

from ast import literal_eval
from operator import index
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from erlangen.attention import native
from erlangen.attention.binding import bind_alone
from erlangen.attention.compiling import constant
from erlangen.attention.packing import PackedNeighborhoods, PackedRelation
from erlangen.caches import cached
from erlangen.errors import SizeError
from erlangen.integrations.transformers.readings import DENSE, Extent, Shape, meet, read, said_by
from erlangen.integrations.transformers.terms import MaskFunction, Written
from erlangen.relations import Bindable, Neighborhoods

INDEX = "erlangen_index"
"""The attribute of a dense mask under which its relation is kept, as `Masked`."""

_parsed = cached(1024)(literal_eval)


@torch.library.custom_op("erlangen::mask_index", mutates_args=())
def mask_index(
    tensors: list[Tensor],
    shape: str,
    attention_mask: Tensor | None,
    own: Tensor | None,
    moved: Tensor | None,
    batch: int,
    queries: int,
    keys: int,
    query_offset: int,
    key_offset: int,
) -> Tensor:
    """The packed index of what `shape` says of `tensors`, and of an attention mask (batch, positions).

    Queries stand at query_offset + moved. `own`, an index, is the relation of a layer that has another one
    than the expression says; padding and documents stay.
    """
    offset = query_offset + (0 if moved is None else int(moved))
    extent = Extent(batch, queries, keys, offset, key_offset)
    reading, seen = read(Written(_parsed(shape), tuple(tensors)), extent, attention_mask)
    if own is None:
        relation = reading.whole
    else:
        relation = meet(PackedRelation(own, queries, seen, "edges").unpacked(), reading.given)
    bound = bind_alone(relation, queries, seen)
    made = (
        bound.packed if seen == keys else bound.derived(("first keys of", keys), lambda: _wider(bound, keys))
    )
    return made.copied_index()


@mask_index.register_fake
def _(*_: Any, **__: Any) -> Tensor:
    size = torch.library.get_ctx().new_dynamic_size()
    return torch.empty(size, dtype=torch.int64)


def _wider(bound: Any, keys: int) -> PackedNeighborhoods:
    """The same edges among more keys, of which the last are never read."""
    return PackedNeighborhoods(
        [Neighborhoods(one.queries, keys, one.indptr, one.starts, one.stops) for one in bound.distinct],
        bound.index,
    )


class Masked:
    """What a dense mask of a graph stands for: the index of its relation, and what it was made from."""

    def __init__(self, said: Written, extent: Extent, attention_mask: Tensor | None) -> None:
        self.said, self.extent, self.attention_mask = said, extent, attention_mask
        self.index = self.index_with(None)

    def index_with(self, own: Tensor | None) -> Tensor:
        """The index, with another relation (as an index) in the place of the one that the expression says."""
        extent = self.extent
        moves = isinstance(extent.query_offset, Tensor)
        return mask_index(
            list(self.said.tensors),
            _text(self.said.shape),
            self.attention_mask,
            own,
            extent.query_offset if moves else None,
            extent.batch,
            extent.queries,
            extent.keys,
            0 if moves else extent.query_offset,
            extent.key_offset,
        )


@torch.compiler.assume_constant_result
def _text(shape: Shape) -> str:
    return repr(shape)


def compiled_mask(
    function: MaskFunction, extent: Extent, attention_mask: Tensor | None, dtype: torch.dtype
) -> Tensor:
    """The additive mask of "eager" attention, with the index of its relation as an attribute.

    Attention reads the index alone: the compiler drops the dense mask unless the model computes with it.
    """
    from transformers.masking_utils import eager_mask

    dense: Any = eager_mask(**extent.arguments(function), attention_mask=attention_mask, dtype=dtype)
    if runs_in_graph(extent.device):
        said = said_by(function, extent, evaluate=extent.vmap)
        setattr(dense, INDEX, Masked(said, extent, attention_mask))
    return dense


def runs_in_graph(device: Any) -> bool:
    """Whether attention on a device takes a packed relation."""
    return torch.device(device).type == "cpu" and _native_available()


@torch.compiler.assume_constant_result
def _native_available() -> bool:
    return native.available()


def compiled_reads(
    query: Tensor, key: Tensor, mask: Tensor | None, own: Bindable | None, causal: bool
) -> PackedRelation:
    """What an attention call reads in a graph. Without a mask, `causal` says it: query 0 stands at key 0."""
    batch, queries, keys = query.shape[0], query.shape[2], key.shape[2]
    if mask is None:
        shape = ("le", "K", "Q") if causal and queries > 1 else ("ge", "Q", 0)
        masked = Masked(Written(shape), Extent(batch, queries, keys), None)
    elif hasattr(mask, INDEX):
        masked = getattr(mask, INDEX)
        if masked.extent.keys != keys:
            raise SizeError(f"the mask is for {masked.extent.keys} keys, and this layer has {keys}")
    else:
        dense = mask[..., :keys].expand(-1, -1, queries, keys)
        masked = Masked(Written(DENSE, (dense,)), Extent(batch, queries, keys), None)
    at = masked.index if own is None else masked.index_with(_rows(constant(own), index(queries), index(keys)))
    # Masks of transformers are dense or windows: tiles suit them, except for the few queries of a step.
    return PackedRelation(at, queries, keys, "edges" if queries == 1 else "tiles")


@torch.compiler.assume_constant_result
def _rows(relation: Bindable, queries: int, keys: int) -> Tensor:
    """The index of a layer's own relation, a constant of the graph."""
    with _disable_current_modes():
        return bind_alone(relation, queries, keys).packed.index


def follows(mask: Tensor | None) -> bool:
    """Whether a layer's own relation can take the place of the mask's: the queries are its last positions."""
    if mask is None:
        return True
    extent = getattr(mask, INDEX).extent
    return not isinstance(extent.query_offset, Tensor) and extent.aligned and not extent.key_offset

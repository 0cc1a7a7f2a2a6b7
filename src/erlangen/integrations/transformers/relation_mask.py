"""The mask that models hand from layer to layer: a relation in the shape of a tensor."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from erlangen.integrations.masks import mask
from erlangen.integrations.transformers.compiled import compiled_mask
from erlangen.integrations.transformers.past_the_registry import check_registry
from erlangen.integrations.transformers.readings import Extent, ReadMask, read, said_by


class RelationMask(Tensor):
    """An additive mask (batch, 1, queries, keys) that holds relations; tensor operations see the dense mask.

    - `reading`: what the layer is to read, and what this batch has at all: padding, packed documents;
    - `keys`: relations speak of the first `keys` keys; those after them (a static cache not yet full) are
      never read;
    - `key_offset`: the position of the first key; a sliding cache has dropped those before it.

    To a model that computes with it, it is the mask that "eager" attention gets: 0 where a query reads, the
    lowest number of its type where it does not.

    >>> made = relation_mask(batch_size=1, q_length=3, kv_length=3)
    >>> made.shape, made.reading.relation
    (torch.Size([1, 1, 3, 3]), Causal())
    >>> made[0, 0, :2] == 0
    tensor([[ True, False, False],
            [ True,  True, False]])
    """

    reading: ReadMask
    keys: int
    key_offset: int

    @staticmethod
    def __new__(cls, extent: Extent, reading: ReadMask, keys: int, dtype: torch.dtype) -> RelationMask:
        shape = torch.Size((extent.batch, 1, extent.queries, extent.keys))
        made: Any = Tensor._make_wrapper_subclass(cls, shape, dtype=dtype, device=extent.device)
        made.reading = reading
        made.keys, made.key_offset = keys, extent.key_offset
        return made

    def __init__(self, *arguments: Any) -> None:
        super().__init__()

    def readable(self) -> Tensor:
        """The mask as an ordinary boolean tensor, True = may read."""
        batch, _, queries, keys = self.shape
        known = mask(self.reading.whole, queries, self.keys).to(self.device)
        known = known.expand(batch, 1, queries, self.keys)
        return torch.nn.functional.pad(known, (0, keys - self.keys))

    def dense(self) -> Tensor:
        """The mask as an ordinary additive tensor."""
        lowest = torch.finfo(self.dtype).min
        hidden = ~self.readable()
        return torch.zeros(self.shape, dtype=self.dtype, device=self.device).masked_fill(hidden, lowest)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"RelationMask({self.reading.relation}, {self.reading.given}, shape={tuple(self.shape)})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _SAME and isinstance(args[0], RelationMask):
            return args[0]

        def dense(value: Any) -> Any:
            return value.dense() if isinstance(value, RelationMask) else value

        return func(*tree_map(dense, args), **tree_map(dense, kwargs or {}))


# Nothing writes into a mask, so a copy may be the mask itself; checkpointing detaches what it keeps.
_SAME = {torch.ops.aten.detach.default, torch.ops.aten.clone.default}


def relation_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor = 0,
    kv_offset: int = 0,
    mask_function: Any = None,
    attention_mask: Tensor | None = None,
    use_vmap: bool = False,
    dtype: torch.dtype = torch.float32,
    device: Any = "cpu",
    config: Any = None,
    **_: Any,
) -> Tensor:
    """The mask function of "erlangen" for transformers: structure instead of queries x keys booleans.

    `mask_function` says whether the query at a position reads the key at a position, `attention_mask`
    (batch, positions) which positions are real.

    >>> real = torch.tensor([[False, True, True, True]])
    >>> relation_mask(1, 2, 6, q_offset=2, attention_mask=real)
    RelationMask(Causal(), Padding(3, side="left"), shape=(1, 1, 2, 6))
    """
    if config is not None:
        check_registry(config)
    if mask_function is None:
        from transformers.masking_utils import causal_mask_function as mask_function
    if torch.compiler.is_compiling():
        extent = Extent(batch_size, q_length, kv_length, q_offset, kv_offset, device, use_vmap)
        return compiled_mask(mask_function, extent, attention_mask, dtype)
    extent = Extent(batch_size, q_length, kv_length, int(q_offset), kv_offset, device, use_vmap)
    reading, keys = read(said_by(mask_function, extent), extent, attention_mask)
    return RelationMask(extent, reading, keys, dtype)

"""A relation as data: packed before the call, so that compiled code takes the next one without compiling
anew."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from erlangen.attention import packing
from erlangen.relations import Batch, Bindable, FromMask, PerHead


@dataclass(frozen=True, eq=False)
class PackedRelation:
    """A relation bound to its sizes, as one tensor of integers; made by `pack`, taken by `attend`."""

    index: Tensor
    queries: int
    keys: int
    backend: str

    def unpacked(self) -> Bindable:
        """The relation again, by its edges.

        >>> from erlangen.attention import pack
        >>> from erlangen.relations import Causal
        >>> pack(Causal(), 2).unpacked()
        FromMask([[1, 0], [1, 1]])
        """
        packed = packing.packed(self.index)
        members = [FromMask._of(near) for near in packed.distinct]
        heads = [[members[n] for n in row] for row in packed.which]
        items: Any = [PerHead(row) if len(row) > 1 else row[0] for row in heads]
        return Batch(items) if len(items) > 1 else items[0]

"""A relation as data: packed before the call, so that compiled code takes the next one without compiling
anew."""

from __future__ import annotations

from dataclasses import dataclass
from operator import index
from typing import Any

import torch
from torch import Tensor

from erlangen.attention import packing
from erlangen.attention.binding import bind_alone
from erlangen.attention.needs import unable
from erlangen.attention.plan import choose
from erlangen.errors import BackendError, SizeError
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

        >>> from erlangen.relations import Causal
        >>> pack(Causal(), 2).unpacked()
        FromMask([[1, 0], [1, 1]])
        """
        packed = packing.packed(self.index)
        members = [FromMask._of(near) for near in packed.distinct]
        heads = [[members[n] for n in row] for row in packed.which]
        items: Any = [PerHead(row) if len(row) > 1 else row[0] for row in heads]
        return Batch(items) if len(items) > 1 else items[0]

    def check(self, queries: Any, keys: Any, needs: Any) -> None:
        """Raise unless it was packed for these sizes, and its backend can compute this."""
        if queries != self.queries or keys != self.keys:
            raise SizeError(
                f"the relation was packed for {self.queries} queries and {self.keys} keys, but the tensors "
                f"have {index(queries)} and {index(keys)}"
            )
        why = unable(self.backend, needs)
        if why:
            raise BackendError(
                f"the relation was packed for {self.backend!r}, and {why}; pack(backend='edges')"
            )


def pack(
    relation: Bindable,
    queries: int,
    keys: int | None = None,
    *,
    backend: str | None = None,
) -> PackedRelation:
    """A relation as data, for `attend(q, k, v, packed)` with so many queries and keys, on a CPU.

    A relation is a constant of compiled code: another one compiles anew. A packed relation is an input of it.
    Where documents are packed differently at every step, pack them before the step and hand the result to the
    compiled model. A `Batch` is for as many items as it has, a `PerHead` for as many heads. `backend` is
    "tiles" or "edges"; by default the cheaper one.

    >>> import erlangen as er
    >>> x = torch.randn(1, 2, 6, 4)
    >>> relation = er.Documents([2, 4]) & er.Causal()
    >>> torch.equal(er.attend(x, x, x, er.pack(relation, 6)), er.attend(x, x, x, relation))
    True
    """
    keys = queries if keys is None else keys
    bound = bind_alone(relation, queries, keys)
    chosen, _ = choose(bound, "cpu", backend, False, False)
    if chosen not in ("tiles", "edges"):
        raise BackendError(
            f"a packed relation is for the native backends 'tiles' and 'edges', not for {chosen!r}"
        )
    packed = bound.packed.index.clone()  # the caller may fill it with the next relation
    torch._dynamo.maybe_mark_dynamic(packed, 0)  # its length changes with the relation
    return PackedRelation(packed, queries, keys, chosen)

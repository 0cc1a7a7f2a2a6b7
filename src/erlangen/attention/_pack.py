"""`pack`: a relation as data for compiled code."""

from __future__ import annotations

import torch

from erlangen.attention._attend import choose
from erlangen.attention.binding import bind_alone
from erlangen.attention.call import PLAIN, Call
from erlangen.attention.packing import PackedRelation
from erlangen.errors import BackendError
from erlangen.relations import Bindable


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
    call = Call(
        *(relation, None, None, None, bound, None, 0.0),
        *(bound.index.shape[1], queries, keys, 0, 0, torch.float32, "cpu"),
        *(backend, False, False, PLAIN),
    )
    chosen, _ = choose(call)
    if chosen not in ("tiles", "edges"):
        raise BackendError(
            f"a packed relation is for the native backends 'tiles' and 'edges', not for {chosen!r}"
        )
    packed = bound.packed.index.clone()  # the caller may fill it with the next relation
    torch._dynamo.maybe_mark_dynamic(packed, 0)  # its length changes with the relation
    return PackedRelation(packed, queries, keys, chosen)

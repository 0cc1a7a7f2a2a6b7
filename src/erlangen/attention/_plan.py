"""Which backend computes an attention, and why."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from importlib import import_module
from operator import index
from pkgutil import iter_modules
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from erlangen.attention import backends, native
from erlangen.attention.backend import BACKENDS, Rank
from erlangen.attention.backends import decode
from erlangen.attention.binding import Bound, bind, made_plain
from erlangen.attention.call import Call, Needs, call_of
from erlangen.attention.compiling import uncompiled
from erlangen.attention.foreign import refuse
from erlangen.attention.kernels import Kernel
from erlangen.attention.packing import Packed, packed
from erlangen.attention.prepared import PackedRelation
from erlangen.attention.products import Products
from erlangen.attention.shapes import fold
from erlangen.errors import BackendError, SizeError
from erlangen.relations import Bindable, Neighborhoods, WeightedRelation

for _file in iter_modules(backends.__path__):
    import_module(f"{backends.__name__}.{_file.name}")


@dataclass(frozen=True)
class Plan:
    """The chosen backend, the reason in words, and the estimated cost of a forward pass in multiply-adds."""

    backend: str
    reason: str
    cost: int


def plan(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    relation: Bindable | Neighborhoods | WeightedRelation | PackedRelation | None = None,
    *,
    kernel: Kernel | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
    backend: str | None = None,
    return_weights: bool = False,
    return_lse: bool = False,
    **foreign: Any,
) -> Plan:
    """What `attend` will do with these arguments, without doing it. The first row that fits decides:

    ===========================================  ===========  ===============================================
    the call                                     backend      because
    ===========================================  ===========  ===============================================
    names a backend                              that one     asked for by name; never another
    asks for the weights                         `reference`  only the dense oracle forms them
    `Linear`, relation full or square causal,    `linear`     sums over keys are shared: O(n dim^2)
    without bias and dropout
    kernel of one's own, or a signed one         `gather`     edge by edge through PyTorch, on any device
    tensors on a CPU, extension built:
      one query per head that reads one run      `decode`     nothing is bound: a step of decoding
      `Additive(vector)`, or a bias per edge     `edges`      tiles do not have these
      fewer than 8 queries                       `edges`      too few to fill a tile
      pairs lie close together in 64 x 64 tiles  `tiles`      cheaper by the cost model than edge by edge
      pairs lie scattered                        `edges`      cheaper by the cost model than tile by tile
    kernel that is no scaled product, or a       `gather`     edge by edge through PyTorch, on any device
    bias and the log-sum-exp (or a sink)
    a weighted relation                          `sdpa`       its bias is added to a dense mask
    asks for the log-sum-exp, not on CUDA        `reference`  SDPA does not return it
    relation is full or square causal            `sdpa`       exact there without a mask
    tensors on CUDA                              `flex`       FlexAttention skips the empty blocks
    anything else                                `sdpa`       with a dense mask, queries x keys
    ===========================================  ===========  ===============================================


    The cost model of the native kernels counts the 8 x 16 pieces of each tile in which any pair is related;
    one edge of `edges` costs about 1 / 24 of such a piece.

    >>> import torch
    >>> from erlangen.relations import Causal, Window
    >>> x = torch.ones(1, 2, 8, 4)
    >>> plan(x, x, x, Causal(), return_weights=True).backend
    'reference'
    >>> plan(x, x, x, Causal(), backend="sdpa").reason
    'asked for by name'
    """
    if isinstance(relation, Tensor) and not isinstance(q, Tensor):
        _warn("plan(relation, q, k, v) is now plan(q, k, v, relation), as attend takes them")
        q, k, v, relation = k, v, relation, q
    if "weights" in foreign or "lse" in foreign:
        _warn("plan's weights= and lse= are now return_weights= and return_lse=, as attend takes them")
        return_weights, return_lse = foreign.pop("weights", return_weights), foreign.pop("lse", return_lse)
    if foreign:
        refuse("plan", foreign)
    call = call_of(q, k, v, relation, kernel, scale, dropout, backend, return_weights, return_lse)
    q4, k4 = fold(q), fold(k)
    if isinstance(call.reads, PackedRelation):
        name, reason = fitting(call).backend, "the relation was packed for it"
        data = packed(call.reads.index)
        call = call._replace(bound=Bound(data.distinct, data.which, call.queries, call.keys))
    else:
        vectors, read = (q4, k4), None
        if call.weighted is None:
            read = decode.one_run(q, k, v, call.reads, scale)
        bound = bind(
            call.reads, batch=len(q4), heads=call.heads, queries=call.queries, keys=call.keys, vectors=vectors
        )
        call = call._replace(bound=bound, one_run=read)
        name, reason = choose(call)
    assert call.bound is not None
    spread = q4.shape[0] * q4.shape[1] // call.bound.index.size
    return Plan(name, reason, BACKENDS[name].pairs(call) * spread * (call.dim + call.value_dim))


def _warn(what: str) -> None:
    warnings.warn(f"{what}; the old way goes with version 0.3", DeprecationWarning, stacklevel=3)


def choose(call: Call) -> tuple[str, str]:
    """The backend of a call whose relation is bound, and the reason."""
    if call.backend is not None:
        if call.backend not in BACKENDS:
            raise BackendError(f"backend {call.backend!r} is not one of {', '.join(BACKENDS)}")
        why = BACKENDS[call.backend].refusal(call)
        if why:
            raise BackendError(f"backend {call.backend!r} {why}")
        return call.backend, "asked for by name"
    # Of equals the one that was registered last is chosen, so that a backend of one's own comes first.
    costs = {b.name: b.cost(call) for b in reversed(BACKENDS.values()) if b.refusal(call) is None}
    offers = {name: cost for name, cost in costs.items() if cost is not None}
    chosen = min(offers, key=lambda name: (offers[name].rank, offers[name].work))
    if offers[chosen].rank > Rank.NATIVE and call.on_cpu and not (call.weights or native.available()):
        _say_once(native.missing())
    rivals = [cost.reason for name, cost in offers.items()
              if cost.rank == offers[chosen].rank and name != chosen]  # fmt: skip
    return chosen, ", ".join([offers[chosen].reason, *rivals])


_said = False


def _say_once(why: str | None) -> None:
    global _said
    if not _said:
        _said = True
        warnings.warn(
            f"attention runs through PyTorch: the native extension is missing ({why})", stacklevel=3
        )


@uncompiled
def decide(
    call: Call, batch: int, vectors: tuple[Tensor, Tensor] | None = None
) -> tuple[str, Any, Bound | None]:
    """The backend of a call, what it prepared, and the bound relation; kept with the bound relation."""
    bound = bind(
        call.reads, batch=batch, heads=call.heads, queries=call.queries, keys=call.keys, vectors=vectors
    )

    def make() -> tuple[str, Any]:
        chosen, _ = choose(call._replace(bound=bound))
        return chosen, BACKENDS[chosen].prepare(call._replace(bound=bound))

    return *bound.derived(call.facts, make), bound


@torch.compiler.assume_constant_result
def decide_once(reads: Any, batch: int, *facts: Any) -> tuple[str, Any]:
    """Under `torch.compile` the backend and its indices are settled while tracing, and kept for the graph.

    The compiler passes plain values: the needs are the last of the facts, one by one."""
    split = len(facts) - len(Needs._fields)
    needs = Needs._make(facts[split:])
    call = Call._make((reads, None, None, None, None, None, 0.0, *facts[:split], needs))

    def made() -> tuple[str, Any]:
        chosen, prepared, _ = decide(call, batch)
        # An index is a tensor of the graph, so that the relation goes wherever the graph does.
        return chosen, prepared.index if isinstance(prepared, Packed) else prepared

    with _disable_current_modes():  # what is kept for later calls must not be a fake tensor
        return made_plain(made)


def fitting(call: Call) -> PackedRelation:
    """The packed relation of a call, if it was packed for these sizes and its backend can compute this."""
    made: PackedRelation = call.reads
    if call.queries != made.queries or call.keys != made.keys:
        raise SizeError(
            f"the relation was packed for {made.queries} queries and {made.keys} keys, but the tensors "
            f"have {index(call.queries)} and {index(call.keys)}"
        )
    backend = BACKENDS[made.backend]
    why = backend.lacks(call.needs) if isinstance(backend, Products) else None
    if why:
        raise BackendError(
            f"the relation was packed for {made.backend!r}, and that {why}; pack(backend='edges')"
        )
    if call.weights or call.backend not in (None, made.backend):
        asked_for = "the weights" if call.weights else f"backend {call.backend!r}"
        raise BackendError(f"the relation was packed for {made.backend!r}, which does not give {asked_for}")
    return made

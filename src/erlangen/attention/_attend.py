"""Attention over a relation, in four steps: check the call, bind the relation, plan a backend, run it.

`attend`, which every layer calls, takes all four; `plan` takes the first three and tells what it found."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from importlib import import_module
from operator import index
from pkgutil import iter_modules
from typing import Any, Never

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from erlangen.attention import backends, native
from erlangen.attention.backend import BACKENDS, Rank
from erlangen.attention.backends import decode
from erlangen.attention.biases import bias_of
from erlangen.attention.binding import Bound, bind, made_plain
from erlangen.attention.call import Call, Needs, call_of, fold, items_differ, run_time_only
from erlangen.attention.compiling import register, uncompiled
from erlangen.attention.foreign import refuse
from erlangen.attention.kernels import Kernel
from erlangen.attention.kernels.softmax import absorb
from erlangen.attention.packing import PackedNeighborhoods, PackedRelation, packed
from erlangen.attention.products import Products
from erlangen.errors import BackendError, SizeError
from erlangen.relations import Bindable, Full, Neighborhoods, WeightedRelation

for _file in iter_modules(backends.__path__):
    import_module(f"{backends.__name__}.{_file.name}")


def attend(
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
    **foreign: Never,
) -> Any:
    """Attention in which query i reads exactly the keys N_i of the relation.

        h_i = sum over j in N_i of alpha_ij v_j,   alpha_i = softmax over N_i of (scale <q_i, k_j>)

    **A query that reads nothing gives zero, with zero gradient**, in every backend.

    Shapes are those of `F.scaled_dot_product_attention`: q (..., heads, queries, dim), k (..., kv heads,
    keys, dim), v (..., kv heads, keys, value dim). With fewer kv heads than heads, each kv head serves
    heads / kv heads consecutive heads. `relation` is a relation, a family (`PerHead`, `Batch`: one member
    per item of the flattened leading dimensions), neighborhoods, or what `pack` made; `Full()` if not given.
    With fewer queries than keys the queries are the last positions. A weighted relation (`ALiBi`,
    `RelativeBias`, ...) adds its log-weights to the logits; gradients reach them.

    `kernel` replaces the exponential by another function of query and key (see `erlangen.kernels`), still
    normalised over N_i. `scale` is that of the default kernel, 1 / sqrt(dim) if not given. `dropout` acts on
    the weights and draws from torch's generator. `backend` forces one by name and never falls back;
    by default `plan` decides. Returns the output, or a tuple with the weights (..., heads, queries,
    keys) and the log-sum-exp (..., heads, queries; -inf on empty rows) where asked for, in this order.
    An argument of another library (`attn_mask=`, `is_causal=`, `dropout_p=`, ...) is refused with the word
    for it here.

    >>> import torch
    >>> from erlangen.relations import Causal
    >>> x = torch.ones(1, 3, 4)
    >>> attend(x, x, torch.arange(3.).reshape(1, 3, 1), Causal())
    tensor([[[0.0000],
             [0.5000],
             [1.0000]]])
    """
    if foreign:
        refuse("attend", foreign)
    if kernel is None and backend in (None, "decode") and not (dropout or return_weights or return_lse):
        # A step of decoding takes as long as making the call, so `decode` is asked before anything is made.
        out = decode.step(q, k, v, Full() if relation is None else relation, scale)
        if out is not None:
            return out
    if torch.compiler.is_dynamo_compiling() and run_time_only(relation):
        # Which keys are read is known when the call runs: the graph breaks here, or fullgraph=True refuses.
        return _uncompiled(
            *(q, k, v, relation), kernel=kernel, scale=scale, dropout=dropout, backend=backend,
            return_weights=return_weights, return_lse=return_lse,
        )  # fmt: skip
    # Check.
    call = call_of(q, k, v, relation, kernel, scale, dropout, backend, return_weights, return_lse)
    q4, k4, v4 = fold(q), fold(k), fold(v)
    # Bind and plan; both are kept for the next call. This is no function of its own: where the graph around
    # it is broken, a compiler would trace that alone, and settle what an eager call must not.
    bound = None
    if isinstance(call.reads, PackedRelation):
        chosen, prepared = _fitting(call).backend, call.reads.index
    else:
        batch = index(q4.shape[0]) if items_differ(call.reads) else 1
        if torch.compiler.is_compiling():
            chosen, prepared = _decide_once(call.reads, batch, *call.facts[:-1], *call.needs)
        else:
            chosen, prepared, bound = decide(call, batch, (q4, k4))
    # Run.
    bias = None if call.weighted is None else bias_of(call.weighted, bound, call.queries, call.keys, q4)
    out, weights, lse = BACKENDS[chosen].run(prepared, call, q4, k4, v4, bias)
    if (return_weights and weights is None) or (call.lse and lse is None):
        raise BackendError(f"backend {chosen!r} did not return the weights or the log-sum-exp it said it has")
    if kernel is not None and kernel.sink is not None:
        assert lse is not None
        out, weights, lse = absorb(kernel.sink, out, weights, lse)
    results = [out, *([weights] if return_weights else []), *([lse] if return_lse else [])]
    lead = q.shape[:-3]
    if len(lead) != 1:
        results = [x.reshape(*lead, *x.shape[1:]) for x in results]
    return results[0] if len(results) == 1 else tuple(results)


_uncompiled = uncompiled(attend)
register()


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
        name, reason = _fitting(call).backend, "the relation was packed for it"
        data = packed(call.reads.index)
        bound = Bound(data.distinct, data.which, call.queries, call.keys)
        call = call._replace(bound=bound)
    else:
        read = decode.one_run(q, k, v, call.reads, scale) if call.weighted is None else None
        bound = _bound(call, len(q4), (q4, k4))
        call = call._replace(bound=bound, one_run=read)
        name, reason = choose(call)
    spread = q4.shape[0] * q4.shape[1] // bound.index.size
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


def _bound(call: Call, batch: int, vectors: tuple[Tensor, Tensor] | None) -> Bound:
    return bind(
        call.reads, batch=batch, heads=call.heads, queries=call.queries, keys=call.keys, vectors=vectors
    )


@uncompiled
def decide(call: Call, batch: int, vectors: tuple[Tensor, Tensor] | None = None) -> tuple[str, Any, Bound]:
    """The backend of a call, what it prepared, and the bound relation; kept with the bound relation."""
    bound = _bound(call, batch, vectors)

    def make() -> tuple[str, Any]:
        chosen, _ = choose(call._replace(bound=bound))
        return chosen, BACKENDS[chosen].prepare(call._replace(bound=bound))

    return *bound.derived(call.facts, make), bound


@torch.compiler.assume_constant_result
def _decide_once(reads: Any, batch: int, *facts: Any) -> tuple[str, Any]:
    """Under `torch.compile` the backend and its indices are settled while tracing, and kept for the graph.

    The compiler passes plain values: the needs are the last of the facts, one by one."""
    split = len(facts) - len(Needs._fields)
    needs = Needs._make(facts[split:])
    call = Call._make((reads, None, None, None, None, None, 0.0, *facts[:split], needs))

    def made() -> tuple[str, Any]:
        chosen, prepared, _ = decide(call, batch)
        # An index is a tensor of the graph, so that the relation goes wherever the graph does.
        return chosen, prepared.index if isinstance(prepared, PackedNeighborhoods) else prepared

    with _disable_current_modes():  # what is kept for later calls must not be a fake tensor
        return made_plain(made)


def _fitting(call: Call) -> PackedRelation:
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
        wanted = "the weights" if call.weights else f"backend {call.backend!r}"
        raise BackendError(f"the relation was packed for {made.backend!r}, which does not give {wanted}")
    return made

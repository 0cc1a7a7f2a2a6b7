"""Which backend computes an attention, and why."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from erlangen.attention import native
from erlangen.attention.backends import edges, gather, linear, reference, sdpa, tiles
from erlangen.attention.biases import Bias, support
from erlangen.attention.binding import Bound, bind
from erlangen.attention.kernels import Kernel, Linear, SoftmaxDot
from erlangen.attention.kernels.form import Form
from erlangen.attention.needs import PLAIN, Needs, needs_of, unable
from erlangen.attention.shapes import check, fold
from erlangen.errors import BackendError
from erlangen.relations import Bindable, Neighborhoods, WeightedRelation

BACKENDS = ("reference", "sdpa", "tiles", "edges", "flex", "gather", "linear")

# The cost of the native kernels in units of one edge of the `edges` backend (measured, float32, AVX2): a tile
# costs a little to visit and then by the 8 x 16 pieces in which anything is related.
TILE_VISIT = 60
TILE_PIECE = 24
PIECE = (8, 16)
FEW_QUERIES = 8
"""Below this a tile is mostly empty rows, and looking for tiles takes longer than decoding a step."""


@dataclass(frozen=True)
class Plan:
    """The chosen backend, the reason in words, and the estimated cost of a forward pass in multiply-adds."""

    backend: str
    reason: str
    cost: int


def plan(
    relation: Bindable | Neighborhoods | WeightedRelation,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    kernel: Kernel | None = None,
    backend: str | None = None,
    weights: bool = False,
    lse: bool = False,
) -> Plan:
    """What `attend` will do with these tensors, without doing it. The first row that fits decides:

    ===========================================  ===========  ===============================================
    the call                                     backend      because
    ===========================================  ===========  ===============================================
    names a backend                              that one     asked for by name; never another
    asks for the weights                         `reference`  only the dense oracle forms them
    `Linear`, relation full or square causal,    `linear`     sums over keys are shared: O(n dim^2)
    without bias and dropout
    kernel of one's own, or a signed one         `gather`     edge by edge through PyTorch, on any device
    tensors on a CPU, extension built:
      `Additive(vector)`, or a bias per edge     `edges`      tiles do not have these
      fewer than 8 queries (decoding)            `edges`      too few to fill a tile
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
    >>> plan(Causal(), x, x, x, weights=True).backend
    'reference'
    >>> plan(Causal(), x, x, x, backend="sdpa").reason
    'asked for by name'
    """
    reads, weighted = support(relation)
    check(q, k, v, reads)
    q, k, v = (fold(x) for x in (q, k, v))
    needs = PLAIN
    if kernel is not None or weighted is not None:
        kernel = SoftmaxDot() if kernel is None else kernel
        needs = needs_of(kernel, q.shape[3], weighted)
        lse = lse or kernel.sink is not None
    bound = bind(
        reads, batch=q.shape[0], heads=q.shape[1], queries=q.shape[2], keys=k.shape[2], vectors=(q, k)
    )
    name, reason = choose(bound, str(q.device), backend, weights, lse, needs)
    spread = q.shape[0] * q.shape[1] // bound.index.size
    pairs = bound.num_edges * spread
    if name == "reference" or (name == "sdpa" and not (bound.is_full or bound.is_causal)):
        pairs = q.shape[0] * q.shape[1] * bound.queries * bound.keys
    return Plan(name, reason, pairs * (q.shape[3] + v.shape[3]))


def choose(
    bound: Bound, device: str, backend: str | None, weights: bool, lse: bool, needs: Needs = PLAIN
) -> tuple[str, str]:
    """The decision table of `plan`: a backend that computes this exactly, and the reason."""
    if backend is not None:
        _refuse(backend, device.partition(":")[0], weights, lse, needs)
        if backend == "linear" and not (bound.is_full or bound.is_causal):
            raise BackendError("backend 'linear' takes the full and the causal relation; use 'edges'")
        return backend, "asked for by name"
    if weights:
        return "reference", "the weights were asked for, and only the dense oracle forms them"
    if needs.linear and (bound.is_full or bound.is_causal):
        return "linear", "sums over keys are shared by all queries: linear in their number"
    device = device.partition(":")[0]
    if device == "cpu" and native.available():
        if unable("edges", needs):
            return "gather", f"any kernel runs there; {unable('edges', needs)}"
        if unable("tiles", needs):
            return "edges", str(unable("tiles", needs))
        if bound.queries < FEW_QUERIES:
            return "edges", "too few queries to fill a tile"
        by_tiles, by_edges = bound.derived("cost", lambda: _native_cost(bound))
        if by_tiles <= by_edges:
            return "tiles", f"by tiles {by_tiles} units of work, edge by edge {by_edges}"
        return "edges", f"edge by edge {by_edges} units of work, by tiles {by_tiles}"
    if device == "cpu":
        _say_once(native.missing())
    if not needs.plain or (lse and needs.bias):
        return "gather", "any kernel runs there, at a cost proportional to the related pairs"
    if needs.bias:
        return "sdpa", "a bias is added to a dense mask there"
    if lse and device != "cuda":
        return "reference", "the log-sum-exp was asked for, and SDPA does not return it"
    if (bound.is_full or bound.is_causal) and not lse:
        return "sdpa", "exact there without a mask"
    if device == "cuda":
        return "flex", "on CUDA FlexAttention skips the empty blocks"
    return "sdpa", "no faster backend here: a dense mask of queries x keys"


def _refuse(backend: str, device: str, weights: bool, lse: bool, needs: Needs) -> None:
    """Raise `BackendError` when the named backend cannot do what was asked."""
    if backend not in BACKENDS:
        raise BackendError(f"backend {backend!r} is not one of {', '.join(BACKENDS)}")
    if weights and backend != "reference":
        raise BackendError(f"backend {backend!r} returns no weights; use 'reference'")
    if lse and backend == "sdpa":
        raise BackendError("backend 'sdpa' returns no log-sum-exp; use 'reference', 'tiles' or 'edges'")
    if backend in ("tiles", "edges"):
        if device != "cpu":
            raise BackendError(f"backend {backend!r} runs on the CPU, and the tensors lie on {device}")
        if not native.available():
            raise BackendError(f"backend {backend!r} needs the native extension: {native.missing()}")
    why = unable(backend, needs)
    if why:
        raise BackendError(why)


def _native_cost(bound: Bound) -> tuple[int, int]:
    """Estimated work by tiles and edge by edge, over all heads and items that `index` names."""
    uses = np.bincount(bound.index.ravel(), minlength=len(bound.distinct)).tolist()
    by_tiles = sum(n * _tile_cost(m) for n, m in zip(uses, bound.distinct, strict=True))
    by_edges = sum(n * m.num_edges for n, m in zip(uses, bound.distinct, strict=True))
    return by_tiles, by_edges


def _tile_cost(member: Neighborhoods) -> int:
    height, width = PIECE
    # Visiting the tiles in which a run starts may already cost more than all edges: then none is cut out.
    blocks = np.repeat(np.arange(member.queries) // 64, np.diff(member.indptr)) * (member.keys // 64 + 1)
    visits = TILE_VISIT * np.unique(blocks + member.starts // 64).size
    if visits > member.num_edges:
        return visits
    tiles = member.tiles(64)
    pieces = (
        tiles.bits.reshape(-1, 64 // height, height, 64 // width, width).any(axis=(2, 4)).sum(axis=(1, 2))
    )
    partial = np.bincount(tiles.pattern[tiles.pattern >= 0], minlength=len(pieces)) @ pieces
    whole = tiles.num_full * (64 // height) * (64 // width)
    return TILE_VISIT * tiles.columns.size + TILE_PIECE * (int(partial) + whole)


_said = False


def _say_once(why: str | None) -> None:
    global _said
    if not _said:
        _said = True
        warnings.warn(
            f"attention runs through PyTorch: the native extension is missing ({why})", stacklevel=3
        )


def prepare(backend: str, bound: Bound, device: str, needs: Needs = PLAIN) -> Any:
    """What a backend derives from a bound relation: numbers, masks, indices; constant while compiling."""
    if backend == "sdpa":
        return sdpa.prepare(bound, device, biased=needs.bias is not None)
    return _module(backend).prepare(bound, device)


def run(
    backend: str,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    prepared: Any,
    *,
    kernel: Kernel | None = None,
    scale: float | None = None,
    bias: Bias | None = None,
    dropout: float = 0.0,
) -> tuple[Tensor, Any, Any]:
    """Run one backend on what it prepared; gives (output, weights or None, log-sum-exp or None).

    `scale` is that of the default kernel, which `kernel=None` stands for.
    """
    if backend in ("reference", "gather"):
        kernel = SoftmaxDot(scale) if kernel is None else kernel
        # They compute half precision in float32; autocast would round the scores again.
        with torch.autocast(q.device.type, enabled=False):
            out, lse, *weights = _module(backend).attend(
                q, k, v, prepared, kernel=kernel, bias=bias, dropout=dropout
            )
        return out, weights[0] if weights else None, lse
    if kernel is None:
        assert scale is not None
        out, lse = _run_product(backend, q, k, v, prepared, Form(scale), bias, dropout)
        return out, None, lse
    with torch.autocast(q.device.type, enabled=False) if kernel.full_precision else nullcontext():
        if backend == "linear":
            out, lse = linear.attend(q, k, v, prepared, kernel=cast(Linear, kernel))
            return out, None, lse
        form = kernel.form(q.shape[3])
        assert form is not None  # `choose` picks no such backend without one
        queries, keys, shift = kernel.vectors(q, k)
        # Some kernels need more digits than half precision has.
        out, lse = _run_product(backend, queries, keys, v.to(queries.dtype), prepared, form, bias, dropout)
        if kernel.full_precision:
            out = out.to(v.dtype)
            lse = None if lse is None else lse.to(torch.promote_types(v.dtype, torch.float32))
            shift = None if shift is None or lse is None else shift.to(lse.dtype)
    return out, None, lse if shift is None or lse is None else lse + shift


def _run_product(
    backend: str,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    prepared: Any,
    form: Form,
    bias: Bias | None,
    dropout: float,
) -> tuple[Tensor, Tensor | None]:
    attend = _module(backend).attend
    if backend == "sdpa":
        return attend(q, k, v, prepared, scale=form.scale, bias=bias, dropout=dropout), None
    options: dict[str, Any] = {"map": form.map}
    if bias is not None:
        options["bias"] = bias.values
    if backend == "flex":
        return attend(q, k, v, prepared, scale=form.scale, dropout=dropout, **options)
    if backend == "edges" and form.vector is not None:
        options["vector"] = form.vector if form.vector.dim() == 2 else form.vector[None]
    if backend == "edges" and bias is not None:
        options["per_edge"] = bias.per_edge
    seed = torch.randint(2**62, ()) if dropout else None
    return attend(q, k, v, prepared, scale=form.scale, dropout=dropout, seed=seed, **options)


def _module(backend: str) -> Any:
    if backend == "flex":
        from erlangen.attention.backends import flex  # imports the compiler: only when used

        return flex
    return _LIGHT[backend]


_LIGHT = {
    "reference": reference,
    "sdpa": sdpa,
    "tiles": tiles,
    "edges": edges,
    "gather": gather,
    "linear": linear,
}

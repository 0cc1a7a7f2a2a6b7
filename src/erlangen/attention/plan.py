"""Which backend computes an attention, and why."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from erlangen.attention import native
from erlangen.attention.backends import edges, reference, sdpa, tiles
from erlangen.attention.binding import Bound, bind
from erlangen.attention.shapes import check, fold
from erlangen.errors import BackendError
from erlangen.relations import Bindable, Neighborhoods

BACKENDS = ("reference", "sdpa", "tiles", "edges", "flex")

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
    relation: Bindable | Neighborhoods,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
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
    tensors on a CPU, extension built:
      fewer than 8 queries (decoding)            `edges`      too few to fill a tile
      pairs lie close together in 64 x 64 tiles  `tiles`      cheaper by the cost model than edge by edge
      pairs lie scattered                        `edges`      cheaper by the cost model than tile by tile
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
    check(q, k, v, relation)
    q, k, v = (fold(x) for x in (q, k, v))
    bound = bind(
        relation, batch=q.shape[0], heads=q.shape[1], queries=q.shape[2], keys=k.shape[2], vectors=(q, k)
    )
    name, reason = choose(bound, str(q.device), backend, weights, lse)
    spread = q.shape[0] * q.shape[1] // bound.index.size
    pairs = bound.num_edges * spread
    if name == "reference" or (name == "sdpa" and not (bound.is_full or bound.is_causal)):
        pairs = q.shape[0] * q.shape[1] * bound.queries * bound.keys
    return Plan(name, reason, pairs * (q.shape[3] + v.shape[3]))


def choose(bound: Bound, device: str, backend: str | None, weights: bool, lse: bool) -> tuple[str, str]:
    """The decision table of `plan`: a backend that computes this exactly, and the reason."""
    if backend is not None:
        _refuse(backend, device.partition(":")[0], weights, lse)
        return backend, "asked for by name"
    if weights:
        return "reference", "the weights were asked for, and only the dense oracle forms them"
    device = device.partition(":")[0]
    if device == "cpu" and native.available():
        if bound.queries < FEW_QUERIES:
            return "edges", "too few queries to fill a tile"
        by_tiles, by_edges = bound.derived("cost", lambda: _native_cost(bound))
        if by_tiles <= by_edges:
            return "tiles", f"by tiles {by_tiles} units of work, edge by edge {by_edges}"
        return "edges", f"edge by edge {by_edges} units of work, by tiles {by_tiles}"
    if device == "cpu":
        _say_once(native.missing())
    if lse and device != "cuda":
        return "reference", "the log-sum-exp was asked for, and SDPA does not return it"
    if (bound.is_full or bound.is_causal) and not lse:
        return "sdpa", "exact there without a mask"
    if device == "cuda":
        return "flex", "on CUDA FlexAttention skips the empty blocks"
    return "sdpa", "no faster backend here: a dense mask of queries x keys"


def _refuse(backend: str, device: str, weights: bool, lse: bool) -> None:
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


def prepare(backend: str, bound: Bound, device: str) -> Any:
    """What a backend derives from a bound relation: numbers, masks, indices; constant while compiling."""
    return _module(backend).prepare(bound, device)


def run(
    backend: str, q: Tensor, k: Tensor, v: Tensor, prepared: Any, *, scale: float, dropout: float
) -> tuple[Tensor, Any, Any]:
    """Run one backend on what it prepared; gives (output, weights or None, log-sum-exp or None)."""
    attend = _module(backend).attend
    if backend == "reference":
        out, lse, weights = attend(q, k, v, prepared, scale=scale, dropout=dropout)
        return out, weights, lse
    if backend == "sdpa":
        return attend(q, k, v, prepared, scale=scale, dropout=dropout), None, None
    if backend == "flex":
        out, lse = attend(q, k, v, prepared, scale=scale, dropout=dropout)
        return out, None, lse
    seed = torch.randint(2**62, ()) if dropout else None
    out, lse = attend(q, k, v, prepared, scale=scale, dropout=dropout, seed=seed)
    return out, None, lse


def _module(backend: str) -> Any:
    if backend == "flex":
        from erlangen.attention.backends import flex  # imports the compiler: only when used

        return flex
    return _LIGHT[backend]


_LIGHT = {"reference": reference, "sdpa": sdpa, "tiles": tiles, "edges": edges}

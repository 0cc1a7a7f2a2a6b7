"""From a relation and the shapes of a call to the neighborhoods of every batch item and head."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np
import torch
from torch import Tensor

from erlangen.attention import packing
from erlangen.caches import CACHES, cached
from erlangen.errors import ParameterError, SizeError
from erlangen.relations import Neighborhoods
from erlangen.relations.protocol import AnyRelation

CACHE_SIZE = 64
"""How many bound relations are kept, and how many results of backends with each of them."""


def made_plain(make: Callable[[], Any]) -> Any:
    """`make()` outside of transforms and inference mode: what is kept serves calls of every kind, and a
    tensor made inside `torch.func.grad` or `torch.inference_mode` serves only there.

    >>> with torch.inference_mode():
    ...     made_plain(lambda: torch.zeros(2)).is_inference()
    False
    """
    if torch.compiler.is_dynamo_compiling():  # false in what the compiler runs itself, for its result
        return make()
    with ExitStack() as apart:
        if not torch.compiler.is_compiling():  # an export would write it down as a step of its program
            apart.enter_context(torch.inference_mode(False))
            apart.enter_context(torch.no_grad())
        # Only inside a transform are transforms switched off: a block mask is itself made by vmap. The guard
        # acts from the moment it is made, so it is made last and only where it is entered.
        if torch._C._are_functorch_transforms_active():
            apart.enter_context(torch._C._DisableFuncTorch())
        return make()


class Bound:
    """A relation bound to one call: `distinct[index[b, h]]` are the neighborhoods of item b and head h.

    `index` has shape (batch or 1, heads or 1). Whatever a backend derives (tiles, a transposed index) it
    keeps in `derived`, so that a training loop pays for it once.

    >>> from erlangen.relations import Causal, Full, PerHead
    >>> bound = bind(PerHead([Causal(), Full(), Causal()]), batch=2, heads=3, queries=4, keys=4)
    >>> len(bound.distinct), bound.index.tolist(), bound.is_full, bound.is_causal
    (2, [[0, 1, 0]], False, False)
    """

    def __init__(
        self, distinct: tuple[Neighborhoods, ...], index: np.ndarray, queries: int, keys: int
    ) -> None:
        self.distinct = distinct
        self.index = index
        self.queries = queries
        self.keys = keys
        self.is_full = all(member.num_edges == queries * keys for member in distinct)
        """Whether every query reads every key."""
        self.is_causal = queries == keys and all(map(_is_causal, distinct))
        """Whether this is the square relation j <= i, for which SDPA has a path of its own."""
        self.has_empty_queries = any(member.empty_queries().size for member in distinct)
        """Whether some query reads nothing."""
        self._derived: dict[Any, Any] = {}
        self._lock = threading.RLock()

    def derived(self, key: Any, make: Callable[[], Any]) -> Any:
        """`make()`, computed once for each key; safe to call from several threads."""
        with self._lock:
            if key not in self._derived:
                made = made_plain(make)
                if len(self._derived) >= CACHE_SIZE:
                    del self._derived[next(iter(self._derived))]
                self._derived[key] = made
            return self._derived[key]

    @property
    def packed(self) -> packing.PackedNeighborhoods:
        """The relation as the native kernels read it."""
        return self.derived("packed", lambda: packing.PackedNeighborhoods(self.distinct, self.index))

    @property
    def num_edges(self) -> int:
        """Edges of all distinct neighborhoods, each counted as often as `index` uses it."""
        return sum(self.distinct[member].num_edges for member in self.index.ravel().tolist())

    @torch.compiler.assume_constant_result
    def mask(self, device: str = "cpu") -> Tensor:
        """The dense mask, True = may read, of shape (batch or 1, heads or 1, queries, keys)."""

        def make() -> Tensor:
            stacked = np.stack([member.dense() for member in self.distinct])
            return torch.from_numpy(stacked[self.index]).to(device)

        return self.derived(("mask", device), make)

    @torch.compiler.assume_constant_result
    def empty(self, device: str = "cpu") -> Tensor:
        """Which queries read nothing, shape (batch or 1, heads or 1, queries, 1)."""

        def make() -> Tensor:
            stacked = np.stack([member.degrees == 0 for member in self.distinct])
            return torch.from_numpy(stacked[self.index][..., None]).to(device)

        return self.derived(("empty", device), make)


def _is_causal(member: Neighborhoods) -> bool:
    rows = np.arange(member.queries + 1)
    return (
        member.starts.size == member.queries
        and not member.starts.any()
        and np.array_equal(member.indptr, rows)
        and np.array_equal(member.stops, rows[1:])
    )


def bind(
    relation: AnyRelation,
    *,
    batch: int,
    heads: int,
    queries: int,
    keys: int,
    vectors: tuple[Tensor, Tensor] | None = None,
) -> Bound:
    """Bind a relation to the shapes of one attention call, from the cache where possible.

    `vectors` are the queries (batch, heads, queries, dim) and keys (batch, kv heads, keys, dim) that a
    data-dependent relation is bound to; it is bound anew for every call.
    """
    if relation.weights is not None:
        raise ParameterError(
            f"{relation} has log-weights, which what is made of its pairs alone would lose: give it to "
            f"attend as it is, or take its support, {relation.support}"
        )
    if relation.is_bound:
        if relation.own_sizes != (queries, keys):
            raise SizeError(f"{relation} does not fit {queries} queries and {keys} keys")
        alone: Any = (relation,)
        return Bound(alone, np.zeros((1, 1), np.int64), queries, keys)
    if relation.data_dependent:
        return _bind(relation, batch, heads, queries, keys, vectors)
    axes = relation.axes
    return _kept(relation, batch if "item" in axes else 1, heads if "head" in axes else 1, queries, keys)


def bind_alone(relation: AnyRelation, queries: int, keys: int) -> Bound:
    """Bind a relation to sizes without a call: for as many items and heads as it has itself.

    >>> from erlangen.relations import Batch, Causal, Full, PerHead
    >>> bind_alone(Batch([PerHead([Causal(), Full()]), Full()]), 4, 4).index.tolist()
    [[0, 1], [1, 1]]
    """
    grid = relation.grid()
    return bind(relation, batch=len(grid), heads=len(grid[0]), queries=queries, keys=keys)


def clear_cache() -> None:
    """Forget every bound relation and all else that is kept between calls, and give the memory of large
    results back to the system."""
    for cache in CACHES:
        cache.cache_clear()
    if packing.native is not None:
        packing.native.empty_buffer_pool()


def _bind(
    relation: AnyRelation, batch: int, heads: int, queries: int, keys: int, vectors: Any = None
) -> Bound:
    grid = relation.grid(batch, heads)
    rows, columns = (batch, heads) if relation.data_dependent else (len(grid), len(grid[0]))
    distinct: dict[Neighborhoods, int] = {}
    seen: dict[Any, Neighborhoods] = {}
    index = np.empty((rows, columns), np.int64)
    for b, h in np.ndindex(rows, columns):
        member = grid[b % len(grid)][h % len(grid[0])]
        if member.data_dependent and vectors is not None:
            q, k = vectors
            bound = member.on(q[b, h], k[b, h * k.shape[1] // heads])
        else:
            if member not in seen:
                seen[member] = member.on(queries, keys)
            bound = seen[member]
        index[b, h] = distinct.setdefault(bound, len(distinct))
    return Bound(tuple(distinct), index, queries, keys)


_kept = cached(CACHE_SIZE)(_bind)

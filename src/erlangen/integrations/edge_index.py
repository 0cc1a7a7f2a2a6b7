"""PyG's `edge_index` as a relation, worked out once: a training loop gives the same one each step."""

from __future__ import annotations

import threading
from collections import OrderedDict
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from erlangen.errors import ParameterError, SizeError
from erlangen.relations import FromMask, Neighborhoods

CACHE_SIZE = 16
"""How many edge indices are remembered; the least recently used goes first."""


class Edges:
    """The edges source -> target of an `edge_index` (2, edges): target i reads source j.

    `loops` edges i -> i stand at the end, in place of those that were there, where they were asked for.
    A relation is a set of pairs, but an `edge_index` may name a pair twice, and PyG then counts it twice:
    `simple` says whether it does not. `relation` relates targets to sources; `runs` relates targets to
    *edges*, each edge being a key of its own, sorted by target as `order` says.

    >>> edges = Edges(torch.tensor([[1, 2, 1], [0, 0, 0]]), sources=3, targets=1, loops=0)
    >>> edges.simple, edges.relation.on(1, 3).num_edges, edges.runs.on(1, 3).num_edges
    (False, 2, 3)
    """

    def __init__(self, edge_index: Tensor, sources: int, targets: int, loops: int) -> None:
        if loops:
            kept = edge_index[:, edge_index[0] != edge_index[1]]
            edge_index = torch.cat([kept, torch.arange(loops, device=kept.device).expand(2, loops)], dim=1)
        self.edge_index = edge_index
        self.source, self.target = edge_index[0], edge_index[1]
        self._sources, self._targets = sources, targets
        self._pairs = edge_index.cpu().numpy()[::-1].T  # a relation's pairs are (query, key)

    @cached_property
    def _neighborhoods(self) -> Neighborhoods:
        return Neighborhoods.from_edges(self._targets, self._sources, self._pairs)

    @property
    def simple(self) -> bool:
        return self._neighborhoods.num_edges == len(self._pairs)

    @cached_property
    def relation(self) -> FromMask:
        return FromMask._of(self._neighborhoods)

    @cached_property
    def order(self) -> Tensor:
        return self.target.argsort(stable=True)

    @cached_property
    def runs(self) -> FromMask:
        stops = np.bincount(self._pairs[:, 0], minlength=self._targets).cumsum()
        starts = np.concatenate([[0], stops[:-1]]) if stops.size else stops
        return FromMask._of(Neighborhoods.from_bands(len(self._pairs), starts, stops))


_cache: OrderedDict[Any, tuple[Tensor, int | None, Edges]] = OrderedDict()
_lock = threading.Lock()


def edges_of(edge_index: Tensor, sources: int, targets: int, loops: int = 0) -> Edges:
    """The edges of an `edge_index`, from the cache where this tensor, or one of equal entries, was given.

    A change in place is noticed. `loops` adds i -> i for i < loops, in place of the self loops there are.

    >>> edge_index = torch.tensor([[0, 1], [1, 0]])
    >>> edges_of(edge_index, 2, 2) is edges_of(edge_index, 2, 2) is edges_of(edge_index.clone(), 2, 2)
    True
    >>> edges_of(torch.tensor([[0], [7]]), 2, 2)
    Traceback (most recent call last):
    ...
    erlangen.errors.SizeError: edge_index names target 7, but there are 2 targets
    """
    _check(edge_index, sources, targets)
    key = (id(edge_index), sources, targets, loops)
    with _lock:
        found = _cache.get(key)
        if found is not None and found[1] is not None and found[1] == _version(found[0]):
            _cache.move_to_end(key)
            return found[2]
        for old, (tensor, version, edges) in list(_cache.items()):
            if version != _version(tensor):
                del _cache[old]
            elif old[1:] == key[1:] and _same(tensor, edge_index):
                _cache.move_to_end(old)
                return edges
    _check_range(edge_index[0], sources, "source")
    _check_range(edge_index[1], targets, "target")
    # A tensor without a version could change unnoticed: its entries are compared, with a copy.
    version = _version(edge_index)
    kept = edge_index if version is not None else edge_index.clone()
    edges = Edges(edge_index, sources, targets, loops)
    with _lock:
        _cache[key] = (kept, version, edges)  # the tensor is kept, so that its id remains its own
        while len(_cache) > CACHE_SIZE:
            _cache.popitem(last=False)
    return edges


def _version(tensor: Tensor) -> int | None:
    return None if tensor.is_inference() else tensor._version


def _same(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and a.device == b.device and a.dtype == b.dtype and torch.equal(a, b)


def _check(edge_index: Any, sources: int, targets: int) -> None:
    if not isinstance(edge_index, Tensor) or edge_index.layout != torch.strided:
        kind = edge_index.layout if isinstance(edge_index, Tensor) else type(edge_index).__name__
        raise ParameterError(
            f"edge_index must be a dense tensor (2, edges), got {kind}; sparse matrices are not read"
        )
    if edge_index.dim() != 2 or edge_index.shape[0] != 2 or edge_index.is_floating_point():
        raise ParameterError(
            f"edge_index must be integers of shape (2, edges), got {edge_index.dtype} "
            f"of shape {tuple(edge_index.shape)}"
        )


def _check_range(ends: Tensor, bound: int, what: str) -> None:
    outside = ends[(ends < 0) | (ends >= bound)]
    if outside.numel():
        raise SizeError(f"edge_index names {what} {int(outside[0])}, but there are {bound} {what}s")

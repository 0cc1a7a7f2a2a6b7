"""PyG's `edge_index` as a relation, built once: a training loop gives the same one each step.

A tensor can change in ways that leave no trace: through `.data`, through the memory it shares with NumPy, as
a buffer that is filled anew. So edges are looked up by the entries of the tensor, compared with a copy at
every call, which costs about as much as reading it once; `prepare` is for those who want to save that too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, wraps
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from erlangen.caches import Recent
from erlangen.errors import ParameterError, SizeError
from erlangen.relations import FromMask, Neighborhoods

CACHE_SIZE = 16
"""How many edge indices are remembered; the least recently used goes first."""

_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def _for_every_mode(make: Callable[..., Any]) -> Callable[..., Any]:
    """Tensors that are kept are made outside inference mode: those made inside could not be trained on."""

    @wraps(make)
    def made(*arguments: Any, **named: Any) -> Any:
        with torch.inference_mode(False):
            return make(*arguments, **named)

    return made


class Edges:
    """The edges source -> target of an `edge_index` (2, edges): target i reads source j.

    `loops` edges i -> i stand at the end, in place of those that were there, where they were asked for;
    `given` is the number of edges before that.
    A relation is a set of pairs, but an `edge_index` may name a pair twice, and PyG then counts it twice:
    `simple` says whether it does not. `relation` relates targets to sources; `runs` relates targets to
    *edges*, each edge being a key of its own, sorted by target as `order` says.

    >>> edges = Edges(torch.tensor([[1, 2, 1], [0, 0, 0]]), sources=3, targets=1, loops=0)
    >>> edges.simple, edges.relation.on(1, 3).num_edges, edges.runs.on(1, 3).num_edges
    (False, 2, 3)
    """

    @_for_every_mode
    def __init__(self, edge_index: Tensor, sources: int, targets: int, loops: int) -> None:
        self.given = edge_index.shape[1]
        if loops:
            kept = edge_index[:, edge_index[0] != edge_index[1]]
            own = torch.arange(loops, device=kept.device, dtype=kept.dtype).expand(2, loops)
            edge_index = torch.cat([kept, own], dim=1)
        else:
            edge_index = edge_index.detach().clone()  # the caller's memory may change under our hands
        self.edge_index = edge_index
        self.source, self.target = edge_index.long()  # other integers are no indices, or masks, to PyTorch
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
    @_for_every_mode
    def order(self) -> Tensor:
        return self.target.argsort(stable=True)

    @cached_property
    def runs(self) -> FromMask:
        stops = np.bincount(self._pairs[:, 0], minlength=self._targets).cumsum()
        starts = np.concatenate([[0], stops[:-1]]) if stops.size else stops
        return FromMask._of(Neighborhoods.from_bands(len(self._pairs), starts, stops))

    def rows(self, x: Tensor, features: Tensor | None = None) -> Tensor:
        """The keys of `runs`: the row of x at each edge's source, with the features of the edge added."""
        rows = x[self.source[self.order]]
        return rows if features is None else rows + features[self.order]


_cache: Recent[Edges, tuple[tuple[int, int, int], Tensor, Edges]] = Recent(CACHE_SIZE)


def edges_of(edge_index: Tensor, sources: int, targets: int, loops: int = 0) -> Edges:
    """The edges of an `edge_index`, from the cache where one of equal entries was given before.

    Entries are compared at every call, so that a change is noticed however it was made. `loops` adds i -> i
    for i < loops, in place of the self loops there are.

    >>> edge_index = torch.tensor([[0, 1], [1, 0]])
    >>> before = edges_of(edge_index, 2, 2)
    >>> edges_of(edge_index, 2, 2) is before is edges_of(edge_index.clone(), 2, 2)
    True
    >>> edge_index.data[0, 0] = 1
    >>> edges_of(edge_index, 2, 2).edge_index.tolist(), before.edge_index.tolist()
    ([[1, 1], [1, 0]], [[0, 1], [1, 0]])
    >>> edges_of(torch.tensor([[0], [7]]), 2, 2)
    Traceback (most recent call last):
    ...
    erlangen.errors.SizeError: edge_index names target 7, but there are 2 targets
    """
    _check(edge_index)
    key = (sources, targets, loops)
    known = _cache.find(lambda entry: entry[0] == key and _same(entry[1], edge_index))
    if known is not None:
        return known[2]
    given = _copy(edge_index, sources, targets)
    edges = Edges(given, sources, targets, loops)
    _cache.put(edges, (key, given, edges))
    return edges


@final
class PreparedEdges:
    """The edges of a graph that does not change, for `RelationConv` in place of `edge_index`.

    The entries of the tensor are copied and are not looked at again, so that a call does not compare them:
    what becomes of the tensor later is of no concern here. Made by `prepare`.
    """

    def __init__(self, edge_index: Tensor, sources: int, targets: int) -> None:
        _check(edge_index)
        self._edge_index = _copy(edge_index, sources, targets)
        self.sources, self.targets = sources, targets
        self._edges: dict[int, Edges] = {}

    def __repr__(self) -> str:
        return (
            f"PreparedEdges({self._edge_index.shape[1]} edges, {self.sources} sources, "
            f"{self.targets} targets)"
        )

    @property
    def edge_index(self) -> Tensor:
        """A copy of the edges, (2, edges)."""
        return self._edge_index.clone()

    def edges(self, sources: int, targets: int, loops: int = 0) -> Edges:
        """The edges between so many sources and targets, which must be those it was prepared for."""
        if (sources, targets) != (self.sources, self.targets):
            raise SizeError(f"{self} was given features of {sources} sources and {targets} targets")
        if loops not in self._edges:
            self._edges[loops] = Edges(self._edge_index, sources, targets, loops)
        return self._edges[loops]


def prepare(edge_index: Tensor, sources: int, targets: int | None = None) -> PreparedEdges:
    """The edges of a static graph, built and checked once, to give for `edge_index`.

    `targets` is `sources` if not given.

    >>> from erlangen.integrations.pyg import RelationConv, prepare
    >>> edge_index = torch.tensor([[0, 1, 2], [1, 2, 0]])
    >>> graph, conv, x = prepare(edge_index, 3), RelationConv(4, 2), torch.randn(3, 4)
    >>> graph, torch.equal(conv(x, graph), conv(x, edge_index))
    (PreparedEdges(3 edges, 3 sources, 3 targets), True)
    """
    return PreparedEdges(edge_index, sources, sources if targets is None else targets)


@_for_every_mode
def _copy(edge_index: Tensor, sources: int, targets: int) -> Tensor:
    # The copy is checked: the caller's memory may be written to by another thread meanwhile.
    copy = edge_index.detach().clone()
    for ends, bound, what in ((copy[0], sources, "source"), (copy[1], targets, "target")):
        outside = ends[(ends < 0) | (ends >= bound)]
        if outside.numel():
            raise SizeError(f"edge_index names {what} {int(outside[0])}, but there are {bound} {what}s")
    return copy


def _same(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and a.device == b.device and a.dtype == b.dtype and torch.equal(a, b)


def _check(edge_index: Any) -> None:
    if not isinstance(edge_index, Tensor) or edge_index.layout != torch.strided:
        kind = edge_index.layout if isinstance(edge_index, Tensor) else type(edge_index).__name__
        raise ParameterError(
            f"edge_index must be a dense tensor (2, edges), got {kind}; sparse matrices are not read here"
        )
    if edge_index.is_meta:
        raise ParameterError(
            f"edge_index of shape {tuple(edge_index.shape)} is on the meta device, where it names no edges: "
            "give one of a device with memory"
        )
    if edge_index.dim() != 2 or edge_index.shape[0] != 2 or edge_index.dtype not in _INTEGERS:
        raise ParameterError(
            f"edge_index must be integers of shape (2, edges), got {edge_index.dtype} "
            f"of shape {tuple(edge_index.shape)}"
        )

"""Keys and values of the past, for decoding step by step with any relation."""

from __future__ import annotations

import weakref
from functools import singledispatch
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from erlangen.errors import ParameterError, ShapeError, SizeError
from erlangen.relations import Bindable, FromMask, Neighborhoods, Relation, WeightedRelation, sizes
from erlangen.relations.families import Family
from erlangen.relations.protocol import AnyRelation
from erlangen.relations.weighted import WeightedRows


class KVCache:
    """Keys and values seen so far by one layer; grows as the layer is called with `cache=`.

    `length` is the number of positions of the finished sequence. Relations that depend on it (documents,
    grids, graphs, rings) need it; the others, for which row i never changes as the sequence grows, do not.

    >>> KVCache(length=8).position
    0
    """

    def __init__(self, length: int | None = None) -> None:
        self.length = None if length is None else sizes.size(length, "KVCache(length)")
        self.position = 0
        self._layer: weakref.ref[nn.Module] | None = None
        self._keys: Tensor | None = None
        self._values: Tensor | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_layer": None}

    def claim(self, layer: nn.Module) -> None:
        """Raise if another layer keeps its past here: keys of two layers would be taken for one past.

        >>> cache, first, second = KVCache(), nn.Identity(), nn.Identity()
        >>> cache.claim(first)
        >>> cache.claim(second)
        Traceback (most recent call last):
        ...
        erlangen.errors.ParameterError: this cache holds the past of another layer: give each a KVCache()
        """
        owner = None if self._layer is None else self._layer()
        if owner is None:
            self._layer = weakref.ref(layer)
        elif owner is not layer:
            raise ParameterError("this cache holds the past of another layer: give each a KVCache()")

    def append(self, keys: Tensor, values: Tensor, kept: bool = False) -> tuple[Tensor, Tensor]:
        """Add (..., new, dim) keys and values; gives all so far, as views of the store.

        `kept`: a gradient needs what is given as it is now, though keys and values have none themselves.
        """
        stop = self.position + keys.shape[-2]
        if self.length is not None and stop > self.length:
            raise SizeError(f"the cache was made for {self.length} positions, and {stop} were given")
        kept = kept or keys.requires_grad or values.requires_grad
        self._keys = self._store(self._keys, keys, stop, kept)
        self._values = self._store(self._values, values, stop, kept)
        self.position = stop
        return self._keys[..., :stop, :], self._values[..., :stop, :]

    def _store(self, store: Tensor | None, new: Tensor, stop: int, kept: bool) -> Tensor:
        if store is not None and (store.shape[:-2], store.shape[-1]) != (new.shape[:-2], new.shape[-1]):
            raise ShapeError(
                f"the cache holds {tuple(store.shape[:-2])} x {store.shape[-1]}, "
                f"but {tuple(new.shape[:-2])} x {new.shape[-1]} was given"
            )
        if kept:  # writing in place would cut the graph
            return new if store is None else torch.cat([store[..., : self.position, :], new], dim=-2)
        if store is None or store.shape[-2] < stop:
            room = self.length if self.length is not None else max(2 * stop, 64)
            grown = new.new_empty((*new.shape[:-2], room, new.shape[-1]))
            if store is not None:
                grown[..., : self.position, :] = store[..., : self.position, :]
            store = grown
        store[..., self.position : stop, :] = new
        return store


@singledispatch
def step(relation: AnyRelation, start: int, stop: int, length: int | None) -> Any:
    """The rows of positions start .. stop - 1, when keys 0 .. stop - 1 are there.

    These are the rows of the full pass, or the relation cannot be decoded in such steps: a row that reads a
    key after `stop`, or that would change as the sequence grows, is an error. Weights belong to pairs of
    positions, so they never change.

    >>> from erlangen.relations import Causal, Full
    >>> step(Causal(), 3, 4, None).num_edges
    4
    >>> step(Full(), 3, 4, None)
    Traceback (most recent call last):
    ...
    erlangen.errors.SizeError: Full() cannot be decoded step by step: position 3 would also read keys that
    come after position 3; use Full() & Causal(), or give these positions in one step
    """
    raise ParameterError(f"only relations that are not bound are decoded step by step, got {relation!r}")


@step.register
def _(relation: WeightedRelation, start: int, stop: int, length: int | None) -> WeightedRows:
    rows: Any = step(relation.support, start, stop, length)  # type: ignore[arg-type]
    return WeightedRows(relation, rows, query=start, key=0)


@step.register
def _(relation: Family, start: int, stop: int, length: int | None) -> Family:
    return relation._map(lambda member: _symbolic(step(member, start, stop, length)))


@step.register
def _(relation: Relation, start: int, stop: int, length: int | None) -> Neighborhoods:
    positions = np.arange(start, stop)
    if length is not None:
        rows = relation.rows(positions, length)
        late = rows.stops > stop
        if late.any():
            raise _undecodable(
                relation, start + int(np.searchsorted(rows.indptr, late.argmax(), "right")) - 1, stop
            )
        return Neighborhoods(rows.queries, stop, rows.indptr, rows.starts, rows.stops)
    own = relation.own_sizes
    if own is not None:
        raise SizeError(
            f"{relation} has {own[1]} positions: to decode it step by step, make KVCache(length={own[1]})"
        )
    rows = relation.rows(positions, stop)
    if not relation.pointwise:
        raise SizeError(
            f"{relation} cannot be decoded step by step while the length of the sequence is not known: a row "
            "may be another one as the sequence grows; use KVCache(length=...), or give all positions at once"
        )
    # A key far behind the row may be read, too. Twice the length shows it before it is there.
    grown = relation.rows(positions, 2 * stop + 64)
    if not all(
        np.array_equal(a, b)
        for a, b in ((rows.indptr, grown.indptr), (rows.starts, grown.starts), (rows.stops, grown.stops))
    ):
        changed = (rows.degrees != grown.degrees).argmax()
        raise _undecodable(relation, start + int(changed), stop)
    return rows


def _symbolic(rows: Any) -> Any:
    """What a family may hold: rows of a single relation as a relation, heads as they are."""
    return rows if rows.axes else FromMask._of(rows)


def _undecodable(relation: Bindable, position: int, stop: int) -> SizeError:
    return SizeError(
        f"{relation} cannot be decoded step by step: position {position} would also read keys that come "
        f"after position {stop - 1}; use {relation} & Causal(), or give these positions in one step"
    )

"""Weighted: any relation with any log-weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

import numpy as np

from erlangen.errors import ParameterError, SizeError
from erlangen.relations.catalogue import written
from erlangen.relations.families import Bindable
from erlangen.relations.lookup import is_torch
from erlangen.relations.neighborhoods import Neighborhoods
from erlangen.relations.protocol import Draw
from erlangen.relations.relation import Relation
from erlangen.relations.sparse_graph import Graph
from erlangen.relations.weighted import tables
from erlangen.relations.weighted.tables import with_heads
from erlangen.relations.weighted.weighted_relation import WeightedRelation


@written
@final
class Weighted(WeightedRelation):
    """A relation with log-weights of one's own, given in one of three ways.

    - `bias`: a matrix (queries, keys), or (heads, queries, keys): the log-weight of every pair. It fits its
      own number of keys; its rows are the last positions.
    - `offsets`: {j - i: log-weight} with a number, or one per head; other differences have log-weight 0.
      Toeplitz: it fits every size.
    - `edges`: one number per edge of the relation in the order of `edges()`, shape (edges,) or (heads,
      edges); for relations with a size of their own, such as graphs.

    Numbers outside the relation are not read. Torch tensors (`bias`, `edges`) receive gradients.

    >>> from erlangen.relations import Causal
    >>> Weighted(Causal(), offsets={0: 0, -1: -2}).on(3).dense()[0].tolist()
    [[0.0, -inf, -inf], [-2.0, 0.0, -inf], [0.0, -2.0, 0.0]]
    >>> Weighted(Graph([(0, 1), (1, 0)], nodes=2), edges=[3, 4]).on(2).dense()[0].tolist()
    [[-inf, 3.0], [4.0, -inf]]
    >>> Weighted(Causal(), [[0, 0], [1, 0]])
    Weighted(Causal(), bias=[[0, 0], [1, 0]])
    """

    __slots__ = ("_listed", "bias", "edges", "offsets")
    bias: Any
    edges: Any
    offsets: tuple[tuple[int, Any], ...] | None
    _listed: Any

    def __init__(
        self, relation: Bindable, bias: Any = None, *, edges: Any = None, offsets: Any = None
    ) -> None:
        given = [name for name, value in (("bias", bias), ("edges", edges), ("offsets", offsets))
                 if value is not None]  # fmt: skip
        if len(given) != 1:
            raise ParameterError(
                f"Weighted(relation, ...) takes one of bias, edges and offsets, got {given or 'none of them'}"
            )
        values = None
        if bias is not None:
            bias = tables.table(bias, "Weighted(bias)", (2, 3))
            values = bias
        elif edges is not None:
            edges = tables.table(edges, "Weighted(edges)", (1, 2))
            values = edges
        else:
            offsets, values = _offsets(offsets)
        super().__init__(relation, bias=bias, edges=edges, offsets=offsets, _listed=values)
        if edges is not None:
            own = _own(relation)
            if own.num_edges != values.shape[-1]:
                raise ParameterError(
                    f"Weighted(edges) needs one number for each of the {own.num_edges} edges of {relation}, "
                    f"got {values.shape[-1]}"
                )

    @classmethod
    def example(cls, n: int, draw: Draw) -> Weighted:
        match draw.choice(["bias", "edges", "offsets"]):
            case "bias":
                return cls(draw.relation(n), np.array(draw.integers(-3, 3, n * n, n * n)).reshape(n, n))
            case "edges":
                pairs = Graph.example(n, draw).edges()
                numbers = draw.integers(-3, 3, len(pairs), len(pairs))
                return cls(Graph.from_pairs(pairs, nodes=n), edges=np.array(numbers, np.int64))
            case _:
                offsets = set(draw.integers(-4, 4, 1, 4))
                return cls(
                    draw.relation(n), offsets={offset: draw.integer(-3, 3) for offset in sorted(offsets)}
                )

    @property
    def structured(self) -> bool:  # type: ignore[override]
        """Whether the log-weights depend on j - i alone."""
        return self.offsets is not None

    @property
    def _values(self) -> Any:
        return with_heads(self._listed, 2 if self.bias is None else 3)

    @property
    def heads(self) -> int:
        return self._values.shape[0]

    @property
    def own_sizes(self) -> tuple[int, int] | None:
        return super().own_sizes if self.bias is None else tuple(self._values.shape[1:])

    def _arguments(self) -> dict[str, Any]:
        named = {"bias": self.bias, "edges": self.edges, "offsets": self.offsets}
        return {name: value for name, value in named.items() if value is not None}

    def __repr__(self) -> str:
        ((name, value),) = self._arguments().items()
        text = repr(list(value)) if name == "offsets" else tables.written(value)
        return f"Weighted({self.support!r}, {name}={text})"

    # ------------------------------------------------------------------- biases

    def _by_offset(self, offsets: np.ndarray) -> Any:
        return tables.floats(self._by_difference(offsets))

    def _by_pair(self, i: np.ndarray, j: np.ndarray) -> Any:
        return tables.floats(self._look_up(i, j))

    def _units(self, i: np.ndarray, j: np.ndarray) -> list[np.ndarray]:
        return list(tables.exact(self._look_up(i, j)))

    def _by_difference(self, offsets: np.ndarray) -> np.ndarray:
        listed = np.array([offset for offset, _ in self.offsets or ()], np.int64)
        # The last column is the log-weight 0 of every difference that is not listed.
        padded = np.concatenate([self._values, np.zeros((self.heads, 1), self._values.dtype)], axis=1)
        place = np.minimum(np.searchsorted(listed, offsets), max(listed.size - 1, 0))
        found = listed[place] == offsets if listed.size else np.zeros(offsets.shape, bool)
        return padded[:, np.where(found, place, listed.size)]

    def _look_up(self, i: np.ndarray, j: np.ndarray) -> Any:
        if self.offsets is not None:
            return self._by_difference(j - i)
        if self.bias is not None:
            _, queries, keys = self._values.shape
            rows = i + (queries - keys)
            if i.size and (rows.min() < 0 or rows.max() >= queries or j.max() >= keys):
                raise SizeError(
                    f"{self} has log-weights for {queries} queries and {keys} keys, "
                    f"but was asked for positions up to {max(i.max(), j.max())}"
                )
            flat = self._values.reshape(self.heads, -1)
            return tables.take(flat, rows * keys + j)
        own = _own(self.support)
        codes = own.edges() @ np.array([own.keys, 1])
        place = np.searchsorted(codes, i * own.keys + j)
        missing = (place >= codes.size) | (codes[np.minimum(place, codes.size - 1)] != i * own.keys + j)
        if missing.any():
            where = int(missing.argmax())
            raise SizeError(f"{self} has no edge ({i[where]}, {j[where]})")
        return tables.take(self._values, place)

    def with_support(self, relation: Bindable) -> Weighted:
        """The same weights on other pairs; numbers per edge go with the edges that remain."""
        if self.edges is None:
            return Weighted(relation, **self._arguments())
        kept = _own(relation).edges()
        return Weighted(relation, edges=self._look_up(kept[:, 0], kept[:, 1]))

    def on(self, queries: Any, keys: Any = None) -> Any:
        bound = super().on(queries, keys)
        if self.bias is not None and bound.keys != self._values.shape[2]:
            raise SizeError(
                f"{self} has log-weights for {self._values.shape[2]} keys, but was bound to {bound.keys}"
            )
        return bound


def _offsets(offsets: Any) -> tuple[tuple[tuple[int, Any], ...], np.ndarray]:
    """Sorted pairs (j - i, log-weight), and the log-weights as an array (heads, offsets)."""
    listed = list(offsets.items()) if isinstance(offsets, Mapping) else list(offsets)
    if not all(
        isinstance(item, (tuple, list)) and len(item) == 2 and isinstance(item[0], (int, np.integer))
        for item in listed
    ):
        raise ParameterError(f"Weighted(offsets) takes {{j - i: log-weight}}, got {offsets!r}")
    listed = sorted(((int(offset), value) for offset, value in listed), key=lambda item: item[0])
    names = [offset for offset, _ in listed]
    if len(set(names)) < len(names):
        raise ParameterError(f"Weighted(offsets) names a difference twice: {names}")
    if any(is_torch(value) for _, value in listed):
        raise ParameterError(
            "Weighted(offsets) takes numbers; a learned bias by distance is RelativeBias or ALiBi"
        )
    array = tables.table([value for _, value in listed], "Weighted(offsets)", (1, 2))
    values = array[None] if array.ndim == 1 else array.T
    pairs = tuple((offset, _plain(value)) for (offset, _), value in zip(listed, array, strict=True))
    return pairs, values


def _plain(value: Any) -> Any:
    return tuple(value.tolist()) if isinstance(value, np.ndarray) else getattr(value, "item", lambda: value)()


def _own(relation: Any) -> Neighborhoods:
    """The edges of a relation at the one size it has."""
    if isinstance(relation, Graph) and relation.nodes is None:
        return relation._bound
    sizes = relation.own_sizes if isinstance(relation, Relation) else None
    if sizes is None:
        raise ParameterError(
            f"Weighted(edges) needs a relation with a size of its own, such as Graph(edges, nodes); "
            f"got {relation!r}. By difference: offsets; by pair: bias"
        )
    return relation.on(*sizes)

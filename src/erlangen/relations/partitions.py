"""Relations of parts: encoder and decoder, documents, blocks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, final

import numpy as np

from erlangen.errors import ParameterError, SizeError
from erlangen.relations import sizes
from erlangen.relations.catalogue import written
from erlangen.relations.families import Batch
from erlangen.relations.lookup import like, to_numpy
from erlangen.relations.neighborhoods import Neighborhoods
from erlangen.relations.protocol import Draw
from erlangen.relations.relation import EQUIVALENCE, Relation, Site


@written
@final
@dataclass(frozen=True)
class Bipartite(Relation):
    """Encoder-decoder attention on the joint index set, encoder first: i >= encoder and j < encoder.

    The decoder positions read all encoder positions; encoder rows are empty. The non-zero block is the lower
    left one (Theorem 2). For attention from separate decoder queries to encoder keys use `Full()`.

    >>> Bipartite(encoder=2, decoder=1).on(3).dense().astype(int).tolist()
    [[0, 0, 0], [0, 0, 0], [1, 1, 0]]
    """

    encoder: int
    decoder: int

    def __post_init__(self) -> None:
        self._fill(
            encoder=sizes.size(self.encoder, "Bipartite(encoder)"),
            decoder=sizes.size(self.decoder, "Bipartite(decoder)"),
        )

    @classmethod
    def example(cls, n: int, draw: Draw) -> Bipartite:
        encoder = draw.integer(0, n)
        return cls(encoder, n - encoder)

    _arithmetic = True

    @property
    def own_sizes(self) -> tuple[int, int] | None:
        return self.encoder + self.decoder, self.encoder + self.decoder

    def classes(self, n: int) -> list[np.ndarray] | None:
        halves = [np.arange(self.encoder), np.arange(self.encoder, n)]
        return halves if all(half.size for half in halves) else [np.arange(n)]

    def _require(self, site: Site) -> None:
        if site.keys != self.encoder + self.decoder:
            raise SizeError(
                f"{self} is a relation on {self.encoder + self.decoder} joint positions, "
                f"but was bound to {site.keys} keys"
            )

    def _bind(self, site: Site) -> Neighborhoods:
        stops = np.where(site.positions >= self.encoder, self.encoder, 0)
        return Neighborhoods.from_bands(site.keys, np.zeros_like(stops), stops)

    def _holds(self, i: Any, j: Any, keys: int | None) -> Any:
        return (i >= self.encoder) & (j < self.encoder)


@written
@final
@dataclass(frozen=True, repr=False)
class Documents(Relation):
    """Packed documents: i and j lie in the same document of a sequence of documents of the given lengths.

    >>> Documents([2, 1]).on(3).dense().astype(int).tolist()
    [[1, 1, 0], [1, 1, 0], [0, 0, 1]]
    >>> Documents([2, 1]).on(4)
    Traceback (most recent call last):
    ...
    erlangen.errors.SizeError: Documents(lengths=(2, 1)) has 3 positions, but was bound to 4 keys
    """

    lengths: tuple[int, ...]

    def __init__(self, lengths: Iterable[int]) -> None:
        if isinstance(lengths, (str, bytes)) or not isinstance(lengths, Iterable):
            raise ParameterError(f"Documents(lengths) takes a list of lengths, got {lengths!r}")
        values = tuple(sizes.count(length, "Documents(lengths)") for length in lengths)
        object.__setattr__(self, "lengths", values)
        sizes.size(sum(values), "the sum of Documents(lengths)")

    @classmethod
    def example(cls, n: int, draw: Draw) -> Documents:
        ends = [0, *sorted(draw.integers(0, n, 0, 4)), n]
        return cls([end - start for start, end in pairwise(ends)])

    @classmethod
    def from_ids(cls, ids: Any) -> Documents | Batch:
        """The documents of a packed sequence from the number of the document at each position.

        Positions of equal ids next to each other are a document, whatever the numbers are; an id that comes
        back after another is refused. (batch, positions) gives a `Batch`, one packed sequence per item.
        Padding is a document of its own here; where nobody is to read it, combine with `Batch.from_mask`.

        >>> Documents.from_ids([7, 7, 7, 2, 2])
        Documents(lengths=(3, 2))
        >>> Documents.from_ids([[0, 0, 1], [0, 1, 2]])
        Batch([Documents(lengths=(2, 1)), Documents(lengths=(1, 1, 1))])
        >>> Documents.from_ids([0, 1, 0])
        Traceback (most recent call last):
        ...
        erlangen.errors.ParameterError: Documents.from_ids(ids): id 0 comes back at position 2 after another
        document; documents lie in one piece. For every pair of equal ids write FromMask(ids[:, None] == ids)
        """
        array = _integers(ids, "Documents.from_ids(ids)", "(positions,) or (batch, positions)", (1, 2))
        if array.ndim == 2:
            return Batch(cls._of_ids(row) for row in array)
        return cls._of_ids(array)

    @classmethod
    def _of_ids(cls, ids: np.ndarray) -> Documents:
        starts = np.flatnonzero(np.concatenate([np.ones(min(ids.size, 1), bool), ids[1:] != ids[:-1]]))
        first = np.unique(ids[starts], return_index=True)[1]
        if first.size < starts.size:
            back = starts[np.setdiff1d(np.arange(starts.size), first)[0]]
            raise ParameterError(
                f"Documents.from_ids(ids): id {ids[back]} comes back at position {back} after another "
                "document; documents lie in one piece. For every pair of equal ids write "
                "FromMask(ids[:, None] == ids)"
            )
        return cls(np.diff(np.append(starts, ids.size)).tolist())

    @classmethod
    def from_cu_seqlens(cls, cu_seqlens: Any) -> Documents:
        """The documents between cumulative lengths 0, l_1, l_1 + l_2, ... (FlashAttention's `cu_seqlens`).

        >>> Documents.from_cu_seqlens([0, 3, 5])
        Documents(lengths=(3, 2))
        >>> Documents.from_cu_seqlens([3, 2])
        Traceback (most recent call last):
        ...
        erlangen.errors.ParameterError: Documents.from_cu_seqlens(cu_seqlens) takes cumulative lengths that
        start with 0 and never decrease, got [3, 2]; for the lengths themselves write Documents(lengths)
        """
        what = "Documents.from_cu_seqlens(cu_seqlens)"
        ends = _integers(cu_seqlens, what, "(documents + 1,)", (1,))
        if not ends.size or ends[0] != 0 or (np.diff(ends.astype(np.int64)) < 0).any():
            raise ParameterError(
                f"{what} takes cumulative lengths that start with 0 and never decrease, got "
                f"{ends[:8].tolist()}; for the lengths themselves write Documents(lengths)"
            )
        return cls(np.diff(ends.astype(np.int64)).tolist())

    def __repr__(self) -> str:
        if len(self.lengths) > 64:
            return f"Documents(<{len(self.lengths)} lengths, {sum(self.lengths)} positions>)"
        return f"Documents(lengths={self.lengths})"

    @cached_property
    def _edges_of_documents(self) -> np.ndarray:
        return np.concatenate([[0], np.cumsum(np.array(self.lengths, np.int64))]).astype(np.int64)

    _laws = EQUIVALENCE

    @property
    def own_sizes(self) -> tuple[int, int] | None:
        return sum(self.lengths), sum(self.lengths)

    def parts(self, n: int) -> dict[int, np.ndarray] | None:
        lengths = np.array(self.lengths, np.int64)
        starts = np.cumsum(lengths) - lengths
        distinct, first = np.unique(lengths, return_index=True)
        ordered = [int(distinct[k]) for k in np.argsort(first) if distinct[k] > 0]
        return {length: starts[lengths == length][:, None] + np.arange(length) for length in ordered}

    def _require(self, site: Site) -> None:
        total = int(self._edges_of_documents[-1])
        if site.keys != total:
            raise SizeError(f"{self} has {total} positions, but was bound to {site.keys} keys")

    def _bind(self, site: Site) -> Neighborhoods:
        edges = self._edges_of_documents
        document = np.searchsorted(edges, site.positions, side="right") - 1
        inside = (site.positions >= 0) & (site.positions < site.keys)
        document = np.where(inside, document, 0)
        starts = edges[document]
        stops = np.where(inside, edges[np.minimum(document + 1, edges.size - 1)], starts)
        return Neighborhoods.from_bands(site.keys, starts, stops)

    @cached_property
    def _document_of(self) -> np.ndarray:
        """The document of each position, with a last entry that equals no document."""
        return np.append(np.repeat(np.arange(len(self.lengths)), self.lengths), -1)

    def _holds(self, i: Any, j: Any, keys: int | None) -> Any:
        total = self._document_of.size - 1
        inside = (i >= 0) & (i < total) & (j >= 0) & (j < total)
        document = like(self._document_of, i)
        return inside & (document[i.clip(0, total)] == document[j.clip(0, total)])


@written
@final
@dataclass(frozen=True)
class Blocks(Relation):
    """Block-diagonal: i and j lie in the same block of `size` positions, floor(i / size) = floor(j / size).

    >>> Blocks(2).on(3).dense().astype(int).tolist()
    [[1, 1, 0], [1, 1, 0], [0, 0, 1]]
    """

    size: int

    _counts = ("size",)
    _least = 1
    _laws = EQUIVALENCE
    _pointwise = _arithmetic = True

    def parts(self, n: int) -> dict[int, np.ndarray] | None:
        size = min(self.size, n) or 1
        whole = n // size * size
        found = {size: np.arange(whole, dtype=np.int64).reshape(-1, size)}
        return found | ({n - whole: np.arange(whole, n, dtype=np.int64)[None, :]} if n > whole else {})

    def _bind(self, site: Site) -> Neighborhoods:
        size = sizes.clamp(self.size)
        starts = site.positions // size * size
        return Neighborhoods.from_bands(site.keys, starts, starts + size)

    def _holds(self, i: Any, j: Any, keys: int | None) -> Any:
        size = sizes.clamp(self.size)
        return i // size == j // size


def _integers(values: Any, what: str, shapes: str, dimensions: tuple[int, ...]) -> np.ndarray:
    array = to_numpy(values)
    if array.ndim not in dimensions or 0 in array.shape[:-1]:
        raise ParameterError(f"{what} takes integers of shape {shapes}, got shape {array.shape}")
    if array.size and not np.issubdtype(array.dtype, np.integer):
        raise ParameterError(f"{what} takes integers, got {array.dtype}")
    return array

"""Relations of parts: encoder and decoder, documents, blocks, padding, global positions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, final

import numpy as np

from erlangen.errors import ParameterError, SizeError
from erlangen.relations import intervals, sizes
from erlangen.relations.lookup import like, to_numpy
from erlangen.relations.neighborhoods import Neighborhoods
from erlangen.relations.orders import Full
from erlangen.relations.registry import written
from erlangen.relations.relation import EQUIVALENCE, Relation, Site, need_keys

if TYPE_CHECKING:
    from erlangen.relations.families import Batch


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
        object.__setattr__(self, "encoder", sizes.size(self.encoder, "Bipartite(encoder)"))
        object.__setattr__(self, "decoder", sizes.size(self.decoder, "Bipartite(decoder)"))

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
            from erlangen.relations.families import Batch  # families build on relations

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

    def _transposed(self) -> Relation:
        return self

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

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", sizes.count(self.size, "Blocks(size)", least=1))

    _laws = EQUIVALENCE
    _pointwise = _arithmetic = True

    def _transposed(self) -> Relation:
        return self

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


@written
@final
@dataclass(frozen=True, repr=False)
class Padding(Relation):
    """Every query reads the `length` real keys only; the rest is padding, on the given side.

    side = "right": j < length. side = "left": j >= keys - length. For a batch of sequences of different
    lengths use `Batch([Padding(length) for length in lengths])`.

    >>> Padding(2).on(3).dense().astype(int).tolist()
    [[1, 1, 0], [1, 1, 0], [1, 1, 0]]
    >>> Padding(2, side="left").on(1, 3).dense().astype(int).tolist()
    [[0, 1, 1]]
    """

    length: int
    side: str = "right"

    def __post_init__(self) -> None:
        object.__setattr__(self, "length", sizes.count(self.length, "Padding(length)"))
        if self.side not in ("left", "right"):
            raise ParameterError(f'Padding(side) must be "left" or "right", got {self.side!r}')

    def __repr__(self) -> str:
        return f"Padding({self.length})" if self.side == "right" else f'Padding({self.length}, side="left")'

    _arithmetic = True

    def classes(self, n: int) -> list[np.ndarray] | None:
        cut = self.length if self.side == "right" else n - self.length
        return [np.arange(cut), np.arange(cut, n)]

    def _require(self, site: Site) -> None:
        if self.length > site.keys:
            raise SizeError(f"{self} has {self.length} real keys, but was bound to {site.keys} keys")

    def _bind(self, site: Site) -> Neighborhoods:
        zero = np.zeros_like(site.positions)
        if self.side == "right":
            return Neighborhoods.from_bands(site.keys, zero, zero + self.length)
        return Neighborhoods.from_bands(site.keys, zero + (site.keys - self.length), zero + site.keys)

    def _holds(self, i: Any, j: Any, keys: int | None) -> Any:
        if self.side == "right":
            return (i == i) & (j < sizes.clamp(self.length))
        return (i == i) & (j >= sizes.clamp(need_keys(self, keys) - self.length))


@written
@final
@dataclass(frozen=True, repr=False)
class Global(Relation):
    """Global positions: everybody reads the keys in `keys`, and the queries in `queries` read everything.

    j in keys or i in queries. Positions beyond the size are ignored, so that a growing sequence keeps its
    rows. Contiguous positions are kept as a range.

    >>> Global(keys=[0], queries=[0]).on(3).dense().astype(int).tolist()
    [[1, 1, 1], [1, 0, 0], [1, 0, 0]]
    >>> Global(keys=[2, 1, 0])
    Global(keys=range(0, 3))
    """

    keys: range | tuple[int, ...]
    queries: range | tuple[int, ...]

    def __init__(self, keys: Iterable[int] = (), queries: Iterable[int] = ()) -> None:
        object.__setattr__(self, "keys", _positions(keys, "Global(keys)"))
        object.__setattr__(self, "queries", _positions(queries, "Global(queries)"))

    def __repr__(self) -> str:
        parts = [f"{name}={getattr(self, name)}" for name in ("keys", "queries") if getattr(self, name)]
        return f"Global({', '.join(parts)})"

    _pointwise = _arithmetic = True

    def _transposed(self) -> Relation:
        return Global(keys=self.queries, queries=self.keys)

    def classes(self, n: int) -> list[np.ndarray] | None:
        # Four of them: read by all, reading all, both, neither; if one side is everything, R is full.
        read, reads = np.zeros(n, bool), np.zeros(n, bool)
        for flags, positions in ((read, self.keys), (reads, self.queries)):
            listed = np.array(positions, np.int64)
            flags[listed[listed < n]] = True
        if read.all() or reads.all():
            return [np.arange(n)]
        found = [np.flatnonzero((read == a) & (reads == b)) for a in (0, 1) for b in (0, 1)]
        return sorted(filter(len, found), key=lambda points: points[0])

    def _bind(self, site: Site) -> Neighborhoods:
        n, rows = site.keys, site.positions.size
        bounds = self._boundaries(self.keys, n)
        starts, stops = bounds[::2].clip(max=n), bounds[1::2].clip(max=n)
        starts, stops = starts[stops > starts], stops[stops > starts]
        reads_all = intervals.inside(
            self._boundaries(self.queries, site.positions.max(initial=-1) + 1), site.positions
        )
        some = np.flatnonzero(~reads_all)
        every = np.flatnonzero(reads_all)
        return Neighborhoods.from_runs(
            rows,
            n,
            np.concatenate([np.repeat(some, starts.size), every]),
            np.concatenate([np.tile(starts, some.size), np.zeros_like(every)]),
            np.concatenate([np.tile(stops, some.size), np.full_like(every, n)]),
        )

    @staticmethod
    def _boundaries(positions: range | tuple[int, ...], end: int) -> np.ndarray:
        """The positions before `end`, as intervals; a long range is cut before it is listed."""
        if isinstance(positions, range) and positions.step == 1:
            return np.array([positions.start, positions.stop], np.int64)
        if isinstance(positions, range):
            positions = range(positions.start, min(positions.stop, int(end)), positions.step)
        array = np.array(positions, np.int64)
        return intervals.merge(array, array + 1)

    def _holds(self, i: Any, j: Any, keys: int | None) -> Any:
        return self._among(j, self.keys) & (i == i) | self._among(i, self.queries) & (j == j)

    @staticmethod
    def _among(index: Any, positions: range | tuple[int, ...]) -> Any:
        if isinstance(positions, range):
            inside = (index >= positions.start) & (index < positions.stop)
            return inside & ((index - positions.start) % positions.step == 0)
        found = index != index
        for position in positions:
            found = found | (index == position)
        return found


def keys_read(real: np.ndarray) -> Relation:
    """Every query reads the keys that are real (True): `Padding` where the others are on one side.

    >>> keys_read(np.array([True, True, False])), keys_read(np.array([True, False, True]))
    (Padding(2), Global(keys=(0, 2)))
    """
    count = int(real.sum())
    if count == real.size:
        return Full()
    if real[:count].all():
        return Padding(count)
    if real[real.size - count :].all():
        return Padding(count, side="left")
    return Global(keys=np.flatnonzero(real).tolist())


def _integers(values: Any, what: str, shapes: str, dimensions: tuple[int, ...]) -> np.ndarray:
    array = to_numpy(values)
    if array.ndim not in dimensions or 0 in array.shape[:-1]:
        raise ParameterError(f"{what} takes integers of shape {shapes}, got shape {array.shape}")
    if array.size and not np.issubdtype(array.dtype, np.integer):
        raise ParameterError(f"{what} takes integers, got {array.dtype}")
    return array


def _positions(values: Iterable[int], what: str) -> range | tuple[int, ...]:
    """Sorted distinct positions, as a range where they are one (so that equal sets compare equal)."""
    if isinstance(values, range) and len(values) > 2:
        ordered = values if values.step > 0 else values[::-1]
        for end in (ordered[0], ordered[-1]):
            sizes.size(end, what)
        return range(ordered.start, ordered[-1] + 1, ordered.step)
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise ParameterError(f"{what} takes a list of positions, got {values!r}")
    listed = to_numpy(values).tolist() if hasattr(values, "__array__") else values
    ordered = sorted({sizes.size(value, what) for value in listed})
    if not ordered:
        return ()
    steps = {b - a for a, b in pairwise(ordered)}
    if not steps or steps == {1} or (len(steps) == 1 and len(ordered) > 2):
        return range(ordered[0], ordered[-1] + 1, steps.pop() if steps else 1)
    return tuple(ordered)

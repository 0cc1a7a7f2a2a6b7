"""A bound relation as the native kernels read it: packed once, checked there, kept with the binding.

Torch operators take tensors and numbers. A relation therefore travels as one tensor of integers, its *index*:
a header, which relation each batch item and head has, and the runs of each distinct relation. It means the
same in every process, so that an exported program or a compile cache carries its relation along."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import RLock
from typing import Any
from weakref import ref

import numpy as np
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from erlangen.caches import Recent
from erlangen.errors import BackendError, ErlangenError
from erlangen.relations import Batch, Bindable, FromMask, Neighborhoods, PerHead, Tiles

TILE = 64
"""Queries and keys of a native tile."""

RUNS, TRIPLES = 0x45524C31, 0x45524C33
"""The first number of an index: what it holds, and the version of the format."""

try:
    from erlangen import _native as native  # pyright: ignore[reportAttributeAccessIssue, reportMissingImports]

    missing: str | None = None
except ImportError as error:  # built without a compiler: attention then runs through PyTorch
    native: Any = None
    missing = str(error)

_lock = RLock()


class PackedNeighborhoods:
    """The distinct neighborhoods of a call, and which of them each batch item and head has.

    Tiles, runs and transposed runs in the extension's memory, and the index, are made when first asked for.
    """

    def __init__(self, distinct: Sequence[Neighborhoods], which: np.ndarray) -> None:
        self.distinct = tuple(distinct)
        self.which = which
        self.pairs = sum(one.num_edges for one in distinct) / len(distinct)
        """Related pairs of one head of one batch item, on average over the distinct relations."""
        self._made: dict[str, Any] = {}
        self._cut: dict[int, Tiles] = {}

    def _once(self, name: str, make: Callable[[], Any]) -> Any:
        found = self._made.get(name)
        if found is None:
            with _lock:
                found = self._made.get(name)
                if found is None:
                    with untraced():
                        found = self._made[name] = make()
        return found

    def cut(self, member: int) -> Tiles:
        """The tiles of a distinct relation, for the planner and for the kernels."""
        if member not in self._cut:
            self._cut[member] = self.distinct[member].tiles(TILE)
        return self._cut[member]

    @property
    def tiles(self) -> Any:
        """The tiles, for the kernels."""

        def make() -> Any:
            made = _tiles([self.cut(member) for member in range(len(self.distinct))], self.which)
            self._cut.clear()  # the kernels have them now
            return made

        return self._once("tiles", make)

    @property
    def runs(self) -> Any:
        """The runs, for the kernels."""
        return self._once("runs", lambda: _runs(self.distinct, self.which))

    @property
    def transposed(self) -> Any:
        """The runs of the transposed relation: for each key, the queries that read it."""
        return self._once("transposed", lambda: _runs([one.T for one in self.distinct], self.which))

    @property
    def order(self) -> Tensor:
        """The number of each edge in the order of the transposed relation, of which there is only one."""
        return self._once(
            "order", lambda: torch.from_numpy(np.argsort(self.distinct[0].edges()[:, 1], kind="stable"))
        )

    @property
    def index(self) -> Tensor:
        """The relation as a tensor of integers."""
        return self._once("index", lambda: _remember(_encode(self.distinct, self.which), ref(self)))

    def copied_index(self) -> Tensor:
        """The index in memory of its own, for a compiler that may reuse the memory of what it has read."""
        return _remember(self.index.clone(), lambda: self)


@contextmanager
def untraced() -> Iterator[None]:
    """What is made here is a constant of a graph that `torch.jit.trace` records, not a part of it."""
    if torch.compiler.is_compiling() or not torch._C._is_tracing():
        yield
        return
    state, resume = torch._C._get_tracing_state(), torch._C._set_tracing_state  # pyright: ignore[reportAttributeAccessIssue]
    resume(None)
    try:
        yield
    finally:
        resume(state)


def _require_native() -> Any:
    if native is None:
        raise BackendError(f"the native extension is missing ({missing}); use the sdpa backend")
    return native


def _tiles(tiled: Sequence[Tiles], which: np.ndarray) -> Any:
    tiles_before = np.cumsum([0] + [tiles.columns.size for tiles in tiled])
    patterns_before = np.cumsum([0] + [len(tiles.patterns) for tiles in tiled])
    pattern = [
        np.where(tiles.pattern < 0, -1, tiles.pattern + before)
        for tiles, before in zip(tiled, patterns_before, strict=False)
    ]
    return _require_native().Tiles(
        tiled[0].queries,
        tiled[0].keys,
        len(tiled),
        _join([t.indptr + before for t, before in zip(tiled, tiles_before, strict=False)]),
        _join([tiles.columns for tiles in tiled]),
        _join(pattern),
        _join([tiles.patterns.reshape(-1) for tiles in tiled], np.uint64),
        np.ascontiguousarray(which, np.int64),
    )


def _runs(distinct: Sequence[Neighborhoods], which: np.ndarray) -> Any:
    sizes = distinct[0].queries, distinct[0].keys, len(distinct)
    return _require_native().Runs(*sizes, *joined_runs(distinct), np.ascontiguousarray(which, np.int64))


def joined_runs(distinct: Sequence[Neighborhoods]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`indptr`, `starts` and `stops` of several neighborhoods, one behind the other."""
    before = np.cumsum([0] + [one.starts.size for one in distinct])
    indptr = _join([one.indptr + b for one, b in zip(distinct, before, strict=False)])
    return indptr, _join([one.starts for one in distinct]), _join([one.stops for one in distinct])


def _join(arrays: Sequence[np.ndarray], dtype: Any = np.int64) -> np.ndarray:
    return np.ascontiguousarray(np.concatenate(arrays), dtype)


# --------------------------------------------------------------------------------- indices as tensors


def _encode(distinct: Sequence[Neighborhoods], which: np.ndarray) -> Tensor:
    header = [RUNS, distinct[0].queries, distinct[0].keys, len(distinct), *which.shape]
    parts = [np.array(header, np.int64), np.ravel(which)]
    for one in distinct:
        parts += [one.indptr, one.starts, one.stops]
    return torch.from_numpy(_join(parts))


def _decode(index: Tensor) -> PackedNeighborhoods:
    """The relation of an index; `BackendError` unless it is one, for it may come from a file."""
    numbers = index.detach().cpu().numpy()
    try:
        kind, queries, keys, count, items, heads = numbers[:6].tolist()
        if kind != RUNS or min(queries, keys, count - 1, items - 1, heads - 1) < 0:
            raise ValueError("it does not begin like one")
        at = 6 + items * heads
        which = numbers[6:at].reshape(items, heads)
        if which.min() < 0 or which.max() >= count:
            raise ValueError("it names a relation that is not there")
        distinct = []
        for _ in range(count):
            indptr = numbers[at : at + queries + 1]
            size = int(indptr[queries])
            if indptr[0] != 0 or (np.diff(indptr) < 0).any():
                raise ValueError("its rows do not follow one another")
            starts, stops = numbers[at + queries + 1 :][: 2 * size].reshape(2, size)
            if (starts >= stops).any():
                raise ValueError("it holds an empty run")
            rows = np.repeat(np.arange(queries), np.diff(indptr))
            distinct.append(Neighborhoods.from_runs(queries, keys, rows, starts, stops))
            at += queries + 1 + 2 * size
        if at != len(numbers):
            raise ValueError("it is too long")
    except (ValueError, IndexError, ErlangenError) as error:
        raise BackendError(f"a tensor of {index.numel()} integers is no packed relation: {error}") from error
    return PackedNeighborhoods(distinct, which.copy())


_known: Recent[int, tuple[StorageWeakRef, int, np.ndarray, Callable[[], Any]]] = Recent(1024)
"""Address of a storage -> (the storage, offset of the index in it, its numbers, what was packed from it). The
address is not used again while there is a weak reference, so that another tensor is never taken for this
one. The numbers are compared at every call: an index may be changed in ways that PyTorch does not count
(`.data`, NumPy, inference mode, memory that compiled code uses again)."""


def _numbers(index: Tensor) -> np.ndarray:
    return index.detach().cpu().contiguous().numpy()


def _remember(index: Tensor, get: Callable[[], Any]) -> Tensor:
    if type(index) is not Tensor:  # of a trace: it has no numbers
        return index
    storage = index.untyped_storage()
    numbers = _numbers(index).copy()
    _known.drop(lambda known: known[0].expired())
    _known.put(storage._cdata, (StorageWeakRef(storage), int(index.storage_offset()), numbers, get))
    return index


def packed(index: Tensor, decode: Callable[[Tensor], Any] = _decode) -> Any:
    """What was packed as this index: the same object while it is alive, otherwise made from the numbers.

    >>> import numpy as np
    >>> from erlangen.relations import Causal
    >>> kept = PackedNeighborhoods([Causal().on(4)], np.zeros((1, 1), np.int64))
    >>> packed(kept.index) is kept, packed(kept.index.clone()).distinct == kept.distinct
    (True, True)
    """
    known = _known.get(index.untyped_storage()._cdata)
    if known is not None and not known[0].expired() and known[1] == index.storage_offset():
        found = known[3]()
        if found is not None and np.array_equal(known[2], _numbers(index)):
            return found
    made = decode(index)
    _remember(index, lambda: made)
    return made


@dataclass(frozen=True, eq=False)
class PackedRelation:
    """A relation bound to its sizes, as one tensor of integers; made by `pack`, taken by `attend`."""

    index: Tensor
    queries: int
    keys: int
    backend: str

    def unpacked(self) -> Bindable:
        """The relation again, by its edges.

        >>> from erlangen.attention import pack
        >>> from erlangen.relations import Causal
        >>> pack(Causal(), 2).unpacked()
        FromMask([[1, 0], [1, 1]])
        """
        found = packed(self.index)
        members = [FromMask._of(one) for one in found.distinct]
        heads = [[members[n] for n in row] for row in found.which]
        items: Any = [PerHead(row) if len(row) > 1 else row[0] for row in heads]
        return Batch(items) if len(items) > 1 else items[0]

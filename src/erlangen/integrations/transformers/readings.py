"""What the mask functions of transformers say, as relations instead of queries x keys booleans.

transformers composes a mask from functions f(batch, head, query, key) -> bool: causal, a sliding window,
chunks, packed sequences, and `and` / `or` of these. Here the expression of each (see `terms`) is read into a
relation; any other is evaluated, exactly, into a dense one.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from operator import index
from typing import Any

import numpy as np
import torch
from torch import Tensor

from erlangen.caches import cached
from erlangen.integrations.transformers.terms import MaskFunction, Shape, Written, written
from erlangen.relations import (
    Batch,
    Bindable,
    Blocks,
    Causal,
    Documents,
    FromMask,
    Full,
    Global,
    PerHead,
    Relation,
    Window,
)
from erlangen.relations.key_sets import keys_read
from erlangen.relations.lookup import to_numpy

FULL = Full()

DENSE: Shape = ("dense", ("#", 0))
"""The expression of a mask that was evaluated for every pair: the first tensor."""


@dataclass(frozen=True)
class Extent:
    """The queries and keys that a mask is for: query i has index query_offset + i, key j key_offset + j."""

    batch: int
    queries: int
    keys: int
    query_offset: Any = 0
    """An integer; in a graph that is being compiled it may be a tensor."""
    key_offset: int = 0
    device: Any = "cpu"
    vmap: bool = False
    """Whether the function takes single indices only, as transformers says of functions that users give."""

    @property
    def aligned(self) -> bool:
        """Whether the queries are the last positions, as relations take it."""
        return self.query_offset + self.queries == self.key_offset + self.keys

    def evaluated(self, function: MaskFunction) -> Written:
        """What a mask function says here, asked for every pair."""
        from transformers.masking_utils import sdpa_mask

        dense: Any = sdpa_mask(**self.arguments(function), allow_is_causal_skip=False)
        return Written(DENSE, (dense,))

    def arguments(self, function: MaskFunction) -> dict[str, Any]:
        """What the functions of transformers take that make a mask here."""
        return {
            "batch_size": self.batch,
            "q_length": self.queries,
            "kv_length": self.keys,
            "q_offset": self.query_offset,
            "kv_offset": self.key_offset,
            "mask_function": function,
            "use_vmap": self.vmap,
            "device": self.device,
        }


@dataclass(frozen=True)
class ReadMask:
    """A mask function as relations: what the layer is to read, and what this batch has at all.

    `relation & given` is the mask. What is given, packed documents and padding, stays when a layer gets
    another relation.
    """

    relation: Bindable
    given: Bindable = FULL

    @property
    def whole(self) -> Bindable:
        """The mask as one relation."""
        return meet(self.relation, self.given)

    @property
    def position_free(self) -> bool:
        """Whether it does not matter where the queries stand."""
        return self.whole == FULL


Reader = Callable[[Extent, Sequence[Tensor]], ReadMask]
"""From an extent and the tensors of an expression to relations."""


def said_by(function: MaskFunction, extent: Extent, evaluate: bool = False) -> Written:
    """The expression of a mask function where it can be read; otherwise, or with `evaluate`, all its values.

    >>> from transformers.masking_utils import causal_mask_function
    >>> said_by(causal_mask_function, Extent(1, 2, 2)).shape
    ('le', 'K', 'Q')
    >>> said_by(lambda b, h, i, j: (i + j) % 2 == 0, Extent(1, 2, 2)).shape
    ('dense', ('#', 0))
    """
    said = None if evaluate else written(function)
    return extent.evaluated(function) if said is None or not readable(said.shape) else said


@torch.compiler.assume_constant_result
def readable(shape: Shape) -> bool:
    """Whether an expression can be read as a relation."""
    return reader_of(shape) is not None


def read(said: Written, extent: Extent, attention_mask: Tensor | None = None) -> tuple[ReadMask, int]:
    """An expression and a two-dimensional attention mask as relations, on so many of the first keys.

    With a static cache the queries are not the last keys; where the mask ends at the query's own position,
    the keys after it are left away.

    >>> from transformers import masking_utils as library
    >>> extent = Extent(1, 9, 9)
    >>> read(said_by(library.sliding_window_causal_mask_function(4), extent), extent)[0].relation
    Window(lookback=3)
    >>> chunks = library.chunked_causal_mask_function(4, torch.tensor([0]))
    >>> read(said_by(chunks, extent), extent)[0].relation
    Blocks(size=4) & Causal()
    >>> read(said_by(library.causal_mask_function, extent), Extent(1, 2, 9, query_offset=3))
    (ReadMask(relation=Causal(), given=Full()), 5)
    """
    reader = reader_of(said.shape)
    assert reader is not None, said
    reached = extent.query_offset + extent.queries - extent.key_offset
    if reached < extent.keys and bounded(said.shape):
        extent = replace(extent, keys=reached)
        made = reader(extent, said.tensors)
    else:
        made = reader(extent, said.tensors)
        if not extent.aligned and not made.position_free:
            made = ReadMask(from_dense(evaluate(said, extent)))
    return ReadMask(made.relation, meet(made.given, padding(attention_mask, extent))), extent.keys


_OPERATORS = {
    "sub": operator.sub,
    "floordiv": operator.floordiv,
    "abs": abs,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "eq": operator.eq,
    "and": operator.and_,
    "or": operator.or_,
    "true": lambda: torch.tensor(True),
    "false": lambda: torch.tensor(False),
    "at": lambda tensor, *indices: tensor[indices],
}
"""What the words of a readable expression compute."""


def evaluate(said: Written, extent: Extent) -> Tensor:
    """The values of a readable expression for every pair: (batch, 1, queries, keys).

    >>> evaluate(Written(("le", "K", "Q")), Extent(1, 2, 3, query_offset=1))
    tensor([[[[ True,  True, False],
              [ True,  True,  True]]]])
    """
    if said.shape == DENSE:
        return said.tensors[0]
    symbols = {
        "B": torch.arange(extent.batch)[:, None, None],
        "Q": torch.arange(extent.query_offset, extent.query_offset + extent.queries)[:, None],
        "K": torch.arange(extent.key_offset, extent.key_offset + extent.keys),
    }

    def value(shape: Shape) -> Any:
        if isinstance(shape, tuple):
            word, *parts = shape
            return said.tensors[parts[0]].cpu() if word == "#" else _OPERATORS[word](*map(value, parts))
        return symbols[shape] if isinstance(shape, str) else shape

    return value(said.shape).expand(extent.batch, extent.queries, extent.keys)[:, None]


@cached(1024)
def reader_of(shape: Shape) -> Reader | None:
    """How the expressions are read that transformers writes; None for any other.

    >>> reader_of(("gt", "K", ("sub", "Q", 4)))(Extent(1, 2, 2), ()).relation
    Window(lookback=3, lookahead=4)
    >>> reader_of(("lt", "K", "Q")) is None
    True
    """
    match shape:
        case ("le", "K", "Q"):
            return lambda extent, _: ReadMask(Causal())
        case ("ge", "Q", 0) | ("true",):
            return lambda extent, _: ReadMask(Full())
        case ("gt", "K", ("sub", "Q", int(size))) if size >= 1:
            # Unbounded ahead: no key lies further ahead than there are keys.
            return lambda extent, _: ReadMask(Window(size - 1, lookahead=extent.keys + extent.queries))
        case ("le", ("abs", ("sub", "Q", "K")), int(size)) if size >= 0:
            return lambda extent, _: ReadMask(Window(size, lookahead=size))
        case (
            "eq",
            ("floordiv", ("sub", "K", ("at", ("#", n), "B")), int(size)),
            ("floordiv", ("sub", "Q", ("at", ("#", m), "B")), int(other)),
        ) if n == m and size == other >= 1:
            return lambda extent, tensors: _chunked(extent, size, tensors[n])
        case (
            "and",
            ("eq", ("at", ("#", n), "B", "Q"), ("at", ("#", m), "B", "K")),
            ("ge", ("at", ("#", k), "B", "Q"), 0),
        ) if n == m == k:
            return lambda extent, tensors: ReadMask(_same_group(extent, tensors[n], some_in_none=True))
        case ("eq", ("at", ("#", n), "B", "Q"), ("at", ("#", m), "B", "K")) if n == m:
            return lambda extent, tensors: ReadMask(Full(), _same_group(extent, tensors[n]))
        case ("at", ("#", n), "B", "K"):
            return lambda extent, tensors: ReadMask(Full(), padding(tensors[n], extent))
        case ("dense", ("#", n)):
            return lambda extent, tensors: ReadMask(from_dense(tensors[n]))
        case ("or", ("false",), one):
            return reader_of(one)
        case ("and" | "or" as word, one, other):
            return _joined(word, reader_of(one), reader_of(other))
    return None


def bounded(shape: Shape) -> bool:
    """Whether the mask surely ends at the query's own position: keys after it are never read.

    >>> bounded(("and", ("gt", "K", ("sub", "Q", 4)), ("le", "K", "Q"))), bounded(("ge", "Q", 0))
    (True, False)
    """
    match shape:
        case ("le", "K", "Q"):
            return True
        case ("and", one, other):
            return bounded(one) or bounded(other)
    return False


def padding(mask: Tensor | None, extent: Extent) -> Bindable:
    """A two-dimensional attention mask (batch, positions), nonzero = real, as a relation per item.

    >>> padding(torch.tensor([[0, 1, 1], [1, 1, 1]]), Extent(2, 3, 3))
    Batch([Padding(2, side="left"), Full()])
    """
    if mask is None:
        return Full()
    real = to_numpy(mask.bool())[:, extent.key_offset : extent.key_offset + extent.keys]
    if real.shape[1] < extent.keys:
        # Positions of a static cache that were never filled.
        real = np.pad(real, ((0, 0), (0, extent.keys - real.shape[1])))
    return per_item(keys_read(row) for row in real)


def meet(first: Bindable, second: Bindable) -> Bindable:
    """`first & second`, whichever of them is a family.

    >>> from erlangen.relations import Padding
    >>> meet(Causal(), Batch([Padding(1), Full()]))
    Batch([Padding(1) & Causal(), Causal()])
    """
    batched: Any = second if "item" in second.axes else first
    return batched & (first if batched is second else second)


def per_item(relations: Iterable[Relation]) -> Bindable:
    """One relation per batch item, or the single one if all are the same."""
    members = list(relations)
    return members[0] if all(member == members[0] for member in members) else Batch(members)


def from_dense(mask: Tensor) -> Bindable:
    """A boolean mask (batch or 1, heads or 1, queries, keys) as a relation, or a family where it differs."""
    array = to_numpy(mask)
    items: list[Any] = [
        FromMask(item[0]) if len(item) == 1 else PerHead([FromMask(head) for head in item]) for item in array
    ]
    return items[0] if all(item == items[0] for item in items) else Batch(items)


# ------------------------------------------------------------------ expressions with tensors, and joins


def _joined(word: str, one: Reader | None, other: Reader | None) -> Reader | None:
    if one is None or other is None:
        return None

    def joined(extent: Extent, tensors: Sequence[Tensor]) -> ReadMask:
        first, second = one(extent, tensors), other(extent, tensors)
        if word == "and":
            return ReadMask(meet(first.relation, second.relation), meet(first.given, second.given))
        a: Any = first.whole
        b: Any = second.whole
        return ReadMask(b | a if "item" in b.axes else a | b)

    return joined


def _chunked(extent: Extent, chunk_size: int, left_padding: Tensor) -> ReadMask:
    # Chunks are counted from each item's first real position.
    def chunks(first: int) -> Relation:
        first = (first - extent.key_offset) % chunk_size
        if not first:
            return Blocks(chunk_size)
        cuts = [0, *range(first, extent.keys, chunk_size), extent.keys]
        return Documents(np.diff(cuts).tolist())

    return ReadMask(per_item(chunks(index(first)) for first in left_padding[: extent.batch].tolist()))


def _same_group(extent: Extent, groups: Tensor, some_in_none: bool = False) -> Bindable:
    """Queries read the keys of their own group; with `some_in_none` negative numbers are no group."""
    array = to_numpy(groups)[: extent.batch]
    keys = array[:, extent.key_offset : extent.key_offset + extent.keys]
    lengths = [_runs(row, some_in_none) for row in keys]
    if any(runs is None for runs in lengths):  # a group comes back
        queries = array[:, extent.query_offset : extent.query_offset + extent.queries]
        same = queries[:, :, None] == keys[:, None]
        if some_in_none:
            same &= queries[:, :, None] >= 0
        return from_dense(torch.from_numpy(same[:, None]))
    if not some_in_none:
        return per_item(Documents(runs) for runs in lengths if runs is not None)
    return per_item(
        Documents(runs) & Global(keys=np.flatnonzero(row >= 0))
        for runs, row in zip(lengths, keys, strict=True)
        if runs is not None
    )


def _runs(row: np.ndarray, some_in_none: bool) -> list[int] | None:
    """The lengths of the runs of equal group numbers; None where a group is not one run."""
    starts = np.flatnonzero(np.append(True, row[1:] != row[:-1])[: row.size])
    named = row[starts]
    if some_in_none:
        named = named[named >= 0]
    return None if np.unique(named).size < named.size else np.diff(starts, append=row.size).tolist()

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

from erlangen.attention.cache import cached
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
class Place:
    """Where a mask function is asked: query i stands at query_offset + i, key j at key_offset + j."""

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

        dense: Any = sdpa_mask(
            batch_size=self.batch,
            q_length=self.queries,
            kv_length=self.keys,
            q_offset=self.query_offset,
            kv_offset=self.key_offset,
            mask_function=function,
            allow_is_causal_skip=False,
            use_vmap=self.vmap,
            device=self.device,
        )
        return Written(DENSE, (dense,))


@dataclass(frozen=True)
class Reading:
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
        return isinstance(self.whole, Full)


Reader = Callable[[Place, Sequence[Tensor]], Reading]
"""From a place and the tensors of an expression to relations."""


def said_by(function: MaskFunction, place: Place, evaluate: bool = False) -> Written:
    """The expression of a mask function where it can be read; otherwise, or with `evaluate`, all its values.

    >>> from transformers.masking_utils import causal_mask_function
    >>> said_by(causal_mask_function, Place(1, 2, 2)).shape
    ('le', 'K', 'Q')
    >>> said_by(lambda b, h, i, j: (i + j) % 2 == 0, Place(1, 2, 2)).shape
    ('dense', ('#', 0))
    """
    said = None if evaluate else written(function)
    return place.evaluated(function) if said is None or not readable(said.shape) else said


@torch.compiler.assume_constant_result
def readable(shape: Shape) -> bool:
    """Whether an expression can be read as a relation."""
    return reader_of(shape) is not None


def read(said: Written, place: Place, attention_mask: Tensor | None = None) -> tuple[Reading, int]:
    """An expression and a two-dimensional attention mask as relations, on so many of the first keys.

    With a static cache the queries are not the last keys; where the mask ends at the query's own position,
    the keys after it are left away.

    >>> from transformers import masking_utils as library
    >>> place = Place(1, 9, 9)
    >>> read(said_by(library.sliding_window_causal_mask_function(4), place), place)[0].relation
    Window(lookback=3)
    >>> chunks = library.chunked_causal_mask_function(4, torch.tensor([0]))
    >>> read(said_by(chunks, place), place)[0].relation
    Blocks(size=4) & Causal()
    >>> read(said_by(library.causal_mask_function, place), Place(1, 2, 9, query_offset=3))
    (Reading(relation=Causal(), given=Full()), 5)
    """
    reader = reader_of(said.shape)
    assert reader is not None, said
    reached = place.query_offset + place.queries - place.key_offset
    if reached < place.keys and bounded(said.shape):
        place = replace(place, keys=reached)
        made = reader(place, said.tensors)
    else:
        made = reader(place, said.tensors)
        if not place.aligned and not made.position_free:
            made = Reading(from_dense(evaluate(said, place)))
    return Reading(made.relation, meet(made.given, padding(attention_mask, place))), place.keys


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
    "at": lambda tensor, *places: tensor[places],
}
"""What the words of a readable expression compute."""


def evaluate(said: Written, place: Place) -> Tensor:
    """The values of a readable expression for every pair: (batch, 1, queries, keys).

    >>> evaluate(Written(("le", "K", "Q")), Place(1, 2, 3, query_offset=1))
    tensor([[[[ True,  True, False],
              [ True,  True,  True]]]])
    """
    if said.shape == DENSE:
        return said.tensors[0]
    symbols = {
        "B": torch.arange(place.batch)[:, None, None],
        "Q": torch.arange(place.query_offset, place.query_offset + place.queries)[:, None],
        "K": torch.arange(place.key_offset, place.key_offset + place.keys),
    }

    def value(shape: Shape) -> Any:
        if isinstance(shape, tuple):
            word, *parts = shape
            return said.tensors[parts[0]].cpu() if word == "#" else _OPERATORS[word](*map(value, parts))
        return symbols[shape] if isinstance(shape, str) else shape

    return value(said.shape).expand(place.batch, place.queries, place.keys)[:, None]


@cached(1024)
def reader_of(shape: Shape) -> Reader | None:
    """How the expressions are read that transformers writes; None for any other.

    >>> reader_of(("gt", "K", ("sub", "Q", 4)))(Place(1, 2, 2), ()).relation
    Window(lookback=3, lookahead=4)
    >>> reader_of(("lt", "K", "Q")) is None
    True
    """
    match shape:
        case ("le", "K", "Q"):
            return lambda place, _: Reading(Causal())
        case ("ge", "Q", 0) | ("true",):
            return lambda place, _: Reading(Full())
        case ("gt", "K", ("sub", "Q", int(size))) if size >= 1:
            # Unbounded ahead: no key lies further ahead than there are keys.
            return lambda place, _: Reading(Window(size - 1, lookahead=place.keys + place.queries))
        case ("le", ("abs", ("sub", "Q", "K")), int(size)) if size >= 0:
            return lambda place, _: Reading(Window(size, lookahead=size))
        case (
            "eq",
            ("floordiv", ("sub", "K", ("at", ("#", n), "B")), int(size)),
            ("floordiv", ("sub", "Q", ("at", ("#", m), "B")), int(other)),
        ) if n == m and size == other >= 1:
            return lambda place, tensors: _chunked(place, size, tensors[n])
        case (
            "and",
            ("eq", ("at", ("#", n), "B", "Q"), ("at", ("#", m), "B", "K")),
            ("ge", ("at", ("#", k), "B", "Q"), 0),
        ) if n == m == k:
            return lambda place, tensors: Reading(_same_group(place, tensors[n], some_in_none=True))
        case ("eq", ("at", ("#", n), "B", "Q"), ("at", ("#", m), "B", "K")) if n == m:
            return lambda place, tensors: Reading(Full(), _same_group(place, tensors[n]))
        case ("at", ("#", n), "B", "K"):
            return lambda place, tensors: Reading(Full(), padding(tensors[n], place))
        case ("dense", ("#", n)):
            return lambda place, tensors: Reading(from_dense(tensors[n]))
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


def padding(mask: Tensor | None, place: Place) -> Bindable:
    """A two-dimensional attention mask (batch, positions), nonzero = real, as a relation per item.

    >>> padding(torch.tensor([[0, 1, 1], [1, 1, 1]]), Place(2, 3, 3))
    Batch([Padding(2, side="left"), Full()])
    """
    if mask is None:
        return Full()
    real = to_numpy(mask.bool())[:, place.key_offset : place.key_offset + place.keys]
    if real.shape[1] < place.keys:
        # Positions of a static cache that were never filled.
        real = np.pad(real, ((0, 0), (0, place.keys - real.shape[1])))
    return per_item(keys_read(row) for row in real)


def meet(first: Bindable, second: Bindable) -> Bindable:
    """`first & second`, whichever of them is a family.

    >>> from erlangen.relations import Padding
    >>> meet(Causal(), Batch([Padding(1), Full()]))
    Batch([Padding(1) & Causal(), Causal()])
    """
    one: Any = second if isinstance(second, Batch) else first
    return one & (first if one is second else second)


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

    def joined(place: Place, tensors: Sequence[Tensor]) -> Reading:
        first, second = one(place, tensors), other(place, tensors)
        if word == "and":
            return Reading(meet(first.relation, second.relation), meet(first.given, second.given))
        a: Any = first.whole
        b: Any = second.whole
        return Reading(b | a if isinstance(b, Batch) else a | b)

    return joined


def _chunked(place: Place, chunk_size: int, left_padding: Tensor) -> Reading:
    # Chunks are counted from each item's first real position.
    def chunks(first: int) -> Relation:
        first = (first - place.key_offset) % chunk_size
        if not first:
            return Blocks(chunk_size)
        cuts = [0, *range(first, place.keys, chunk_size), place.keys]
        return Documents(np.diff(cuts).tolist())

    return Reading(per_item(chunks(index(first)) for first in left_padding[: place.batch].tolist()))


def _same_group(place: Place, groups: Tensor, some_in_none: bool = False) -> Bindable:
    """Queries read the keys of their own group; with `some_in_none` negative numbers are no group."""
    array = to_numpy(groups)[: place.batch]
    keys = array[:, place.key_offset : place.key_offset + place.keys]
    lengths = [_runs(row, some_in_none) for row in keys]
    if any(runs is None for runs in lengths):  # a group comes back
        queries = array[:, place.query_offset : place.query_offset + place.queries]
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

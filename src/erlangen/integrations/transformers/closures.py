"""What the mask functions of transformers say, as relations instead of queries x keys booleans.

transformers composes a mask from closures f(batch, head, query, key) -> bool: causal, a sliding window,
chunks, packed sequences, and `and` / `or` of these. Here each closure it makes itself is recognised by its
code and read back into a relation; any other is evaluated, exactly, into a dense one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, reduce
from inspect import getclosurevars
from types import CodeType
from typing import Any

import numpy as np
import torch
from torch import Tensor

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
from erlangen.relations.lookup import to_numpy
from erlangen.relations.partitions import keys_read

MaskFunction = Callable[[Any, Any, Any, Any], Any]
FULL = Full()


@dataclass(frozen=True)
class Place:
    """Where a mask function is asked: query i stands at query_offset + i, key j at key_offset + j."""

    batch: int
    queries: int
    keys: int
    query_offset: int = 0
    key_offset: int = 0
    device: Any = "cpu"
    vmap: bool = False
    """Whether the function takes single indices only, as transformers says of functions that users give."""

    @property
    def aligned(self) -> bool:
        """Whether the queries are the last positions, as relations take it."""
        return self.query_offset + self.queries == self.key_offset + self.keys

    def evaluated(self, function: MaskFunction) -> Bindable:
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
        return from_dense(dense)


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


def read(function: MaskFunction, place: Place) -> Reading:
    """A mask function of transformers as relations.

    >>> from transformers import masking_utils
    >>> read(masking_utils.sliding_window_causal_mask_function(4), Place(1, 9, 9)).relation
    Window(lookback=3)
    >>> read(masking_utils.chunked_causal_mask_function(4, torch.tensor([0])), Place(1, 9, 9)).relation
    Blocks(size=4) & Causal()
    >>> read(lambda b, h, i, j: (i + j) % 2 == 0, Place(1, 2, 2)).relation
    FromMask([[1, 0], [0, 1]])
    """
    known = _trusted().get(getattr(function, "__code__", None))
    if known is not None:
        made = known(place=place, **getclosurevars(function).nonlocals)
        if made is not None:
            return made
    return Reading(place.evaluated(function))


def bounded(function: MaskFunction) -> bool:
    """Whether the mask surely ends at the query's own position: keys after it are never read.

    >>> from transformers.masking_utils import bidirectional_mask_function, causal_mask_function
    >>> bounded(causal_mask_function), bounded(bidirectional_mask_function)
    (True, False)
    """
    from transformers import masking_utils as library

    if function is library.causal_mask_function:
        return True
    if getattr(function, "__code__", None) is library.and_masks().__code__:
        return any(map(bounded, getclosurevars(function).nonlocals["mask_functions"]))
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


# ------------------------------------------------------------------ the closures transformers makes


def _causal(place: Place) -> Reading:
    return Reading(Causal())


def _bidirectional(place: Place) -> Reading:
    return Reading(Full())


def _sliding(place: Place, sliding_window: int) -> Reading | None:
    if sliding_window < 1:
        return None
    # key > query - sliding_window, unbounded ahead: no key lies further ahead than there are keys.
    return Reading(Window(lookback=sliding_window - 1, lookahead=place.keys + place.queries))


def _sliding_both_ways(place: Place, sliding_window: int) -> Reading:
    return Reading(Window(lookback=sliding_window, lookahead=sliding_window))


def _chunked(place: Place, chunk_size: int, left_padding: Tensor) -> Reading:
    # Chunks are counted from each item's first real position.
    def chunks(first: int) -> Relation:
        first = (first - place.key_offset) % chunk_size
        if not first:
            return Blocks(chunk_size)
        cuts = [0, *range(first, place.keys, chunk_size), place.keys]
        return Documents(np.diff(cuts).tolist())

    return Reading(per_item(chunks(int(first)) for first in left_padding))


def _packed(place: Place, packed_sequence_mask: Tensor) -> Reading | None:
    lengths = _runs(packed_sequence_mask, place)
    return None if lengths is None else Reading(Full(), per_item(map(Documents, lengths)))


def _blockwise(place: Place, block_sequence_ids: Tensor) -> Reading | None:
    lengths = _runs(block_sequence_ids, place)
    if lengths is None:
        return None
    inside = to_numpy(block_sequence_ids)[:, place.key_offset : place.key_offset + place.keys] >= 0
    return Reading(
        per_item(
            Documents(runs) & Global(keys=np.flatnonzero(row))
            for runs, row in zip(lengths, inside, strict=True)
        )
    )


def _padded(place: Place, padding_mask: Tensor) -> Reading:
    return Reading(Full(), padding(padding_mask, place))


def _all_of(place: Place, mask_functions: tuple[MaskFunction, ...]) -> Reading:
    parts = [read(function, place) for function in mask_functions]
    return Reading(reduce(meet, (p.relation for p in parts)), reduce(meet, (p.given for p in parts)))


def _any_of(place: Place, mask_functions: tuple[MaskFunction, ...]) -> Reading:
    def join(first: Any, second: Any) -> Any:
        return second | first if isinstance(second, Batch) else first | second

    return Reading(reduce(join, (read(function, place).whole for function in mask_functions)))


def _runs(groups: Tensor, place: Place) -> list[list[int]] | None:
    """The lengths of the runs of equal group numbers; None where a group is not one run."""
    array = to_numpy(groups)[:, place.key_offset : place.key_offset + place.keys]
    lengths = []
    for row in array:
        starts = np.flatnonzero(np.diff(row, prepend=row[:1] - 1))
        named = row[starts]
        # Group -1 of a blockwise mask is no group: it may come back.
        if np.unique(named[named >= 0]).size < (named >= 0).sum() or row.size < place.keys:
            return None
        lengths.append(np.diff(starts, append=row.size).tolist())
    return lengths


@cache
def _trusted() -> dict[CodeType | None, Callable[..., Reading | None]]:
    """The closures of the installed transformers that mean what they are read as, by their code.

    Each is compared, on small cases, with what it evaluates to. A version that changes its meaning, a
    window that counts differently say, is then evaluated instead of read.
    """
    from transformers import masking_utils as library

    groups = torch.tensor([[0, 0, 0, 1, 1, 2, 2, 2, 2], [0, 1, 1, 1, 1, 1, 2, 3, 3]])
    samples: list[tuple[str, Callable[..., Reading | None], tuple[Any, ...]]] = [
        ("causal_mask_function", _causal, ()),
        ("bidirectional_mask_function", _bidirectional, ()),
        ("sliding_window_overlay", _sliding, (3,)),
        ("sliding_window_bidirectional_overlay", _sliding_both_ways, (2,)),
        ("chunked_overlay", _chunked, (3, torch.tensor([0, 2]))),
        ("packed_sequence_mask_function", _packed, (groups,)),
        ("blockwise_overlay", _blockwise, (groups - 1,)),
        ("padding_mask_function", _padded, (groups < 2,)),
    ]
    places = [Place(2, 9, 9), Place(2, 4, 9, query_offset=5), Place(2, 3, 7, query_offset=6, key_offset=2)]
    known: dict[CodeType | None, Callable[..., Reading | None]] = {
        library.and_masks().__code__: _all_of,
        library.or_masks().__code__: _any_of,
    }
    for name, reader, arguments in samples:
        function = getattr(library, name, None)  # older versions lack some
        if arguments and function is not None:
            function = function(*arguments)
        if function is not None and all(_agrees(reader, function, place) for place in places):
            known[function.__code__] = reader
    return known


def _agrees(reader: Callable[..., Reading | None], function: MaskFunction, place: Place) -> bool:
    from erlangen.integrations.masks import mask

    reading = reader(place=place, **getclosurevars(function).nonlocals)
    if reading is None:
        return False
    shape = (place.batch, 1, place.queries, place.keys)
    read_as, evaluated = (
        mask(relation, place.queries, place.keys).expand(shape)
        for relation in (reading.whole, place.evaluated(function))
    )
    return bool((read_as == evaluated).all())

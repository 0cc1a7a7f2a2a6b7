"""A measured relation: the exact neighborhoods of every batch item and head."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from erlangen.relations import Neighborhoods


@dataclass(frozen=True)
class Support:
    """The neighborhoods of one attention call, `items[b][h]` for batch item b and head h.

    Equal neighborhoods are one object, so a call whose heads and items all agree costs one.

    >>> support = Support.from_dense(np.tril(np.ones((1, 2, 3, 3), bool)))
    >>> support.batch, support.heads, support.unique[0].num_edges
    (1, 2, 6)
    """

    items: tuple[tuple[Neighborhoods, ...], ...]

    @classmethod
    def from_dense(cls, dense: Any) -> Support:
        """From a boolean array of shape (batch, heads, queries, keys)."""
        array = np.asarray(dense, bool)
        made: dict[bytes, Neighborhoods] = {}

        def bound(matrix: np.ndarray) -> Neighborhoods:
            key = np.packbits(matrix).tobytes()
            if key not in made:
                made[key] = Neighborhoods.from_dense(matrix)
            return made[key]

        return cls(tuple(tuple(bound(matrix) for matrix in item) for item in array))

    @classmethod
    def same(cls, neighborhoods: Neighborhoods, batch: int, heads: int) -> Support:
        """The same neighborhoods for every item and head."""
        return cls(((neighborhoods,) * heads,) * batch)

    @property
    def batch(self) -> int:
        """The number of batch items."""
        return len(self.items)

    @property
    def heads(self) -> int:
        """The number of heads."""
        return len(self.items[0]) if self.items else 0

    @cached_property
    def unique(self) -> tuple[Neighborhoods, ...]:
        """The distinct neighborhoods, in order of appearance."""
        return tuple(dict.fromkeys(bound for item in self.items for bound in item))

    def parts(
        self, rows: Sequence[np.ndarray | None] | None = None
    ) -> list[tuple[Neighborhoods, np.ndarray | None, list[tuple[int, int]]]]:
        """What differs: neighborhoods, which of their rows count, and every (item, head) that has them.

        `rows` are the rows that count of each item, or the same of all items.
        """
        found: dict[Any, tuple[Neighborhoods, np.ndarray | None, list[tuple[int, int]]]] = {}
        for item, heads in enumerate(self.items):
            kept = None if rows is None else of_item(rows, item)
            for head, bound in enumerate(heads):
                key = bound, None if kept is None else kept.tobytes()
                found.setdefault(key, (bound, kept, []))[2].append((item, head))
        return list(found.values())

    def of_item(self, item: int) -> Neighborhoods:
        """What one batch item reads through any head: the union over its heads."""
        result, *rest = dict.fromkeys(of_item(self.items, item))
        for bound in rest:
            result = result | bound
        return result

    def dense(self) -> np.ndarray:
        """The masks of all items and heads, shape (batch, heads, queries, keys)."""
        masks = {bound: bound.dense() for bound in self.unique}
        return np.stack([np.stack([masks[bound] for bound in item]) for item in self.items])

    def unlike(self, other: Support) -> Iterator[tuple[int, int, Neighborhoods, Neighborhoods]]:
        """Where two supports differ: (item, head, what self reads, what the other reads)."""
        for b, (mine, theirs) in enumerate(zip(self.items, other.items, strict=True)):
            for h, (a, c) in enumerate(zip(mine, theirs, strict=True)):
                if a != c:
                    yield b, h, a, c

    def difference(self, other: Support) -> tuple[int, int, int, int, bool] | None:
        """The first edge where two supports differ: (item, head, query, key, whether self has it)."""
        for b, h, a, c in self.unlike(other):
            i, j = (a ^ c).edges()[0].tolist()
            return b, h, i, j, bool(a.contains(i, j))
        return None


def of_item(parts: Any, item: int) -> Any:
    """What belongs to one item of the batch: masks and measurements that are the same for all items have one
    for all.

    >>> of_item([[True, False]], 3)
    [True, False]
    """
    return parts[min(item, len(parts) - 1)]

"""A relation of any kind at a size, for people: its numbers, its text for the terminal, and its picture."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from erlangen.relations import Triples
from erlangen.relations.protocol import AnyRelation
from erlangen.show.affordable import bind_all
from erlangen.show.density import shares
from erlangen.show.matrix import MARKED, Charset, charset, draw
from erlangen.show.summary import facts, header

HEADS = 4
"""Most heads of a weighted relation drawn in the terminal."""
LISTED_ROWS = 16
"""Rows of a ternary relation printed pair by pair: up to this many positions ..."""
LISTED_PAIRS = 12
"""... and this many pairs a row; the rest is counted."""


class Drawing:
    """A relation bound for display: `bound` has every member of a family with its place.

    Weights are shades of the matrix, one for each head. A ternary relation is drawn by its pairwise shadow,
    with its triples beside it.
    """

    def __init__(self, relation: AnyRelation, queries: int | None, keys: int | None) -> None:
        self.relation, self.bound = relation, bind_all(relation, queries, keys)

    def facts(self) -> Any:
        """The numbers as plain Python values; of a family a list of them, in the order of its members."""
        told = [facts(relation, bound) for _, relation, bound in self.bound]
        return told if self.relation.axes else told[0]

    def text(self, *, drawn: bool = True) -> str:
        """The numbers in words and, where it is to be drawn, the matrix."""
        room = shutil.get_terminal_size().columns, charset(sys.stdout.encoding)
        lines: list[str] = []
        for place, relation, bound in self.bound:
            lines.append((f"{place}: " if place else "") + header(relation, bound))
            lines += _matrices(relation, bound, *room) if drawn else []
        return "\n".join(lines)

    def save(self, *paths: Path, title: str | None = None) -> None:
        """Draw a picture into PNG or SVG files."""
        from erlangen.show.figures import save  # loads matplotlib, which text and numbers do without

        save(self.bound, paths, title)


def drawing(relation: AnyRelation, queries: int | None = None, keys: int | None = None) -> Drawing:
    """The drawing of a relation at a size; relations with a size of their own need none.

    >>> from erlangen.relations import ALiBi, Causal, Fano
    >>> print(drawing(Causal(), 2).text().splitlines()[0])
    Causal() on 2 queries x 2 keys
    >>> drawing(Fano()).facts()["triples"], drawing(ALiBi(1), 2).facts()["weights"]["heads"]
    (42, 1)
    """
    return Drawing(relation, queries, keys)


def _matrices(relation: Any, bound: Any, width: int, characters: Charset) -> Iterator[str]:
    """The matrix; of weights one for each head; of a ternary relation the shadow's, and the pairs."""
    if relation.arity == 3:
        yield "shadow: query i reads key j in some pair"
        yield draw(bound.shadow().on(bound.n), width, characters)
        yield from _pairs(bound)
    elif relation.weights is not None:
        small = max(bound.queries, bound.keys) <= MARKED
        for head in range(min(bound.heads, HEADS)):
            if bound.heads > 1:
                yield f"head {head}"
            yield draw(bound.neighborhoods, width, characters, shares(bound, head) if small else None)
    else:
        yield draw(bound, width, characters)


def _pairs(bound: Triples) -> Iterator[str]:
    """The pairs that each query reads, where there are few positions.

    >>> print(*_pairs(Triples(3, [(0, 1, 2), (1, 0, 0)])), sep="\\n")
    pairs of keys that each query reads together
      0  (1, 2)
      1  (0, 0)
      2  none
    """
    if not 0 < bound.n <= LISTED_ROWS:
        return
    yield "pairs of keys that each query reads together"
    for i in range(bound.n):
        pairs = bound.row(i)
        more = f" and {len(pairs) - LISTED_PAIRS} more" if len(pairs) > LISTED_PAIRS else ""
        yield f"{i:>3}  {' '.join(map(str, pairs[:LISTED_PAIRS])) + more or 'none'}"

"""A relation of any kind at a size, for people: its numbers, its text for the terminal, and its picture."""

from __future__ import annotations

import shutil
import sys
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from erlangen.errors import ParameterError
from erlangen.relations.protocol import AnyRelation
from erlangen.show import ternary, weights
from erlangen.show.binding import bind_all
from erlangen.show.matrix import charset, draw
from erlangen.show.summary import facts, header

HEADS = 4
"""Most heads of a weighted relation drawn in the terminal."""


class Drawing(ABC):
    """A relation bound for display. Pictures need matplotlib, which is imported when one is saved."""

    @abstractmethod
    def facts(self) -> Any:
        """The numbers as plain Python values; of a family a list of them, in the order of its members."""

    @abstractmethod
    def text(self, *, drawn: bool = True) -> str:
        """The numbers in words and, where it is to be drawn, the matrix."""

    @abstractmethod
    def save(self, path: Path) -> None:
        """Draw a picture into a PNG or SVG file."""


def drawing(relation: AnyRelation, queries: int | None = None, keys: int | None = None) -> Drawing:
    """The drawing of a relation at a size; relations with a size of their own need none.

    >>> from erlangen.relations import ALiBi, Causal, Fano
    >>> print(drawing(Causal(), 2).text().splitlines()[0])
    Causal() on 2 queries x 2 keys
    >>> drawing(Fano()).facts()["triples"], drawing(ALiBi(1), 2).facts()["weights"]["heads"]
    (42, 1)
    """
    if relation.arity == 3:
        return _Ternary(relation, queries, keys)
    return _Pairs(relation, queries, keys) if relation.weights is None else _Weights(relation, queries, keys)


class _Pairs(Drawing):
    def __init__(self, relation: Any, queries: int | None, keys: int | None) -> None:
        self.relation, self.bound = relation, bind_all(relation, queries, keys)

    def facts(self) -> Any:
        told = [facts(relation, neighborhoods) for _, relation, neighborhoods in self.bound]
        return told if self.relation.axes else told[0]

    def text(self, *, drawn: bool = True) -> str:
        lines = []
        for place, relation, neighborhoods in self.bound:
            lines.append((f"{place}: " if place else "") + header(relation, neighborhoods))
            if drawn:
                lines.append(draw(neighborhoods, *_terminal()))
        return "\n".join(lines)

    def save(self, path: Path) -> None:
        from erlangen.show.figures import save

        save(self.bound, [path])


class _Weights(Drawing):
    def __init__(self, relation: Any, queries: int | None, keys: int | None) -> None:
        self.weighted, self.bound = relation.weights, weights.bind_weighted(relation.weights, queries, keys)

    def facts(self) -> dict[str, Any]:
        return weights.weight_facts(self.weighted, self.bound)

    def text(self, *, drawn: bool = True) -> str:
        lines = [weights.weight_header(self.weighted, self.bound)]
        for head in range(min(self.bound.heads, HEADS) if drawn else 0):
            if self.bound.heads > 1:
                lines.append(f"head {head}")
            lines.append(weights.draw_weights(self.bound, head, *_terminal()))
        return "\n".join(lines)

    def save(self, path: Path) -> None:
        from erlangen.show.weight_figures import save_weights

        save_weights(self.weighted, self.bound, [path])


class _Ternary(Drawing):
    def __init__(self, relation: Any, n: int | None, keys: int | None) -> None:
        if keys is not None:
            raise ParameterError(f"{relation} relates positions of one sequence: --keys does not apply")
        self.relation, self.bound = relation, relation.on(n)

    def facts(self) -> dict[str, Any]:
        return ternary.facts(self.relation, self.bound)

    def text(self, *, drawn: bool = True) -> str:
        return ternary.text(self.relation, self.bound, *_terminal())

    def save(self, path: Path) -> None:
        ternary.save(self.relation, self.bound, path)


def _terminal() -> tuple[int, Any]:
    return shutil.get_terminal_size().columns, charset(sys.stdout.encoding)

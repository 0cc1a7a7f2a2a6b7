"""A relation told and drawn as text, the way `erlangen show` and `relation.show(n)` print it."""

from __future__ import annotations

import shutil
import sys
from typing import Any

from erlangen.relations.weighted import WeightedRelation
from erlangen.show.binding import Bound, bind_all
from erlangen.show.matrix import charset, draw
from erlangen.show.summary import header

HEADS = 4
"""Most heads of a weighted relation drawn in the terminal."""


def told(relation: Any, queries: int | None, keys: int | None) -> str:
    """The numbers of a relation, family or weighted relation at a size, and its matrix.

    >>> from erlangen.relations import Causal
    >>> print(told(Causal(), 2, None).splitlines()[0])
    Causal() on 2 queries x 2 keys
    """
    if isinstance(relation, WeightedRelation):
        from erlangen.show.weights import bind_weighted

        return told_weights(relation, bind_weighted(relation, queries, keys))
    return told_bound(bind_all(relation, queries, keys))


def told_bound(bound: list[Bound], *, drawn: bool = True) -> str:
    """The numbers of every member and, where it is to be drawn, its matrix."""
    width, characters = _terminal()
    lines = []
    for place, relation, neighborhoods in bound:
        lines.append((f"{place}: " if place else "") + header(relation, neighborhoods))
        if drawn:
            lines.append(draw(neighborhoods, width, characters))
    return "\n".join(lines)


def told_weights(weighted: WeightedRelation, bound: Any, *, drawn: bool = True) -> str:
    """The numbers of a weighted relation and, where it is to be drawn, its pairs in shades."""
    from erlangen.show import weights

    width, characters = _terminal()
    lines = [weights.weight_header(weighted, bound)]
    for head in range(min(bound.heads, HEADS) if drawn else 0):
        if bound.heads > 1:
            lines.append(f"head {head}")
        lines.append(weights.draw_weights(bound, head, width, characters))
    return "\n".join(lines)


def _terminal() -> tuple[int, Any]:
    return shutil.get_terminal_size().columns, charset(sys.stdout.encoding)

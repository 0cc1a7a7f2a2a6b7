"""Measured and expected relations as a reader sees them: an expression where there is one, otherwise words.

The `repr` of a large mask, FromMask(<16 x 16, 137 edges>), says nothing about it. No text of an audit has it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from erlangen.audit.identify import LONGEST, words
from erlangen.audit.support import Support
from erlangen.errors import ErlangenError
from erlangen.relations import Batch, Neighborhoods, PerHead, Relation

PARTS = 3
"""Heads or items that differ are told apart up to so many; the others are counted."""


def irregular(relation: Any) -> bool:
    """Whether the expression of a relation is a list of entries and not a name.

    >>> from erlangen.relations import Causal, FromMask
    >>> irregular(Causal()), irregular(Causal() & FromMask([[1, 0], [0, 1]]))
    (False, True)
    """
    text = str(relation)
    return "FromMask(" in text or ("Graph(" in text and ("Graph(<" in text or len(text) > LONGEST))


def told(relation: Any, support: Support, rows: Sequence[np.ndarray | None] | None = None) -> str:
    """A measured relation: its expression, or in words, head by head and item by item where they differ.

    >>> mask = np.random.default_rng(0).random((1, 2, 9, 9)) < 0.5
    >>> mask[0, 0] = np.tri(9)
    >>> from erlangen.audit.identify import describe
    >>> print(told(describe(Support.from_dense(mask)), Support.from_dense(mask)))
    head 0: Causal(); head 1: 36 of 81 pairs; row 0 reads 0, 3 and 7
    """
    if not irregular(relation):
        return str(relation)
    where: dict[Any, list[tuple[int, int]]] = {}
    for item, heads in enumerate(support.items):
        kept = None if rows is None else rows[min(item, len(rows) - 1)]
        for head, bound in enumerate(heads):
            key = bound, None if kept is None else kept.tobytes()
            where.setdefault(key, []).append((item, head))
    parts = []
    for (bound, _), at in list(where.items())[:PARTS]:
        kept = None if rows is None else rows[min(at[0][0], len(rows) - 1)]
        text = words(bound, None, kept)
        parts.append(text if len(where) == 1 else f"{place(at, support)}: {text}")
    if len(where) > PARTS:
        parts.append(f"and {len(where) - PARTS} more")
    return "; ".join(parts)


def place(at: list[tuple[int, int]], support: Support) -> str:
    """Which items and heads: "head 0-2", "item 1", "item 1, head 3"."""
    items, heads = sorted({item for item, _ in at}), sorted({head for _, head in at})
    item = f"item {ranges(items)}" if len(items) < support.batch else ""
    head = f"head {ranges(heads)}" if len(heads) < support.heads else ""
    return ", ".join(part for part in (item, head) if part) or "elsewhere"


@lru_cache(maxsize=256)
def wanted(relation: Any, queries: int, keys: int) -> str:
    """An expected relation at a size: its expression, or in words where it was given as a mask.

    >>> from erlangen.relations import FromMask, Full
    >>> wanted(Full(), 9, 9), wanted(FromMask(np.tri(9) > 0), 9, 9)
    ('Full()', 'Causal()')
    >>> wanted(FromMask(np.random.default_rng(0).random((9, 9)) < 0.5), 9, 9)
    'the given mask (39 of 81 pairs; row 0 reads 1..3)'
    """
    if not irregular(relation):
        return str(relation)
    if isinstance(relation, Batch | PerHead):
        name = "item" if isinstance(relation, Batch) else "head"
        shared: dict[str, list[int]] = {}
        for index, member in enumerate(relation.members):
            shared.setdefault(wanted(member, queries, keys), []).append(index)
        parts = [f"{name} {ranges(at)}: {text}" for text, at in list(shared.items())[:PARTS]]
        parts += [f"and {len(shared) - PARTS} more"] if len(shared) > PARTS else []
        return "; ".join(parts) if len(shared) > 1 else next(iter(shared))
    bound = _bound(relation, queries, keys)
    if bound is None:
        return without_masks(str(relation))
    text = words(bound)
    # Words that count pairs or keys are no name; what is a name needs no more.
    return text if re.fullmatch(r"[\w.~(]\S*\(.*\)", text) else f"the given mask ({text})"


def without_masks(text: str) -> str:
    """Text of an error about a relation, without the abbreviated masks in it.

    >>> without_masks("FromMask(<16 x 16, 137 edges>) has 16 queries")
    'the given mask (16 x 16, 137 edges) has 16 queries'
    """
    text = re.sub(r"FromMask\(<(.*?)>\)", r"the given mask (\1)", text)
    text = re.sub(r"FromMask\(\[\[.*?\]\]\)", "the given mask", text)
    return re.sub(r"Graph\(<(.*?)>(, nodes=\d+)?\)", r"the given graph (\1)", text)


def ranges(numbers: list[int]) -> str:
    """Sorted numbers, with runs joined.

    >>> ranges([0, 1, 2, 5])
    '0-2, 5'
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _bound(relation: Relation, queries: int, keys: int) -> Neighborhoods | None:
    try:
        return relation.on(queries, keys)
    except ErlangenError:
        return None

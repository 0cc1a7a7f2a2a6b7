"""Measured and expected relations as a reader sees them: an expression where there is one, otherwise words.

The `repr` of a large mask, FromMask(<16 x 16, 137 edges>), says nothing about it. No text of an audit has it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from erlangen.audit.identify import at_size, candidates, named
from erlangen.audit.support import Support
from erlangen.caches import cached
from erlangen.relations import Empty, Neighborhoods, Relation

FEW = 8
"""Fewer edges than this, or than a hundredth of all edges, are a difference from a relation worth naming."""
LONGEST = 100
"""Characters of a name that still says something."""
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
    parts = support.parts(rows)
    texts = [(place(at, support), words(bound, None, kept)) for bound, kept, at in parts[:PARTS]]
    return _apart(texts, len(parts))


def _apart(parts: list[tuple[str, str]], count: int) -> str:
    """Texts that differ, each behind what it is about; of so many in all."""
    if count == 1:
        return parts[0][1]
    more = [f"and {count - PARTS} more"] if count > PARTS else []
    return "; ".join([*(f"{about}: {text}" for about, text in parts[:PARTS]), *more])


def place(at: list[tuple[int, int]], support: Support) -> str:
    """Which items and heads: "head 0-2", "item 1", "item 1, head 3"."""
    items, heads = sorted({item for item, _ in at}), sorted({head for _, head in at})
    item = f"item {ranges(items)}" if len(items) < support.batch else ""
    head = f"head {ranges(heads)}" if len(heads) < support.heads else ""
    return ", ".join(part for part in (item, head) if part) or "elsewhere"


@cached(256)
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
    if relation.axes:
        name = relation.axes[0]
        shared: dict[str, list[int]] = {}
        for index, member in enumerate(relation.members):
            shared.setdefault(wanted(member, queries, keys), []).append(index)
        return _apart([(f"{name} {ranges(at)}", text) for text, at in shared.items()], len(shared))
    bound = at_size(relation, queries, keys)
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


# ------------------------------------------------------------------- in words


def words(
    bound: Neighborhoods, expected: Relation | Neighborhoods | None = None, rows: np.ndarray | None = None
) -> str:
    """A relation in words, however irregular: its name if it has one, else a difference, else its rows.

    The difference is from what was expected if that is near, otherwise from the nearest of the relations that
    `identify` tries. Near is: fewer than 8 edges differ, or fewer than one in a hundred. Only the given rows
    count, if any.

    >>> from erlangen.relations import Causal, Window
    >>> causal = Causal().on(16)
    >>> words(causal), words(causal | Neighborhoods.from_edges(16, 16, [(2, 5)]))
    ('Causal()', 'Causal() and one edge more, (2, 5)')
    >>> words(Window(lookback=3).on(16) - Neighborhoods.from_edges(16, 16, [(7, 4)]))
    'Window(lookback=3) without the edge (7, 4)'
    >>> words(Neighborhoods.from_dense([[True, False, True, False, True]] * 4))
    'every row reads the same 3 of 5 keys: 0, 2 and 4'
    """
    name = named(bound, rows)
    if name is not None and _says_something(name):
        return str(name)
    kept = np.arange(bound.queries) if rows is None else np.unique(np.asarray(rows))
    wanted = bound.restrict(kept)
    if expected is None and wanted.num_edges <= 4:
        return f"only the edge{'s' * (wanted.num_edges > 1)} {_listed(_original(wanted, kept))}"
    if expected is None and _same_in_every_row(wanted):
        return _by_rows(wanted, kept)
    near = _nearest(bound, expected, rows, kept)
    return _by_rows(wanted, kept) if near is None else near


def _says_something(name: Relation) -> bool:
    """A list of many positions is no name: "every row reads the same 12 of 24 keys" says more."""
    return len(str(name)) <= LONGEST and str(name).count(",") <= FEW


def _nearest(
    bound: Neighborhoods,
    expected: Relation | Neighborhoods | None,
    rows: np.ndarray | None,
    kept: np.ndarray,
) -> str | None:
    """The difference from what was expected, or from the candidate that differs in the fewest edges."""
    wanted = bound.restrict(kept)
    pairs = len(kept) * bound.keys
    # At small sizes everything is few edges away from something; that would say nothing.
    limit = min(max(FEW, wanted.num_edges / 100), max(2.0, pairs / 8))

    def difference(found: Neighborhoods) -> float:
        if abs(found.num_edges - wanted.num_edges) >= limit:
            return np.inf  # the sets differ in as many edges at least, so they need not be compared
        return (found ^ wanted).num_edges

    told = _expected(expected, bound)
    if told is not None and difference(told[1].restrict(kept)) < limit:
        return _difference(told[0], wanted, told[1].restrict(kept), kept)
    best: tuple[float, int, str, Neighborhoods] | None = None
    tried = set[str]()
    for source in _cleaned(bound, rows):
        for candidate in candidates(source, rows):
            name = str(candidate)
            if name in tried or not _says_something(candidate) or candidate == Empty():
                continue
            tried.add(name)
            found = at_size(candidate, bound.queries, bound.keys)
            if found is not None:
                one = difference(found.restrict(kept)), len(name), name, found.restrict(kept)
                best = one if best is None or one[:2] < best[:2] else best
    if best is None or best[0] >= limit:
        return None
    return _difference(best[2], wanted, best[3], kept)


def _expected(
    expected: Relation | Neighborhoods | None, bound: Neighborhoods
) -> tuple[str, Neighborhoods] | None:
    """What was expected at this size, and what to call it; None where it has no such size."""
    found = None if expected is None else at_size(expected, bound.queries, bound.keys)
    if expected is None or found is None:
        return None
    name = named(found) if expected.is_bound else None if irregular(expected) else expected
    return "what was expected" if name is None or len(str(name)) > LONGEST else str(name), found


def _cleaned(bound: Neighborhoods, rows: np.ndarray | None) -> Iterator[Neighborhoods]:
    """The relation itself, and without what few edges may have spoilt: candidates are read off extremes.

    Offsets j - i that most of their pairs have are kept whole, all others dropped; the same beside keys that
    all but two queries read and queries that read all but two keys, and inside the documents that all but two
    edges stay within.
    """
    yield bound
    n = bound.keys
    if bound.queries != n or n < 3 or not bound.num_edges:
        return
    dense = bound.dense()
    counted = np.ones(n, bool) if rows is None else np.isin(np.arange(n), rows)
    if not counted.any():
        return
    yield Neighborhoods.from_dense(_usual_offsets(dense, counted))
    past, whole = np.tri(n, dtype=bool), np.ones((n, n), bool)
    sinks = (past & ~dense)[counted].sum(axis=0) <= 2
    sinks[int(np.argmin(sinks)) :] = sinks.all()  # the first keys alone: the last ones have few later queries
    read, reads = (~dense)[counted].sum(axis=0) <= 2, (~dense).sum(axis=1) <= 2
    for order, columns, lines in ((past, sinks, np.zeros(n, bool)), (whole, read, reads)):
        apart = columns | lines[:, None]
        if apart.any() and not apart.all():
            yield Neighborhoods.from_dense(_usual_offsets(dense, counted, ~apart) & ~apart | order & apart)
    parts = _usual_parts(bound)
    if parts.max() > 0:
        inside = parts[:, None] == parts
        yield Neighborhoods.from_dense(dense & inside)
        yield Neighborhoods.from_dense(_usual_offsets(dense, counted, inside) & inside)


def _usual_offsets(dense: np.ndarray, counted: np.ndarray, among: np.ndarray | None = None) -> np.ndarray:
    """All pairs at the offsets that more than half of their pairs have, among some pairs."""
    n = len(dense)
    offsets = np.arange(n)[:, None] - np.arange(n) + n - 1
    possible = np.broadcast_to(counted[:, None], (n, n))
    if among is not None:
        possible = possible & among
    seen = np.bincount(offsets[dense & possible], minlength=2 * n - 1)
    there = np.bincount(offsets[possible], minlength=2 * n - 1)
    return (2 * seen > there)[offsets]


def _usual_parts(bound: Neighborhoods) -> np.ndarray:
    """For each position the number of its document, where a document may be left by two edges at most."""
    n = bound.keys
    edges = bound.edges()
    low, high = edges.min(axis=1), edges.max(axis=1)
    across = np.cumsum(np.bincount(low + 1, minlength=n + 1) - np.bincount(high + 1, minlength=n + 1))[1:n]
    usual = np.median(across[across > 0]) if (across > 0).any() else 0
    return np.concatenate([[0], np.cumsum(across <= min(2, (usual - 1) // 2))])


def _difference(name: str, wanted: Neighborhoods, near: Neighborhoods, kept: np.ndarray) -> str:
    """`wanted` as `near` and what it has more and less."""
    more, less = _original(wanted - near, kept), _original(near - wanted, kept)
    parts = []
    if len(more) == 1:
        parts.append(f"one edge more, {_listed(more)}")
    elif len(more):
        parts.append(f"{len(more)} edges more, first {_listed(more[:1])}")
    if len(less) == 1:
        parts.append(f"without the edge {_listed(less)}")
    elif len(less):
        parts.append(f"without {len(less)} edges, first {_listed(less[:1])}")
    told = ", and ".join(parts)
    name = f"({name})" if " & " in name or " | " in name else name
    return f"{name} and {told}" if len(more) else f"{name} {told}" if parts else name


def _same_in_every_row(wanted: Neighborhoods) -> bool:
    return wanted == wanted.restrict(np.zeros(wanted.queries, np.int64))


def _by_rows(wanted: Neighborhoods, kept: np.ndarray) -> str:
    """Neither a name nor near to one: how much is read, and by whom."""
    if not wanted.queries:
        return "no rows"
    first = wanted.restrict([0])
    degree, keys = int(first.num_edges), wanted.keys
    same_degree = bool((wanted.degrees == degree).all())
    if same_degree and _same_in_every_row(wanted):
        # Which keys, unless that is a list of its own.
        which = _keys(first)
        told = f"every row reads the same {degree} of {keys} keys"
        return f"{told}: {which}" if len(which) <= 40 else told
    row = int(np.argmax(wanted.degrees > 0))  # an empty row tells less
    shown = wanted.restrict([row])
    reads = f"row {int(kept[row])} reads {_keys(shown)}"
    if len(reads) > 60:
        low, high = int(shown.starts[0]), int(shown.stops[-1]) - 1
        reads = f"row {int(kept[row])} reads {shown.num_edges} keys between {low} and {high}"
    if same_degree:
        return f"every row reads {degree} of {keys} keys; {reads}"
    return f"{wanted.num_edges} of {wanted.queries * keys} pairs; {reads}"


def _keys(row: Neighborhoods) -> str:
    """The keys of one row: "0..3 and 9"."""
    runs = [
        str(start) if stop == start + 1 else f"{start}..{stop - 1}"
        for start, stop in zip(row.starts.tolist(), row.stops.tolist(), strict=True)
    ]
    return runs[0] if len(runs) == 1 else f"{', '.join(runs[:-1])} and {runs[-1]}"


def _original(part: Neighborhoods, kept: np.ndarray) -> np.ndarray:
    """The edges of restricted rows, with the numbers that the rows had before."""
    edges = part.edges()
    return np.stack([kept[edges[:, 0]], edges[:, 1]], axis=1)


def _listed(edges: np.ndarray) -> str:
    told = [f"({i}, {j})" for i, j in edges.tolist()]
    return told[0] if len(told) == 1 else f"{', '.join(told[:-1])} and {told[-1]}"

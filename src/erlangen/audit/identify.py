"""From measured neighborhoods to the simplest relation that equals them exactly at this size.

Candidates are read off the measurement and kept only if they bind to exactly the measured sets; nothing is
fitted or rounded. Without a match the answer is the mask itself, or its edges when they are few; `words` says
such a relation as a difference from what was expected, from the nearest candidate, or by its rows.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from erlangen.audit.support import Support
from erlangen.errors import ErlangenError
from erlangen.relations import (
    Batch,
    Blocks,
    Causal,
    Dilated,
    Documents,
    Empty,
    FromMask,
    Full,
    Global,
    Graph,
    Identity,
    Neighborhoods,
    Offset,
    Padding,
    PerHead,
    Prefix,
    Relation,
    Ring,
    Window,
)

FEW = 8
"""Fewer edges than this, or than a hundredth of all edges, are a difference from a relation worth naming."""
LONGEST = 100
"""Characters of a name that still says something."""


def identify(bound: Neighborhoods, rows: np.ndarray | None = None) -> Relation:
    """The simplest known expression with exactly these neighborhoods (on the given rows only, if any).

    >>> identify(Window(lookback=2).on(9))
    Window(lookback=2)
    >>> identify((Causal() & Documents([4, 5])).on(9))
    Causal() & Documents(lengths=(4, 5))
    >>> identify(Neighborhoods.from_edges(3, 3, [(0, 2), (1, 0)]))
    Graph([(0, 2), (1, 0)], nodes=3)
    """
    wanted = bound if rows is None else bound.restrict(rows)
    for candidate in _candidates(bound, rows):
        try:
            found = candidate.on(bound.queries, bound.keys)
        except ErlangenError:
            continue
        if (found if rows is None else found.restrict(rows)) == wanted:
            return candidate
    if bound.queries == bound.keys and bound.num_edges <= 4 * bound.queries:
        return Graph.from_pairs(bound.edges(), nodes=bound.queries)
    return FromMask(bound.dense())


def describe(support: Support, rows: list[np.ndarray | None] | None = None) -> Relation | PerHead | Batch:
    """One expression for a call: a `PerHead` where heads differ, a `Batch` where items differ.

    >>> describe(Support((tuple(Window(lookback=p).on(5) for p in (1, 2)),)))
    PerHead([Window(lookback=1), Window(lookback=2)])
    """
    named: dict[tuple[Neighborhoods, bytes | None], Relation] = {}

    def name(bound: Neighborhoods, kept: np.ndarray | None) -> Relation:
        key = bound, None if kept is None else kept.tobytes()
        if key not in named:
            named[key] = identify(bound, kept)
        return named[key]

    items: list[Relation | PerHead] = []
    for index, heads in enumerate(support.items):
        kept = None if rows is None else rows[min(index, len(rows) - 1)]
        relations = [name(bound, kept) for bound in heads]
        items.append(relations[0] if len(set(relations)) == 1 else PerHead(relations))
    return items[0] if len(set(items)) == 1 else Batch(items)


def words(
    bound: Neighborhoods, expected: Relation | Neighborhoods | None = None, rows: np.ndarray | None = None
) -> str:
    """A relation in words, however irregular: its name if it has one, else a difference, else its rows.

    The difference is from what was expected if that is near, otherwise from the nearest of the relations that
    `identify` tries. Near is: fewer than 8 edges differ, or fewer than one in a hundred. Only the given rows
    count, if any.

    >>> causal = Causal().on(16)
    >>> words(causal), words(causal | Neighborhoods.from_edges(16, 16, [(2, 5)]))
    ('Causal()', 'Causal() and one edge more, (2, 5)')
    >>> words(Window(lookback=3).on(16) - Neighborhoods.from_edges(16, 16, [(7, 4)]))
    'Window(lookback=3) without the edge (7, 4)'
    >>> words(Neighborhoods.from_dense([[True, False, True, False, True]] * 4))
    'every row reads the same 3 of 5 keys: 0, 2 and 4'
    """
    name = identify(bound, rows)
    if not isinstance(name, Graph | FromMask) and _says_something(name):
        return str(name)
    kept = np.arange(bound.queries) if rows is None else np.unique(np.asarray(rows))
    wanted = bound.restrict(kept)
    if wanted.num_edges <= 4 and expected is None:
        return f"only the edge{'s' * (wanted.num_edges > 1)} {_listed(_original(wanted, kept))}"
    if (
        wanted.num_edges
        and wanted == wanted.restrict(np.zeros(wanted.queries, np.int64))
        and expected is None
    ):
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
        for candidate in _candidates(source, rows):
            name = str(candidate)
            if name in tried or not _says_something(candidate) or isinstance(candidate, Empty):
                continue
            tried.add(name)
            try:
                found = candidate.on(bound.queries, bound.keys).restrict(kept)
            except ErlangenError:
                continue
            one = difference(found), len(name), name, found
            best = one if best is None or one[:2] < best[:2] else best
    if best is None or best[0] >= limit:
        return None
    return _difference(best[2], wanted, best[3], kept)


def _expected(
    expected: Relation | Neighborhoods | None, bound: Neighborhoods
) -> tuple[str, Neighborhoods] | None:
    """What was expected at this size, and what to call it; None where it has no such size."""
    if isinstance(expected, Neighborhoods):
        name = identify(expected)
        plain = isinstance(name, Graph | FromMask) or len(str(name)) > LONGEST
        same = (expected.queries, expected.keys) == (bound.queries, bound.keys)
        return ("what was expected" if plain else str(name), expected) if same else None
    if expected is None:
        return None
    name = str(expected)
    if isinstance(expected, FromMask) or len(name) > LONGEST:
        name = "what was expected"
    try:
        return name, expected.on(bound.queries, bound.keys)
    except ErlangenError:
        return None


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


def _by_rows(wanted: Neighborhoods, kept: np.ndarray) -> str:
    """Neither a name nor near to one: how much is read, and by whom."""
    if not wanted.queries:
        return "no rows"
    first = wanted.restrict([0])
    degree, keys = int(first.num_edges), wanted.keys
    same_degree = bool((wanted.degrees == degree).all())
    if same_degree and wanted == wanted.restrict(np.zeros(wanted.queries, np.int64)):
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


def _candidates(bound: Neighborhoods, rows: np.ndarray | None) -> Iterator[Relation]:
    orders = (Identity(), Causal(), Causal().T)
    yield from (Empty(), Full(), *orders)
    paddings = list(_paddings(bound, rows))
    yield from paddings
    yield from (order & padding for padding in paddings for order in orders)
    yield from _plain(bound, rows)
    for padding in paddings:
        for relation in _plain(bound, rows):
            yield relation & padding


def _plain(bound: Neighborhoods, rows: np.ndarray | None) -> Iterator[Relation]:
    n, edges = bound.keys, bound.edges()
    if rows is not None:
        edges = edges[np.isin(edges[:, 0], rows)]
    if not edges.size:
        return
    offsets = edges[:, 0] + (n - bound.queries) - edges[:, 1]
    if offsets.size > 1 and np.ptp(offsets) == 0:
        yield Offset(-int(offsets[0]))
    back, ahead = max(int(offsets.max()), 0), max(int(-offsets.min()), 0)
    yield from (~Identity(), Causal() & ~Identity(), Window(back, ahead), Window(back, ahead) & ~Identity())
    if bound.queries != n:
        return
    yield Prefix(_first_stop(bound))
    yield from _partitions(bound)
    yield from _dilations(offsets)
    yield from _rings(bound)
    yield from _globals(bound, edges, offsets)


def _partitions(bound: Neighborhoods) -> Iterator[Relation]:
    """Blocks and documents, as they are, causal, or cut by a window."""
    n = bound.keys
    components = bound | bound.T | Identity().on(n)
    ends = [0]
    reach = np.maximum.accumulate([components.row(i)[-1][1] for i in range(n)])
    ends += [i + 1 for i in range(n) if reach[i] <= i + 1]
    lengths = np.diff(ends).tolist()
    if len(lengths) < 2:
        return
    edges = bound.edges()
    offsets = edges[:, 0] - edges[:, 1]
    window = Window(max(int(offsets.max()), 0), max(int(-offsets.min()), 0))
    parts: list[Relation] = [Documents(lengths)]
    if len(set(lengths[:-1])) == 1 and lengths[-1] <= lengths[0]:
        parts.insert(0, Blocks(lengths[0]))
    for part in parts:
        yield from (part, Causal() & part, window & part)


def _dilations(offsets: np.ndarray) -> Iterator[Relation]:
    step = int(np.gcd.reduce(np.abs(offsets)))
    if step > 1:
        window = Window(max(int(offsets.max()), 0), max(int(-offsets.min()), 0))
        yield from (Dilated(step), Causal() & Dilated(step), window & Dilated(step))


def _rings(bound: Neighborhoods) -> Iterator[Relation]:
    n = bound.keys
    around = (np.arange(n)[:, None] - np.arange(n)) % n
    used = np.unique(around[bound.dense()])
    back = 0
    while back + 1 in used:
        back += 1
    ahead = 0
    while n - (ahead + 1) in used and n - (ahead + 1) > back:
        ahead += 1
    if used.size == back + ahead + 1 and back + ahead + 1 < n:
        yield Ring(back, ahead)


def _globals(bound: Neighborhoods, edges: np.ndarray, offsets: np.ndarray) -> Iterator[Relation]:
    """Columns that everyone reads and rows that read everything, beside a window; causal or not."""
    n = bound.keys
    dense = bound.dense()
    columns, queries = np.flatnonzero(dense.all(axis=0)), np.flatnonzero(dense.all(axis=1))
    every = Global(columns.tolist(), queries.tolist())
    rest = ~(np.isin(edges[:, 1], columns) | np.isin(edges[:, 0], queries))
    if (columns.size or queries.size) and columns.size < n:
        yield every
        if rest.any():
            yield Window(max(int(offsets[rest].max()), 0), max(int(-offsets[rest].min()), 0)) | every
    past = np.tril(np.ones((n, n), bool))
    sinks = np.flatnonzero((dense | ~past).all(axis=0) & ~(dense & ~past).any(axis=0))
    sinks = sinks[: int(np.argmin(np.append(np.diff(sinks) == 1, False))) + 1] if sinks.size else sinks
    if sinks.size and sinks[0] == 0 and sinks.size < n:
        rest = ~np.isin(edges[:, 1], sinks)
        back = max(int(offsets[rest].max()), 0) if rest.any() else 0
        yield Window(back) | Causal() & Global(keys=sinks.tolist())
        yield Causal() & Global(keys=sinks.tolist())


def _paddings(bound: Neighborhoods, rows: np.ndarray | None) -> Iterator[Relation]:
    """Columns at one end that nobody reads."""
    kept = bound if rows is None else bound.restrict(rows)
    if not kept.starts.size:
        return
    low, high = int(kept.starts.min()), int(kept.stops.max())
    if high < bound.keys:
        yield Padding(high)
    if low > 0:
        yield Padding(bound.keys - low, side="left")


def _first_stop(bound: Neighborhoods) -> int:
    row = bound.row(0)
    return row[0][1] if row else 0

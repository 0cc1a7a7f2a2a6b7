"""From measured neighborhoods to the simplest relation that equals them exactly at this size.

Candidates are read off the measurement and kept only if they bind to exactly the measured sets; nothing is
fitted or rounded. Without a match the answer is the mask itself, or its edges when they are few.
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


def identify(bound: Neighborhoods, rows: np.ndarray | None = None) -> Relation:
    """The simplest known expression with exactly these neighborhoods (on the given rows only, if any).

    >>> identify(Window(lookback=2).on(9))
    Window(lookback=2)
    >>> identify((Causal() & Documents([4, 5])).on(9))
    Causal() & Documents(lengths=(4, 5))
    >>> identify(Neighborhoods.from_edges(3, 3, [(0, 2), (1, 0)]))
    Graph([(0, 2), (1, 0)], nodes=3)
    """
    name = named(bound, rows)
    if name is not None:
        return name
    if bound.queries == bound.keys and bound.num_edges <= 4 * bound.queries:
        return Graph.from_pairs(bound.edges(), nodes=bound.queries)
    return FromMask(bound.dense())


def named(bound: Neighborhoods, rows: np.ndarray | None = None) -> Relation | None:
    """The first candidate with exactly these neighborhoods; None where only a list of entries has them."""
    wanted = bound if rows is None else bound.restrict(rows)
    for candidate in candidates(bound, rows):
        found = at_size(candidate, bound.queries, bound.keys)
        if found is not None and (found if rows is None else found.restrict(rows)) == wanted:
            return candidate
    return None


def at_size(relation: Relation | Neighborhoods, queries: int, keys: int) -> Neighborhoods | None:
    """A relation bound to a size, or None where it does not fit."""
    try:
        return relation.on(queries, keys)
    except ErlangenError:
        return None


def describe(support: Support, rows: list[np.ndarray | None] | None = None) -> Relation | PerHead | Batch:
    """One expression for a call: a `PerHead` where heads differ, a `Batch` where items differ.

    >>> describe(Support((tuple(Window(lookback=p).on(5) for p in (1, 2)),)))
    PerHead([Window(lookback=1), Window(lookback=2)])
    """
    names: dict[tuple[int, int], Relation] = {}
    for bound, kept, places in support.parts(rows):
        names |= dict.fromkeys(places, identify(bound, kept))
    items: list[Relation | PerHead] = []
    for item in range(support.batch):
        relations = [names[item, head] for head in range(support.heads)]
        items.append(relations[0] if len(set(relations)) == 1 else PerHead(relations))
    return items[0] if len(set(items)) == 1 else Batch(items)


def candidates(bound: Neighborhoods, rows: np.ndarray | None) -> Iterator[Relation]:
    """What these neighborhoods may be, simplest first, read off them (off the given rows only, if any)."""
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
    window = _window(offsets)
    yield from (~Identity(), Causal() & ~Identity(), window, window & ~Identity())
    if bound.queries != n:
        return
    first = bound.row(0)
    yield Prefix(first[0][1] if first else 0)
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
    window = _window(edges[:, 0] - edges[:, 1])
    parts: list[Relation] = [Documents(lengths)]
    if len(set(lengths[:-1])) == 1 and lengths[-1] <= lengths[0]:
        parts.insert(0, Blocks(lengths[0]))
    for part in parts:
        yield from (part, Causal() & part, window & part)


def _dilations(offsets: np.ndarray) -> Iterator[Relation]:
    step = int(np.gcd.reduce(np.abs(offsets)))
    if step > 1:
        yield from (Dilated(step), Causal() & Dilated(step), _window(offsets) & Dilated(step))


def _window(offsets: np.ndarray) -> Window:
    """The smallest window with these numbers of positions back."""
    return Window(max(int(offsets.max()), 0), max(int(-offsets.min()), 0))


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
            yield _window(offsets[rest]) | every
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

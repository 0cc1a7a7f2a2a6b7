"""The kinds of the taxonomy as claims with evidence."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from erlangen.relations import Neighborhoods
from erlangen.taxonomy import ten_properties as properties
from erlangen.taxonomy.certificates import Certificate, encode
from erlangen.taxonomy.orders_and_forests import ranks, topological, without_loops
from erlangen.taxonomy.ranges import (
    extreme,
    first_beyond,
    first_edge,
    first_missing,
    positions_read,
)


def full(bound: Neighborhoods) -> Certificate:
    """Everybody reads everybody. Counterexample: a missing pair.

    >>> full(Neighborhoods.loops(2)).data
    {'missing': [0, 1]}
    """
    if bound.num_edges == bound.queries**2:
        return Certificate("full", True, {}, bound.queries)
    return Certificate("full", False, {"missing": list(first_missing(bound))}, bound.queries)


def empty(bound: Neighborhoods) -> Certificate:
    """Nobody reads anything. Counterexample: an edge.

    >>> empty(Neighborhoods.loops(2)).data
    {'present': [0, 0]}
    """
    if bound.num_edges == 0:
        return Certificate("empty", True, {}, bound.queries)
    return Certificate("empty", False, {"present": list(first_edge(bound))}, bound.queries)


def identity(bound: Neighborhoods) -> Certificate:
    """Each reads itself alone. Counterexample: a pair of different positions, or a missing loop.

    >>> identity(Neighborhoods.from_edges(2, 2, [(0, 0)])).data
    {'missing': [1, 1]}
    """
    alone = Neighborhoods.loops(bound.queries)
    if bound == alone:
        return Certificate("identity", True, {}, bound.queries)
    beside = first_beyond(bound, alone)
    if beside is not None:
        return Certificate("identity", False, {"present": list(beside)}, bound.queries)
    return _refuse("identity", bound.queries, missing=[properties.reflexive(bound).data["missing"]] * 2)


def total_order(bound: Neighborhoods) -> Certificate | None:
    """Each reads itself and everything before it in some order. Proof: the order, least first.

    Counterexample: one of reflexive, antisymmetric, transitive, total fails, with its certificate.

    >>> total_order(Neighborhoods.from_edges(2, 2, [(0, 0), (0, 1), (1, 1)])).data
    {'order': 'descending'}
    """
    order = properties.total_order(bound)
    if order is not None:
        return Certificate("total-order", True, {"order": encode(order, bound.queries)}, bound.queries)
    for name in ("reflexive", "antisymmetric", "total", "transitive"):
        law = properties.PROPERTIES[name](bound)
        if law is not None and not law.value:
            return Certificate("total-order", False, {"fails": law.as_dict()}, bound.queries)
    return None


def previous(bound: Neighborhoods) -> Certificate:
    """W_p in some order: each reads itself and the p before it. Proof: the order and p.

    For p >= 1 consecutive elements are related, so the topological order is unique: it is the only candidate.
    Counterexamples: a missing loop; a cycle; an edge although the order is not unique; or, in the unique
    order, a pair that is present although a nearer one is missing.

    >>> previous(Neighborhoods.from_edges(3, 3, [(0, 0), (1, 1), (2, 2), (1, 2), (0, 1)])).data
    {'order': 'descending', 'p': 1}
    """
    n = bound.queries

    refuse = partial(_refuse, "previous", n)
    loop = properties.reflexive(bound)
    if not loop.value:
        return refuse(missing=[loop.data["missing"]] * 2)
    if bound.num_edges == n:
        return Certificate("previous", True, {"order": "ascending", "p": 0}, n)
    order, cycle = topological(bound)
    if order is None:
        return refuse(cycle=cycle)
    free = np.flatnonzero(~bound.contains(order[1:], order[:-1]))
    if free.size:
        edge = list(first_edge(without_loops(bound)))
        return refuse(order=encode(order, bound.queries), at=int(free[0]), present=edge)
    place, rows = ranks(order), bound.run_rows
    gaps = place[rows] - extreme(place, bound.starts, bound.stops, np.minimum)
    p = int(gaps.max())
    if bound.num_edges == n * (p + 1) - p * (p + 1) // 2:  # within W_p and as large as W_p
        return Certificate("previous", True, {"order": encode(order, bound.queries), "p": p}, n)
    run = int(gaps.argmax())
    keys = np.arange(bound.starts[run], bound.stops[run])
    present = [int(rows[run]), int(keys[place[keys].argmin()])]
    # Some row has fewer than its min(t, p) + 1 keys: one of the p before it is missing.
    short = int(order[np.flatnonzero(bound.degrees[order] < np.minimum(np.arange(n), p) + 1)[0]])
    window = order[max(0, int(place[short]) - p) : int(place[short])]
    missing = int(window[~bound.contains(short, window)][0])
    return refuse(order=encode(order, bound.queries), present=present, missing=[short, missing])


def bipartite(bound: Neighborhoods) -> Certificate:
    """R = Y x X for a split of the positions into X (read) and Y (readers), neither empty.

    Proof: the members of X. Counterexamples: no edges; a position that neither reads nor is read; a position
    that does both (i reads v reads j); a reader i and a read j that are not related.

    >>> bipartite(Neighborhoods.from_edges(3, 3, [(0, 2), (1, 2)])).data
    {'encoder': [2]}
    """
    n = bound.queries

    refuse = partial(_refuse, "bipartite", n)
    if bound.num_edges == 0:
        return refuse(empty=True)
    reads = bound.degrees > 0
    is_read = positions_read(bound)
    idle, both = np.flatnonzero(~reads & ~is_read), np.flatnonzero(reads & is_read)
    if idle.size:
        return refuse(idle=int(idle[0]))
    if both.size:
        v = int(both[0])
        return refuse(walk=[_reader(bound, v), v, bound.row(v)[0][0]])
    encoder = np.flatnonzero(is_read)
    short = np.flatnonzero(reads & (bound.degrees < encoder.size))
    if short.size:
        i = int(short[0])
        j = int(encoder[~bound.contains(i, encoder)][0])
        return refuse(missing=[i, j], reads=[i, bound.row(i)[0][0]], read=[_reader(bound, j), j])
    return Certificate("bipartite", True, {"encoder": encode(encoder, n)}, n)


def _reader(bound: Neighborhoods, key: int) -> int:
    run = int(np.flatnonzero((bound.starts <= key) & (key < bound.stops))[0])
    return int(np.searchsorted(bound.indptr, run, side="right")) - 1


def _refuse(claim: str, n: int, **data: object) -> Certificate:
    return Certificate(claim, False, data, n)


KINDS: dict[str, Callable[[Neighborhoods], Certificate | None]] = {
    "empty": empty,
    "full": full,
    "identity": identity,
    "bipartite": bipartite,
    "total-order": total_order,
    "previous": previous,
}
"""Every decidable kind, in order of precedence: on small n a relation may be of several kinds at once."""

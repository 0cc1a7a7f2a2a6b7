"""What each claim of a certificate needs, checked from its definition on bound neighborhoods.

No code is shared with the classifier but the form of certificates; a test reads the imports. Runs are looked
at one by one up to `FEW_RUNS` and by a tree beyond.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from erlangen.errors import DataError
from erlangen.relations import Neighborhoods
from erlangen.taxonomy.certificates import (
    MAX_SEARCH,
    Certificate,
    Malformed,
    array_of,
    fields_of,
    only,
    places,
    position,
    positions,
)
from erlangen.taxonomy.count_automorphisms import full_order


def readable(certificate: Certificate) -> bool:
    """Whether the claim is known and everything beside the data is of the right kind."""
    return (
        isinstance(certificate.claim, str)
        and certificate.claim in CLAIMS
        and isinstance(certificate.data, Mapping)
        and type(certificate.value) is type(certificate.every_size) is bool
        and type(certificate.size) is int
        and certificate.size >= 0
    )


def check(certificate: Certificate, bound: Neighborhoods) -> bool:
    """Whether a certificate proves its claim about these neighborhoods; nothing is repaired."""
    n, size = bound.queries, certificate.size
    if not readable(certificate) or n != bound.keys or n < size or (n > size and not certificate.every_size):
        return False
    try:
        return bool(CLAIMS[certificate.claim](bound, certificate.value, dict(certificate.data)))
    except (DataError, Malformed):
        return False


FEW_RUNS = 4_096
"""Up to this many runs each is looked at by itself."""


def _among(values: np.ndarray, bound: Neighborhoods, reduce: np.ufunc) -> np.ndarray:
    """`reduce` (np.maximum or np.minimum) of the values of each run's keys.

    Beyond `FEW_RUNS` by a segment tree: node k stands for the nodes 2k and 2k + 1, the leaves for values.

    >>> bound = Neighborhoods.from_edges(2, 3, [(0, 0), (0, 1), (1, 2)])
    >>> _among(np.array([3, 1, 2]), bound, np.minimum)
    array([1, 2])
    """
    if bound.starts.size <= FEW_RUNS:
        runs = zip(bound.starts.tolist(), bound.stops.tolist(), strict=True)
        return np.array([reduce.reduce(values[start:stop]) for start, stop in runs], np.int64)
    size = 1 << (values.size - 1).bit_length()
    tree = np.full(2 * size, values[0], np.int64)
    tree[size : size + values.size] = values
    level = size
    while level > 1:
        tree[level // 2 : level] = reduce(tree[level : 2 * level : 2], tree[level + 1 : 2 * level : 2])
        level //= 2
    low, high = bound.starts + size, bound.stops + size
    found = values[bound.starts].astype(np.int64)
    while (open_ := low < high).any():
        left, right = open_ & (low % 2 == 1), open_ & (high % 2 == 1)
        found[left] = reduce(found[left], tree[low[left]])
        found[right] = reduce(found[right], tree[high[right] - 1])
        low, high = (low + left) // 2, (high - right) // 2
    return found


def _ordered(bound: Neighborhoods, place: np.ndarray) -> bool:
    """Every key but the query itself comes before its query."""
    strict = bound - Neighborhoods.loops(bound.queries)
    return bool((_among(place, strict, np.maximum) < place[strict.run_rows]).all())


# ------------------------------------------------------------------ properties


def _reflexive(bound: Neighborhoods, value: bool, data: dict[str, Any]) -> bool:
    n = bound.queries
    if value:
        fields_of(data)
        at = np.arange(n)
        return bool(bound.contains(at, at).all())
    i = position(only(data, "missing"), n)
    return not bound.contains(i, i)


def _symmetric(bound: Neighborhoods, value: bool, data: dict[str, Any]) -> bool:
    if value:
        fields_of(data)
        return bound == bound.T
    i, j = positions(only(data, "present"), bound.queries, 2)
    return bool(bound.contains(i, j)) and not bound.contains(j, i)


def _antisymmetric(bound: Neighborhoods, value: bool, data: dict[str, Any]) -> bool:
    if value:
        fields_of(data)
        return (bound & bound.T) <= Neighborhoods.loops(bound.queries)
    i, j = positions(only(data, "pair"), bound.queries, 2)
    return i != j and bool(bound.contains(i, j)) and bool(bound.contains(j, i))


def _transitive(bound: Neighborhoods, value: bool, data: dict[str, Any]) -> bool:
    n = bound.queries
    if value and data:
        return _total_order(bound, True, data)
    if value:
        # Without two steps in a row nothing can fail, and nothing is missing from all pairs.
        two_steps = ((bound.T.degrees > 0) & (bound.degrees > 0)).any()
        return not two_steps or bound.num_edges == n * n or bound.compose(bound) <= bound
    i, j, k = positions(only(data, "triple"), n, 3)
    return bool(bound.contains(i, j)) and bool(bound.contains(j, k)) and not bound.contains(i, k)


def _total(bound: Neighborhoods, value: bool, data: dict[str, Any]) -> bool:
    n = bound.queries
    if value:
        fields_of(data)
        return (bound | bound.T).num_edges == n * n
    i, j = positions(only(data, "pair"), n, 2)
    return not bound.contains(i, j) and not bound.contains(j, i)


def _cycle(bound: Neighborhoods, value: Any) -> bool:
    cycle = positions(value, bound.queries)
    following = np.roll(cycle, -1)
    distinct = len(cycle) >= 2 and len(set(cycle)) == len(cycle)
    return distinct and bool(bound.contains(np.array(cycle), following).all())


def _acyclic(bound: Neighborhoods, value: bool, data: dict[str, Any]) -> bool:
    if value:
        return _ordered(bound, places(only(data, "order"), bound.queries))
    return _cycle(bound, only(data, "cycle"))


def _unique_order(bound: Neighborhoods, value: bool, data: dict[str, Any]) -> bool:
    n = bound.queries
    if not value and "cycle" in data:
        return _cycle(bound, only(data, "cycle"))
    if value:
        place = places(only(data, "order"), n)
        order = np.argsort(place)
        return _ordered(bound, place) and bool(bound.contains(order[1:], order[:-1]).all())
    order, at = fields_of(data, "order", "at")
    place = places(order, n)
    at = position(at, n - 1)
    order = np.argsort(place)
    return _ordered(bound, place) and not bound.contains(int(order[at + 1]), int(order[at]))


def _toeplitz(bound: Neighborhoods, value: bool, data: dict[str, Any]) -> bool:
    n = bound.queries
    if not value:
        i, j = positions(only(data, "pair"), n - 1, 2)
        return bool(bound.contains(i, j)) != bool(bound.contains(i + 1, j + 1))
    fields_of(data)
    if n < 2:
        return True
    here, there = np.arange(n - 1), np.arange(1, n)
    return bound.restrict(here, keys=here) == bound.restrict(there, keys=there)


def _bipartition(bound: Neighborhoods, value: bool, data: dict[str, Any]) -> bool:
    n = bound.queries
    if value:
        sides = array_of(only(data, "sides"), n, n)
        low, high = _among(sides, bound, np.minimum), _among(sides, bound, np.maximum)
        other = 1 - sides[bound.run_rows]
        return bool(np.isin(sides, (0, 1)).all() and (low == other).all() and (high == other).all())
    walk = positions(only(data, "odd_cycle"), n)
    if len(walk) % 2 == 0:
        return False
    here, there = np.array(walk), np.roll(walk, -1)
    return bool((bound.contains(here, there) | bound.contains(there, here)).all())


def _connected(bound: Neighborhoods, value: bool, data: dict[str, Any]) -> bool:
    n = bound.queries
    if value:
        parents = array_of(only(data, "parents"), n, n)
        if n == 0:
            return True
        roots = np.flatnonzero(parents == -1)
        if roots.size != 1 or (parents >= n).any() or (parents < -1).any():
            return False
        child = np.flatnonzero(parents >= 0)
        joined = bound.contains(child, parents[child]) | bound.contains(parents[child], child)
        above = np.where(parents < 0, np.arange(n), parents)
        for _ in range(n.bit_length() + 1):
            above = above[above]
        return bool(joined.all() and (above == roots[0]).all())
    part = array_of(only(data, "part"), n)
    if part.size == 0 or (part < 0).any() or (part >= n).any() or np.unique(part).size in (0, n):
        return False
    inside = np.zeros(n, np.int64)
    inside[part] = 1
    low, high = _among(inside, bound, np.minimum), _among(inside, bound, np.maximum)
    own = inside[bound.run_rows]
    return bool((low == own).all() and (high == own).all())


# ----------------------------------------------------------------------- kinds


def _full(bound: Neighborhoods, value: bool, data: dict[str, Any]) -> bool:
    if value:
        fields_of(data)
        return bound.num_edges == bound.queries**2
    i, j = positions(only(data, "missing"), bound.queries, 2)
    return not bound.contains(i, j)


def _empty(bound: Neighborhoods, value: bool, data: dict[str, Any]) -> bool:
    if value:
        fields_of(data)
        return bound.num_edges == 0
    i, j = positions(only(data, "present"), bound.queries, 2)
    return bool(bound.contains(i, j))


def _identity(bound: Neighborhoods, value: bool, data: dict[str, Any]) -> bool:
    n = bound.queries
    if value:
        fields_of(data)
        return bound == Neighborhoods.loops(n)
    if "present" in data:
        i, j = positions(only(data, "present"), n, 2)
        return i != j and bool(bound.contains(i, j))
    i, j = positions(only(data, "missing"), n, 2)
    return i == j and not bound.contains(i, j)


def _total_order(bound: Neighborhoods, value: bool, data: dict[str, Any]) -> bool:
    n = bound.queries
    if value:
        # Nothing but the past, and n (n + 1) / 2 pairs, which is all of the past and every loop.
        return _ordered(bound, places(only(data, "order"), n)) and bound.num_edges == n * (n + 1) // 2
    [law] = fields_of(data, "fails")
    failed = Certificate.from_dict(law)
    laws = ("reflexive", "antisymmetric", "transitive", "total")
    return failed.claim in laws and not failed.value and check(failed, bound)


def _previous(bound: Neighborhoods, value: bool, data: dict[str, Any]) -> bool:
    n = bound.queries
    if value:
        order, p = fields_of(data, "order", "p")
        place = places(order, n)
        if type(p) is not int or p < 0:
            return False
        p = min(p, max(n - 1, 0))
        rows = bound.run_rows
        nearest = place[rows] - _among(place, bound, np.maximum)
        farthest = place[rows] - _among(place, bound, np.minimum)
        within = bool((nearest >= 0).all() and (farthest <= p).all())
        return within and bound.num_edges == n * (p + 1) - p * (p + 1) // 2
    if set(data) == {"missing"}:  # W_p reads itself
        i, j = positions(data["missing"], n, 2)
        return i == j and not bound.contains(i, i)
    if set(data) == {"cycle"}:  # W_p has none
        return _cycle(bound, data["cycle"])
    if "at" in data:  # only W_0, which has loops alone, has several orders
        order, at, present = fields_of(data, "order", "at", "present")
        i, j = positions(present, n, 2)
        several = _unique_order(bound, False, {"order": order, "at": at})
        return several and i != j and bool(bound.contains(i, j))
    order, present, missing = fields_of(data, "order", "present", "missing")
    place = places(order, n)
    (i, j), (k, m) = positions(present, n, 2), positions(missing, n, 2)
    forced = _unique_order(bound, True, {"order": order})
    nearer = 0 <= place[k] - place[m] <= place[i] - place[j]
    return forced and nearer and bool(bound.contains(i, j)) and not bound.contains(k, m)


def _block(bound: Neighborhoods, encoder: Any) -> tuple[int, int] | None:
    """The sizes of X and Y when R = Y x X with X the given positions, neither empty; otherwise None."""
    n = bound.queries
    members = array_of(encoder, n)
    if members.size == 0 or (members < 0).any() or (members >= n).any():
        return None
    if np.unique(members).size != members.size or members.size == n:
        return None
    inside = np.zeros(n, np.int64)
    inside[members] = 1
    all_read = (_among(inside, bound, np.minimum) == 1).all()
    all_readers = (inside[bound.run_rows] == 0).all()
    sizes = members.size, n - members.size
    return sizes if all_read and all_readers and bound.num_edges == sizes[0] * sizes[1] else None


def _bipartite(bound: Neighborhoods, value: bool, data: dict[str, Any]) -> bool:
    n = bound.queries
    if value:
        return _block(bound, only(data, "encoder")) is not None
    if set(data) == {"empty"}:
        return data["empty"] is True and bound.num_edges == 0
    if set(data) == {"idle"}:
        v = position(data["idle"], n)
        readers = (bound.starts <= v) & (v < bound.stops)
        return bound.degrees[v] == 0 and not readers.any()
    if set(data) == {"walk"}:
        i, v, j = positions(data["walk"], n, 3)
        return bool(bound.contains(i, v)) and bool(bound.contains(v, j))
    missing, reads, read = (positions(p, n, 2) for p in fields_of(data, "missing", "reads", "read"))
    i, j = missing
    known = (
        reads[0] == i
        and read[1] == j
        and bool(bound.contains(i, reads[1]))
        and bool(bound.contains(read[0], j))
    )
    return known and not bound.contains(i, j)


# -------------------------------------------------------------------- symmetry


def _symmetry(bound: Neighborhoods, value: bool, data: dict[str, Any]) -> bool:
    """Aut(R) has exactly the stated order, by one of four proofs; there is no certificate that it has not."""
    n = bound.queries
    proof = data.get("proof")
    if not value:
        return False
    if proof == "unique-order":
        # An automorphism takes topological orders to topological orders; if there is one, it is the identity.
        _, order, topological = fields_of(data, "proof", "order", "topological")
        return order == "1" and _unique_order(bound, True, {"order": topological})
    if proof == "indiscernible":
        _, order = fields_of(data, "proof", "order")
        at = np.arange(n)
        looped = int(bound.contains(at, at).sum())
        uniform = looped in (0, n) and bound.num_edges - looped in (0, n * (n - 1))
        return uniform and order == {"factorials": [n]}
    if proof == "blocks":
        _, order, encoder = fields_of(data, "proof", "order", "encoder")
        sizes = _block(bound, encoder)
        return sizes is not None and order == {"factorials": list(sizes)}
    _, order, generators = fields_of(data, "proof", "order", "generators")
    if proof != "search" or n > MAX_SEARCH or not isinstance(generators, list) or len(generators) > n * n:
        return False
    permutations = [np.argsort(places(g, n)) for g in generators]
    found = full_order(bound.dense(), permutations)
    return found is not None and order == str(found)


CLAIMS: dict[str, Callable[[Neighborhoods, bool, dict[str, Any]], bool]] = {
    "reflexive": _reflexive,
    "symmetric": _symmetric,
    "antisymmetric": _antisymmetric,
    "transitive": _transitive,
    "total": _total,
    "acyclic": _acyclic,
    "unique_topological_order": _unique_order,
    "toeplitz": _toeplitz,
    "bipartition": _bipartition,
    "connected": _connected,
    "full": _full,
    "empty": _empty,
    "identity": _identity,
    "total-order": _total_order,
    "previous": _previous,
    "bipartite": _bipartite,
    "symmetry": _symmetry,
}

"""Every closed form against the general computation, and against brute force while that is possible."""

from __future__ import annotations

from itertools import product
from math import factorial

import numpy as np
import pytest

from erlangen.errors import ErlangenError
from erlangen.relations import (
    Bipartite,
    Blocks,
    Causal,
    Dilated,
    Documents,
    Empty,
    Full,
    Global,
    Grid,
    Identity,
    Padding,
    PerHead,
    Prefix,
    Ring,
    Window,
)
from erlangen.symmetry import closed_forms, stack_symmetry, symmetry
from erlangen.symmetry.automorphisms import automorphisms as computed
from erlangen.symmetry.moves import keeps
from symmetry_brute import automorphisms, every_permutation

TESTED = range(8)


def families(n: int):
    yield from (Full(), Empty(), Identity(), Causal(), Causal().T, ~Causal())
    yield from (Causal() - Identity(), ~Causal() | Identity(), Full() - Identity())
    for a, b in product(range(n + 1), repeat=2):
        yield Window(a, b)
        yield Ring(a, b)
        yield Global(keys=range(a), queries=range(b))
        yield Global(keys=range(a), queries=range(b, n))
    for a in range(n + 2):
        yield from (Prefix(a), Dilated(a + 1), Blocks(a + 1), ~Blocks(a + 1))
        yield from (Blocks(a + 1) & Causal(), Causal().T & Dilated(a + 1), Window(1) & Blocks(a + 1))
        yield from (Window(0, 2) & Blocks(a + 1), Ring(a, 1) - Identity())
    for a in range(n + 1):
        yield from (Padding(a), Padding(a, side="left"), Bipartite(a, n - a), Bipartite(a, n - a).T)


def agree(relation, n):
    known, bound = symmetry(relation, n), relation.on(n)
    assert known.evidence == "symbolic", relation
    general = computed([bound], np.zeros(n, np.int64), budget=60.0)
    assert (known.order, known.name) == (general.order, general.name), (relation, n)
    assert np.array_equal(known.orbit_of, general.orbit_of), (relation, n)
    assert all(keeps(bound, move) for move in known.moves), (relation, n)
    if n <= 4:
        kept = {tuple(e) for e in automorphisms(bound.dense()).tolist()}
        assert known.order == len(kept)
        assert {tuple(e.tolist()) for e in known.elements()} == kept, (relation, n)
        for image in every_permutation(n):
            assert known.contains(image) == (tuple(image.tolist()) in kept), (relation, n)
    elif n == 5:
        assert known.order == len(automorphisms(bound.dense())), (relation, n)


@pytest.mark.parametrize("n", TESTED)
def test_families(n):
    for relation in dict.fromkeys(families(n)):
        agree(relation, n)


def test_documents():
    for lengths in product(range(4), repeat=3):
        agree(Documents(lengths), sum(lengths))
        agree(Documents(lengths) & Causal(), sum(lengths))


@pytest.mark.parametrize("n", [9, 10, 12])
def test_rings(n):
    for back, ahead in product(range(n), repeat=2):
        agree(Ring(back, ahead), n)


@pytest.mark.parametrize("queries", range(5))
@pytest.mark.parametrize("keys", range(5))
def test_apart(queries, keys):
    for relation in (Full(), Empty(), Causal(), ~Causal()):
        if isinstance(relation, Causal) and queries > keys:
            continue
        known = symmetry(relation, queries, keys=keys, joint=False)
        general = symmetry(relation.on(queries, keys), joint=False)
        assert (known.order, known.name) == (general.order, general.name)
        assert np.array_equal(known.orbit_of, general.orbit_of)


def test_the_groups_of_the_theory():
    def order(relation, n):
        return symmetry(relation, n).order

    for n in range(2, 8):
        assert order(Full(), n) == order(Identity(), n) == order(Empty(), n) == factorial(n)
        assert order(Full() - Identity(), n) == factorial(n)
        assert order(Causal(), n) == 1
        for p in range(1, n):
            assert order(Window(p), n) == 1
        for p in range(n + 1):
            assert order(Prefix(p), n) == factorial(p)
        for p in range(1, n - 1):
            assert symmetry(Ring(p, 0), n).name == f"C{n}"
        for w in range(n):
            u = 2 * w + 2 - n
            expected = factorial(n) if w in (0, n - 1) else 2 * factorial(u) if u >= 1 else 2
            assert order(Window(w, w), n) == expected
    assert symmetry(Ring(2, 2), 6).name == "S2 wr S3"
    assert order(Ring(2, 2), 6) == 48
    assert symmetry(Ring(1, 1), 8).name == "D8"
    assert symmetry(Bipartite(3, 4)).name == "S3 x S4"
    assert symmetry(Bipartite(3, 3)).order == 36
    assert symmetry(Documents([3] * 4)).name == "S3 wr S4"
    assert symmetry(Documents([5] * 4) & Causal()).name == "S4"
    assert symmetry(Documents([2, 2, 3]) | Empty()).name == "(S2 wr S2) x S3"
    assert symmetry(Grid((3, 3), 1)).name == "D4"


def test_order_of_all_relations_with_the_full_group():
    """Aut = S_n for exactly four relations: empty, identity, full, full minus identity."""
    n = 3
    found = []
    for bits in range(2 ** (n * n)):
        mask = (bits >> np.arange(n * n) & 1).astype(bool).reshape(n, n)
        if len(automorphisms(mask)) == factorial(n):
            found.append(mask)
    full, loops = np.ones((n, n), bool), np.eye(n, dtype=bool)
    assert len(found) == 4
    assert {m.tobytes() for m in found} == {m.tobytes() for m in (~full, loops, full, full & ~loops)}


def test_a_million_positions():
    n = 1_000_000
    assert symmetry(Causal(), n).name == symmetry(Window(3), n).name == "1"
    assert str(symmetry(Full(), n)) == "S1000000, order 1000000!"
    assert symmetry(Bipartite(n // 2, n // 2)).name == "S500000 x S500000"
    assert symmetry(Documents([1000] * 1000)).name == "S1000 wr S1000"
    ring = symmetry(Ring(3, 3), n)
    assert ring.contains(ring.generators[0])
    assert not ring.contains(np.random.default_rng(0).permutation(n))
    assert [len(orbit) for orbit in ring.orbits] == [n]


def test_heads_of_known_families():
    assert symmetry(PerHead([Ring(1, 1), Ring(1, 0)]), 7).name == "C7"
    assert symmetry(PerHead([Full(), Blocks(2)]), 6).name == "S2 wr S3"
    assert symmetry(PerHead([Full(), Identity(), Full() - Identity()]), 5).name == "S5"


def test_known_members_of_a_family_need_no_search():
    n = 1_000_000
    assert symmetry(PerHead([Full(), Full(), Identity()]), n).name == "S1000000"
    assert symmetry(PerHead([Full(), Causal()]), n).trivial
    assert symmetry(PerHead([Full(), Ring(2, 2)]), n).name == "D1000000"
    assert stack_symmetry([Ring(1, 1), Full(), Ring(1, 1)], n).evidence == "symbolic"


def test_a_wrong_closed_form_is_refused(monkeypatch):
    monkeypatch.setattr(closed_forms, "_joint", lambda relation, n: closed_forms._classes([np.arange(n)], n))
    with pytest.raises(ErlangenError, match="not an automorphism"):
        symmetry(Causal(), 5)

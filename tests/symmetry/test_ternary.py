"""Groups of ternary relations against brute force over all permutations, from the definition."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import erlangen.symmetry.symmetries as module
from erlangen.errors import ErlangenError, ParameterError, SizeError
from erlangen.relations import (
    AffinePlane,
    Fano,
    Full,
    Graph,
    Grid,
    Lines,
    ProjectivePlane,
    Ring,
    Triangles,
    Triples,
    Window,
    WindowSquared,
)
from erlangen.symmetry import symmetry
from erlangen.symmetry.moves import Move


def brute(relation: Triples) -> set[tuple[int, ...]]:
    """All permutations that send triples to triples, by definition."""
    triples = {tuple(triple) for triple in relation.triples().tolist()}
    return {
        pi
        for pi in permutations(range(relation.n))
        if {(pi[i], pi[j], pi[last]) for i, j, last in triples} == triples
    }


@st.composite
def relations(draw, most: int = 5) -> Triples:
    n = draw(st.integers(0, most))
    triple = st.tuples(*[st.integers(0, max(n - 1, 0))] * 3)
    chosen = draw(st.lists(triple, max_size=12 if n else 0))
    # Orbits under a random permutation: groups of random triples alone would nearly all be trivial.
    pi = draw(st.permutations(range(n)))
    for _ in range(draw(st.integers(0, 3))):
        chosen += [tuple(pi[x] for x in triple) for triple in chosen[-12:]]
    return Triples(n, chosen)


@given(relations())
def test_the_group_is_what_brute_force_finds(relation):
    group, expected = symmetry(relation), brute(relation)
    assert group.order == len(expected)
    assert group.exact
    assert {tuple(element.tolist()) for element in group.elements()} == expected
    assert all(group.contains(pi) == (pi in expected) for pi in permutations(range(relation.n)))


def test_six_points():
    rng = np.random.default_rng(0)
    for _ in range(5):
        seed = [tuple(rng.integers(0, 6, 3).tolist()) for _ in range(2)]
        turned = [tuple((x + s) % 6 for x in triple) for triple in seed for s in range(6)]
        relation = Triples(6, turned)
        assert symmetry(relation).order == len(brute(relation))


@pytest.mark.parametrize(
    ("relation", "order"),
    [
        (Fano(), 168),
        (Lines(ProjectivePlane(3)), 5616),  # PGL(3, 3)
        (Lines(AffinePlane(3)), 432),  # AGL(2, 3)
        (Lines(AffinePlane(2)), 24),  # lines of two points: no triples at all
        (Triangles(Grid((2, 2), 1)), 24),
    ],
    ids=repr,
)
def test_known_groups(relation, order):
    group = symmetry(relation)
    assert (group.order, group.evidence) == (order, "exact at n")


def test_the_group_of_triples_lies_within_that_of_the_shadow():
    for relation in (Fano().on(), Triangles(Ring(1, 1)).on(5), Triples(4, [(0, 1, 2), (1, 0, 2)])):
        assert symmetry(relation).is_subgroup_of(symmetry(relation.shadow())) is True


@pytest.mark.parametrize(("back", "ahead"), [(0, 0), (2, 0), (1, 1), (1, 2), (3, 3)])
@pytest.mark.parametrize("n", [1, 4, 6])
def test_a_window_squared_has_the_group_of_its_window(back, ahead, n):
    relation = WindowSquared(back, ahead)
    assert symmetry(relation, n).order == len(brute(relation.on(n))) == symmetry(Window(back, ahead), n).order


def test_the_order_within_a_pair_counts():
    both = Triples(3, [(0, 1, 2), (0, 2, 1)])
    one = Triples(3, [(0, 1, 2)])
    assert (symmetry(both).order, symmetry(one).order) == (2, 1)


def test_no_unchecked_generator_is_returned(monkeypatch):
    real = module.automorphisms

    def wrong(relations, colors, budget):
        group = real(relations, colors, budget)
        swap = np.arange(group.degree)
        swap[:2] = [1, 0]
        object.__setattr__(group, "moves", (Move.of(swap),))
        return group

    monkeypatch.setattr(module, "automorphisms", wrong)
    with pytest.raises(ErlangenError, match="defect"):
        symmetry(Fano())


def test_what_is_refused():
    with pytest.raises(ParameterError, match="one permutation acts on all"):
        symmetry(Fano(), joint=False)
    with pytest.raises(SizeError, match="no size of its own"):
        symmetry(Triangles(Full()))
    with pytest.raises(SizeError, match="7 positions"):
        symmetry(Fano(), 6)


def test_all_binary_relations_embed_as_triples():
    """(i, j) -> (i, j, j) keeps the group, so both searches must agree."""
    for code in range(0, 512, 7):
        mask = (code >> np.arange(9) & 1).reshape(3, 3).astype(bool)
        pairs = [(i, j) for i, j in product(range(3), repeat=2) if mask[i, j]]
        assert (
            symmetry(Triples(3, [(i, j, j) for i, j in pairs])).order == symmetry(Graph(pairs, nodes=3)).order
        )

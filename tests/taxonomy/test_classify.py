"""Classification by what a relation is, at a size and for every size."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import taxonomy_brute as brute
from erlangen.errors import ParameterError, SizeError
from erlangen.relations import (
    Bipartite,
    Blocks,
    Causal,
    Dilated,
    Documents,
    Empty,
    FromMask,
    Full,
    Graph,
    Identity,
    Nearest,
    Neighborhoods,
    PerHead,
    Prefix,
    Ring,
    Window,
)
from erlangen.taxonomy import Certificate, classify, verify
from erlangen.taxonomy.ten_properties import PROPERTIES
from erlangen.taxonomy.verify import order_of
from erlangen.testing.strategies import relations

PRECEDENCE = ("empty", "full", "identity", "bipartite", "total-order", "previous")
masks = st.integers(0, 4).flatmap(lambda n: arrays(bool, (n, n)))


@given(masks)
@settings(deadline=None, max_examples=100)
def test_a_verdict_is_true_and_every_certificate_of_it_verifies(mask):
    bias = classify(FromMask(mask))
    bound = Neighborhoods.from_dense(mask)
    kinds = brute.kinds(mask)
    expected = [kind for kind in PRECEDENCE if kinds[kind]] or ["sparse"]
    assert list(bias.kinds) == expected
    assert bias.kind == expected[0]
    assert bias.properties == brute.properties(mask)
    assert bias.symmetry.order == brute.automorphisms(mask)
    assert order_of(bias.certificates["symmetry"].data) == bias.symmetry.order
    for proof in bias.certificates.values():
        assert verify(Certificate.from_json(proof.to_json()), bound), proof
    if bias.kind == "sparse":
        assert all(not bias.certificates[kind].value for kind in PRECEDENCE)
    assert json.loads(json.dumps(bias.as_dict()))["kind"] == bias.kind


@pytest.mark.parametrize(
    ("relation", "n", "kind", "p"),
    [
        (Window(lookback=8), 8, "total-order", None),
        (Window(lookback=7), 8, "total-order", None),
        (Window(lookback=6), 8, "previous", 6),
        (Window(lookback=0, lookahead=3), 8, "previous", 3),
        (Window(lookback=0), 8, "identity", None),
        (Window(lookback=9, lookahead=9), 8, "full", None),
        (FromMask(np.tri(5, dtype=bool)), None, "total-order", None),
        (Causal().T, 6, "total-order", None),
        (Prefix(0), 5, "total-order", None),
        (Blocks(1), 5, "identity", None),
        (Blocks(9), 5, "full", None),
        (Documents([5]), None, "full", None),
        (Ring(2, 2), 5, "full", None),
        (~Full(), 4, "empty", None),
        (Bipartite(2, 3).T, None, "bipartite", None),
        (Bipartite(0, 3), None, "empty", None),
        (Graph([(0, 2), (1, 2)], nodes=3), None, "bipartite", None),
        (Documents([2, 2]), None, "sparse", None),
        (Window(lookback=1, lookahead=1), 6, "sparse", None),
        (Causal() - Identity(), 5, "sparse", None),
        (Causal(), 0, "empty", None),
        (Causal(), 1, "full", None),
        (Full(), 1, "full", None),
        (Causal(), 2, "total-order", None),
    ],
)
def test_kinds(relation, n, kind, p):
    bias = classify(relation, n)
    assert (bias.kind, bias.p) == (kind, p)


def test_one_position_is_of_several_kinds_at_once():
    assert classify(Causal(), 1).kinds == ("full", "identity", "total-order", "previous")
    assert classify(Identity(), 0).kinds == ("empty", "full", "identity", "total-order", "previous")


def test_a_permuted_causal_mask_is_a_total_order_in_another_order():
    order = np.array([4, 0, 3, 1, 2])
    bound = Causal().on(5).permute(order)
    bias = classify(FromMask(bound.dense()))
    assert bias.kind == "total-order"
    assert bias.order is not None
    assert bias.order.tolist() == order.tolist()
    assert bias.certificates["total-order"].data == {"order": order.tolist()}
    assert verify(bias.certificates["total-order"], bound)
    assert not verify(bias.certificates["total-order"], Causal().on(5))


def test_a_permuted_window_is_previous_in_another_order():
    order = np.random.default_rng(0).permutation(12)
    bias = classify(Window(lookback=3).on(12).permute(order))
    assert (bias.kind, bias.p) == ("previous", 3)
    assert bias.order is not None
    assert bias.order.tolist() == order.tolist()


def test_data_dependent_relations_are_graphs():
    bias = classify(Nearest(2))
    assert bias.kind == "graph"
    assert bias.table1 is not None
    assert bias.table1.mechanism == "graph attention"
    assert set(bias.properties.values()) == {None}
    vectors = np.random.default_rng(0).normal(size=(6, 3))
    instance = classify(Nearest(2), vectors)
    assert instance.kind == "graph"
    bound = Nearest(2).on(vectors)
    assert None not in instance.properties.values()
    assert all(verify(proof, bound) for proof in instance.certificates.values())


# ---------------------------------------------------------------- for every size

FAMILIES = [
    Full(),
    Identity(),
    Empty(),
    Causal(),
    Causal().T,
    Window(lookback=0),
    *[Window(lookback=p) for p in (1, 2, 3)],
    *[Window(lookback=0, lookahead=p) for p in (1, 3)],
    *[Window(lookback=a, lookahead=b) for a, b in ((1, 1), (2, 2), (1, 2), (3, 1))],
]


@pytest.mark.parametrize("relation", FAMILIES, ids=repr)
def test_symbolic_verdicts_agree_with_the_computed_ones_wherever_they_are_stated(relation):
    bias = classify(relation)
    assert bias.evidence == "symbolic"
    assert bias.n is None
    assert bias.from_n is not None
    for n in range(bias.from_n, bias.from_n + 9):
        at, bound = classify(relation, n), relation.on(n)
        assert (bias.kind, bias.p) == (at.kind, at.p), n
        assert bias.properties == at.properties, n
        for proof in bias.certificates.values():
            assert verify(proof, bound), (proof, n)
        if bias.symmetry is not None:
            orders = {"S_n": brute_factorial(n), "Z2": 2, "1": 1}
            assert at.symmetry.order == orders[bias.symmetry.name], n


def brute_factorial(n):
    return 1 if n < 2 else n * brute_factorial(n - 1)


@pytest.mark.parametrize("relation", [r for r in FAMILIES if r not in (Empty(),)], ids=repr)
def test_a_symbolic_verdict_starts_where_it_must(relation):
    """One position less and the verdict is another: `from_n` is not too large by accident."""
    bias = classify(relation)
    n = bias.from_n - 1
    at = classify(relation, n)
    same = (bias.kind, bias.p) == (at.kind, at.p) and bias.properties == at.properties
    order = {"S_n": brute_factorial(n), "Z2": 2, "1": 1}.get(getattr(bias.symmetry, "name", ""))
    assert not (same and (order is None or order == at.symmetry.order))
    assert not any(verify(proof, relation.on(n)) for proof in bias.certificates.values())


def test_without_a_size_the_rest_is_an_honest_none():
    bias = classify(Causal() & Dilated(3))
    assert bias.kind is None
    assert bias.symmetry is None
    known = {name for name, value in bias.properties.items() if value is not None}
    assert known == {"reflexive", "antisymmetric", "transitive", "toeplitz"}
    for n in range(9):
        assert all(verify(proof, (Causal() & Dilated(3)).on(n)) for proof in bias.certificates.values())
    assert classify(Window(lookback=10**9)).kind is None


@given(st.integers(0, 7).flatmap(lambda n: st.tuples(relations(n), st.just(n))))
@settings(deadline=None, max_examples=80)
def test_laws_hold_at_every_size(drawn):
    relation, n = drawn
    bound = relation.on(n)
    for name in relation.laws:
        proof = PROPERTIES[name](bound)
        assert proof is not None
        assert proof.value, (name, relation)


# ------------------------------------------------------------------------- errors


def test_bad_input_is_refused():
    with pytest.raises(ParameterError, match="one relation"):
        classify(PerHead([Causal(), Full()]), 3)  # type: ignore[arg-type]
    with pytest.raises(SizeError, match="2 queries and 3 keys"):
        classify(FromMask(np.ones((2, 3), bool)))
    with pytest.raises(SizeError, match="bound already"):
        classify(Causal().on(4), 5)
    with pytest.raises(SizeError, match="7"):
        classify(Bipartite(3, 4), 8)


def test_huge_groups_are_not_written_out():
    record = classify(Full(), 100_000).as_dict()["symmetry"]
    assert record["order"] == "100000!"
    assert record["generators"] is None
    assert record["generators_omitted"] == 2

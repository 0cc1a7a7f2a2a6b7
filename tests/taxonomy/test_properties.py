"""Every property and kind against its definition, with certificates that a separate checker accepts."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import taxonomy_brute as brute
from erlangen.relations import Causal, Documents, Full, Neighborhoods, Window
from erlangen.taxonomy import Certificate, verify
from erlangen.taxonomy.kinds import KINDS
from erlangen.taxonomy.ten_properties import PROPERTIES

masks = st.integers(0, 5).flatmap(lambda n: arrays(bool, (n, n)))
orders = st.integers(1, 6).flatmap(lambda n: st.permutations(range(n)))
CLAIMS = {**PROPERTIES, **KINDS}


def agree(mask):
    bound = Neighborhoods.from_dense(mask)
    truth = {**brute.properties(mask), **brute.kinds(mask)}
    for name, decide in CLAIMS.items():
        proof = decide(bound)
        assert proof is not None, name
        assert proof.value == truth[name], (name, mask)
        assert verify(proof, bound), (name, proof, mask)
        assert verify(Certificate.from_json(proof.to_json()), bound), name


@given(masks)
@settings(deadline=None, max_examples=200)
def test_every_claim_is_what_the_definition_says(mask):
    agree(mask)


def test_every_relation_on_up_to_three_positions():
    for n in range(4):
        for bits in product((False, True), repeat=n * n):
            agree(np.array(bits, bool).reshape(n, n))


@given(orders, st.data())
@settings(deadline=None, max_examples=80)
def test_windows_and_orders_in_any_order_are_recognised(order, data):
    p = data.draw(st.integers(0, len(order)))
    mask = brute.window(order, p)
    flip = data.draw(st.none() | st.tuples(*[st.integers(0, len(order) - 1)] * 2))
    if flip is not None:
        mask[flip] ^= True
    agree(mask)


@given(st.integers(1, 5).flatmap(lambda n: arrays(bool, n)), st.data())
@settings(deadline=None, max_examples=60)
def test_blocks_are_recognised_wherever_they_lie(encoder, data):
    mask = ~encoder[:, None] & encoder[None, :]
    n = len(encoder)
    flip = data.draw(st.none() | st.tuples(*[st.integers(0, n - 1)] * 2))
    if flip is not None:
        mask[flip] ^= True
    agree(mask)


@pytest.mark.parametrize("n", [100_000])
@pytest.mark.parametrize(
    ("relation", "kind"),
    [
        (Causal(), "total-order"),
        (Causal().T, "total-order"),
        (Window(lookback=100), "previous"),
        (Full(), "full"),
    ],
)
def test_structured_relations_are_decided_on_runs(relation, kind, n):
    bound = relation.on(n)
    proof = KINDS[kind](bound)
    assert proof is not None
    assert proof.value
    assert len(proof.to_json()) < 300
    assert verify(proof, bound)
    for decide in PROPERTIES.values():
        proof = decide(bound)
        assert proof is not None
        assert verify(proof, bound), proof


def test_a_large_shuffled_window_is_recognised_in_its_own_order():
    order = np.random.default_rng(0).permutation(3000)
    bound = Window(lookback=4).on(3000).permute(order)
    proof = KINDS["previous"](bound)
    assert proof is not None
    assert proof.data["p"] == 4
    assert proof.data["order"] == order.tolist()
    assert verify(proof, bound)


def test_cycles_and_trees_of_large_sparse_graphs():
    rng = np.random.default_rng(1)
    edges = rng.integers(0, 20_000, (60_000, 2))
    for pairs in (edges, edges[edges[:, 0] > edges[:, 1]], edges[edges[:, 0] < edges[:, 1]]):
        bound = Neighborhoods.from_edges(20_000, 20_000, pairs)
        for name, decide in PROPERTIES.items():
            proof = decide(bound)
            assert proof is not None, name
            assert verify(proof, bound), name


def test_documents_are_transitive_by_composition():
    bound = Documents([700] * 30).on(21_000)
    proof = PROPERTIES["transitive"](bound)
    assert proof == Certificate("transitive", True, {}, 21_000)
    assert verify(proof, bound)


def test_what_would_not_fit_into_memory_is_left_open():
    n = 60_000
    every_other = Neighborhoods.from_bands(n, np.zeros(n, np.int64), np.arange(n) % 2 * n)
    assert PROPERTIES["symmetric"](every_other) is None
    assert PROPERTIES["connected"](every_other) is None

"""Products and closures on bits: the same sets as on runs, and as the definition says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import erlangen as er
from erlangen.errors import SizeError
from erlangen.relations import bitrows, expressions, neighborhoods
from erlangen.relations.neighborhoods import Neighborhoods


@st.composite
def masks(draw, queries=None, keys=None):
    queries = draw(st.integers(0, 9)) if queries is None else queries
    keys = draw(st.sampled_from([0, 1, 5, 63, 64, 65, 130])) if keys is None else keys
    seed, share = draw(st.integers(0, 2**32 - 1)), draw(st.sampled_from([0.05, 0.3, 0.8]))
    return np.random.default_rng(seed).random((queries, keys)) < share


@given(masks(), st.data())
@settings(max_examples=100, deadline=None)
def test_bits_are_the_same_rows(mask, data):
    rows = Neighborhoods.from_dense(mask)
    assert bitrows.unpack(bitrows.pack(rows), rows) == rows
    other = Neighborhoods.from_dense(data.draw(masks(queries=rows.keys)))
    assert bitrows.compose(rows, other) == rows.compose(other)
    assert np.array_equal(rows.compose(other).dense(), mask.astype(int) @ other.dense().astype(int) > 0)


def closed(mask):
    reached = mask.copy()
    for middle in range(len(mask)):
        reached |= reached[:, [middle]] & reached[[middle]]
    return reached


@given(st.integers(0, 70).flatmap(lambda n: masks(n, n)) | st.integers(0, 9).flatmap(lambda n: masks(n, n)))
@settings(max_examples=150, deadline=None)
def test_closures_on_bits_are_those_of_the_definition(mask):
    share = np.random.default_rng(mask.sum()).random(mask.shape) < 3 / max(len(mask), 1)
    for one in (mask, mask & share):
        assert np.array_equal(bitrows.close(Neighborhoods.from_dense(one)).dense(), closed(one))


@pytest.mark.parametrize(
    "relation", [er.Random(3, 1), er.Random(1, 2), er.Dilated(3) - er.Causal(), er.Ring(2, 0)]
)
@pytest.mark.parametrize("queries", [4, 60])
def test_both_ways_give_the_same_relation(relation, queries, monkeypatch):
    made = relation.closure(), relation**7, relation @ relation.T
    by_runs = [one.on(queries, 60) for one in made]
    monkeypatch.setattr(neighborhoods, "MANY_RUNS", 3)
    monkeypatch.setattr(expressions, "_SCATTERED", 0)
    assert [one.on(queries, 60) for one in made] == by_runs


def test_a_product_beyond_memory_is_refused(monkeypatch):
    monkeypatch.setattr(neighborhoods, "MANY_RUNS", 3)
    monkeypatch.setattr(neighborhoods, "MOST_RUNS", 1000)
    monkeypatch.setattr(bitrows, "MAX_BITS", 0)
    with pytest.raises(SizeError, match="more than 1,000 runs"):
        (er.Random(9, 1) ** 3).on(300)

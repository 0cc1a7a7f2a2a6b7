"""Laws over random relations and random expressions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import erlangen
from erlangen import relations as er_relations
from erlangen.errors import SizeError
from erlangen.relations import Full, Nearest, Neighborhoods, Relation
from erlangen.relations.catalogue import kinds
from erlangen.testing.strategies import LEAVES, leaves, relations
from relation_oracle import PAIR, dense, multiply

NAMES = {name: getattr(er_relations, name) for name in er_relations.__all__}

sizes = st.shared(st.integers(0, 9), key="n")
expressions = sizes.flatmap(relations)
pairs = sizes.flatmap(lambda n: st.tuples(st.just(n), relations(n, 4), relations(n, 4)))


def public_relations():
    return set(kinds(Relation).values())


def test_every_public_relation_has_a_strategy_and_an_oracle():
    data_dependent = {Nearest}
    assert set(LEAVES) == public_relations() - data_dependent
    assert set(PAIR) | {er_relations.FromMask, er_relations.Random} == public_relations() - data_dependent


@pytest.mark.parametrize("kind", sorted(LEAVES, key=lambda c: c.__name__), ids=lambda c: c.__name__)
@given(data=st.data())
@settings(max_examples=60)
def test_each_relation_binds_to_its_definition(kind, data):
    keys = data.draw(st.integers(0, 12))
    relation = data.draw(LEAVES[kind](keys))
    queries = data.draw(st.integers(0, keys))
    assert np.array_equal(relation.on(queries, keys).dense(), dense(relation, queries, keys))


@given(data=st.data())
def test_more_queries_than_keys_start_before_position_zero(data):
    keys = data.draw(st.integers(1, 6))
    queries = data.draw(st.integers(keys, 12))
    kind = data.draw(st.sampled_from(sorted(set(LEAVES) & set(PAIR), key=lambda c: c.__name__)))
    relation = data.draw(LEAVES[kind](keys))
    try:
        bound = relation.on(queries, keys)
    except SizeError:
        assert kind is er_relations.Grid or queries == keys
    else:
        assert np.array_equal(bound.dense(), dense(relation, queries, keys))


@given(data=st.data())
@settings(max_examples=300)
def test_expressions_bind_to_their_matrix_algebra(data):
    n = data.draw(st.integers(0, 9))
    relation = data.draw(relations(n))
    queries = data.draw(st.integers(0, n))
    assert np.array_equal(relation.on(queries, n).dense(), dense(relation, queries, n))


@given(data=st.data())
@settings(max_examples=300)
def test_simplification_never_changes_the_set(data):
    """Operators on relations agree with the same operators on matrices, whatever was simplified."""
    n = data.draw(st.integers(0, 9))
    a, b = data.draw(leaves(n)), data.draw(leaves(n))
    x, y = dense(a, n, n), dense(b, n, n)
    assert np.array_equal((a & b).on(n).dense(), x & y)
    assert np.array_equal((a | b).on(n).dense(), x | y)
    assert np.array_equal((a - b).on(n).dense(), x & ~y)
    assert np.array_equal((a @ b).on(n).dense(), multiply(x, y))
    assert np.array_equal((~a).on(n).dense(), ~x)
    assert np.array_equal(a.T.on(n).dense(), x.T)
    eye = np.eye(n, dtype=bool)
    assert np.array_equal((a**2).on(n).dense(), multiply(x, x))
    assert np.array_equal(a.reach(2).on(n).dense(), multiply(x | eye, x | eye))
    closed = a.closure().on(n).dense()
    assert (closed >= x).all()
    assert np.array_equal(closed, x | multiply(closed, x))


@given(expressions)
def test_repr_evaluates_to_the_same_relation(relation):
    text = repr(relation)
    if "<" not in text:
        again = eval(text, NAMES)
        assert again == relation
        assert hash(again) == hash(relation)


@given(pairs)
def test_lattice_laws(case):
    n, a, b = case
    bound = lambda r: r.on(n)  # noqa: E731
    assert a & b == b & a
    assert a | b == b | a
    assert a & a == a == a | a
    assert bound(~(a & b)) == bound(~a | ~b)
    assert bound(~(a | b)) == bound(~a & ~b)
    assert bound((a @ b).T) == bound(b.T @ a.T)
    assert bound(a.T.T) == bound(a)
    assert bound(a & b) <= bound(a) <= bound(a | b)
    assert bound(a - b) == bound(a & ~b)
    assert bound(a | ~a) == Full().on(n)
    assert bound(a & ~a).num_edges == 0


@given(st.data())
@settings(max_examples=200)
def test_holds_agrees_with_on_in_numpy_and_torch(data):
    n = data.draw(st.integers(1, 9))
    relation = data.draw(relations(n))
    expected = relation.on(n).dense()
    i, j = np.arange(n)[:, None], np.arange(n)[None, :]
    assert np.array_equal(np.broadcast_to(relation.holds(i, j, keys=n), (n, n)), expected)
    torch_result = relation.holds(torch.arange(n)[:, None], torch.arange(n)[None, :], keys=n)
    assert torch_result.dtype == torch.bool
    assert np.array_equal(torch_result.expand(n, n).numpy(), expected)


@given(st.data())
@settings(max_examples=100)
def test_rows_are_rows_of_the_whole(data):
    n = data.draw(st.integers(1, 9))
    relation = data.draw(relations(n))
    positions = data.draw(st.lists(st.integers(0, n - 1), max_size=5))
    assert relation.rows(positions, n) == relation.on(n).restrict(positions)


@pytest.mark.parametrize("kind", sorted(LEAVES, key=lambda c: c.__name__), ids=lambda c: c.__name__)
@given(data=st.data())
@settings(max_examples=40)
def test_a_run_is_the_row_it_stands_for(kind, data):
    keys = data.draw(st.integers(1, 12))
    position = data.draw(st.integers(0, keys - 1))
    relation = data.draw(LEAVES[kind](keys))
    run = relation.run(position, keys)
    assert run is not None or kind not in (er_relations.Full, er_relations.Causal, er_relations.Window)
    if run is not None:
        assert list(run) == np.flatnonzero(relation.rows([position], keys).dense()[0]).tolist()


def test_inclusion_of_relations_is_asked_at_a_size():
    with pytest.raises(TypeError, match=r"on\(n\)"):
        _ = Full() <= Full()
    assert er_relations.Causal().on(4) <= Full().on(4)
    assert not Full().on(4) <= er_relations.Causal().on(4)
    assert er_relations.Causal().on(4) < Full().on(4)


def test_relations_are_frozen_and_hashable():
    for relation in (erlangen.Causal() & erlangen.Dilated(2), erlangen.Window(3), erlangen.PerHead([Full()])):
        with pytest.raises(AttributeError):
            relation.anything = 1  # type: ignore[attr-defined]
        assert relation in {relation}


@pytest.mark.parametrize(
    ("expression", "simplified"),
    [
        ("Causal() & Causal()", "Causal()"),
        ("Causal() & Window(5, 2)", "Window(lookback=5)"),
        ("Window(5) | Identity() | Window(2, 1)", "Window(lookback=5, lookahead=1)"),
        ("Causal() & (Causal() | Dilated(2))", "Causal()"),
        ("~~Dilated(3)", "Dilated(step=3)"),
        ("Dilated(4) & Dilated(6)", "Dilated(step=12)"),
        ("Blocks(2) | Blocks(6)", "Blocks(size=6)"),
        ("Full() @ Full()", "Full()"),
        ("Window(2).reach(3)", "Window(lookback=6)"),
        ("Window(1, 1).closure()", "Full()"),
        ("(Causal() | Dilated(2)).T", "Causal().T | Dilated(step=2)"),
        ("(Dilated(2) | Identity()) - Causal()", "Dilated(step=2) & ~Causal()"),
        ("Global(keys=[0, 1, 2]) & Full()", "Global(keys=range(0, 3))"),
    ],
)
def test_expressions_print_small(expression, simplified):
    assert repr(eval(expression, NAMES)) == simplified


def test_nearest_reads_the_largest_inner_products():
    rng = np.random.default_rng(0)
    q, k = rng.normal(size=(5, 4)), rng.normal(size=(9, 4))
    bound = Nearest(3).on(q, k)
    expected = np.zeros((5, 9), bool)
    for i, scores in enumerate(q @ k.T):
        expected[i, np.argsort(-scores)[:3]] = True
    assert np.array_equal(bound.dense(), expected)
    assert Nearest(3).on(torch.from_numpy(q), torch.from_numpy(k)) == bound
    assert (Nearest(3) & erlangen.Padding(4)).on(q, k) == bound & erlangen.Padding(4).on(5, 9)
    assert isinstance(Nearest(100).on(q, k), Neighborhoods)
    assert Nearest(100).on(q, k).density == 1.0

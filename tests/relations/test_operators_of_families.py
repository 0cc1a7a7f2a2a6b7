"""Relations, families and weighted relations: no truth value, and operators in every order."""

from __future__ import annotations

import operator
from itertools import product

import numpy as np
import pytest

import erlangen as er
from erlangen.errors import ParameterError
from erlangen.relations.catalogue import WRITTEN
from erlangen.relations.ternary import TernaryRelation
from erlangen.symmetry import translations

VALUES = [
    er.Causal(), er.Causal() & er.Dilated(2), ~er.Causal(), er.Causal().T, er.Dilated(2) @ er.Causal(),
    er.Ring(1, 1) ** 3, er.Random(2, 0).closure(), er.Graph([]), er.FromMask([[True]]), er.Nearest(1),
    er.PerHead([er.Causal()]), er.Batch([er.Causal()]), er.ALiBi(1), er.Decay(0.5),
    er.Weighted(er.Causal(), offsets={0: 1}), er.Fano(), er.WindowSquared(1) | er.WindowSquared(2),
    er.Triples(2, []), er.Causal().on(0), er.Causal().on(3), er.ALiBi(1).on(2),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_nothing_relational_has_a_truth_value(value):
    for use in (bool, operator.not_, lambda v: v and 1, lambda v: v or 1, lambda v: 1 if v else 2):
        with pytest.raises(TypeError, match=r"& \| ~"):
            use(value)


def test_every_kind_is_without_truth():
    kinds = {kind for kind in WRITTEN.values() if isinstance(kind, type)}
    relational = {kind for kind in kinds if hasattr(kind, "__and__") or issubclass(kind, TernaryRelation)}
    assert all("__bool__" in dir(kind) for kind in relational)
    assert len(relational) > 25


A, B, C, D = er.Causal(), er.Window(1, 1), er.Padding(3), er.Padding(5)
SHAPES = {
    "relation": er.Window(3, 1),
    "heads": er.PerHead([A, B]),
    "items": er.Batch([C, D, B]),
    "both": er.Batch([er.PerHead([A, C]), er.PerHead([B, D]), er.PerHead([D, A])]),
    "mixed": er.Batch([er.PerHead([A, C]), D, er.PerHead([D, A])]),
}


def dense(value):
    """(items, heads, n, n); what has no items or heads has one for all."""
    if isinstance(value, er.Batch):
        return np.concatenate([np.broadcast_to(dense(item), (1, 2, 6, 6)) for item in value.members])
    if isinstance(value, er.PerHead):
        return np.stack([member.on(6).dense() for member in value.members])[None]
    return value.on(6).dense()[None, None]


@pytest.mark.parametrize(("left", "right"), list(product(SHAPES, SHAPES)))
@pytest.mark.parametrize("use", [operator.and_, operator.or_, operator.sub])
def test_operators_work_in_every_order(left, right, use):
    a, b = SHAPES[left], SHAPES[right]
    theirs = {operator.and_: np.logical_and, operator.or_: np.logical_or, operator.sub: np.greater}[use]
    wanted = np.broadcast_to(theirs(dense(a), dense(b)), (3, 2, 6, 6))
    assert np.array_equal(np.broadcast_to(dense(use(a, b)), (3, 2, 6, 6)), wanted)


@pytest.mark.parametrize("shape", SHAPES)
def test_weighted_relations_take_families_from_both_sides(shape):
    for weighted in (er.ALiBi(1), er.ALiBi(1) & SHAPES["heads"], er.ALiBi(1) & SHAPES["both"]):
        narrowed = [weighted & SHAPES[shape], SHAPES[shape] & weighted]
        wanted = np.broadcast_to(dense(weighted.support) & dense(SHAPES[shape]), (3, 2, 6, 6))
        for one in narrowed:
            assert isinstance(one, er.ALiBi)
            assert np.array_equal(np.broadcast_to(dense(one.support), (3, 2, 6, 6)), wanted)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ParameterError, match="2 members"):
        SHAPES["heads"] & er.PerHead([A, B, C])
    with pytest.raises(ParameterError, match="3 members"):
        SHAPES["items"] & er.Batch([A])
    for other in (3, None, "a", np.ones(2), er.Fano()):
        for family in (SHAPES["heads"], SHAPES["items"]):
            for a, b in ((family, other), (other, family)):
                with pytest.raises((TypeError, ParameterError)):
                    a & b


def test_parts_with_fewer_queries_fit_the_last_positions():
    apart = er.Bipartite(0, 2) & er.GridOffset((1, 2), (0, 0), (1, 1))
    assert apart.own_sizes == (1, 2)
    assert apart.on(2).num_edges == 0
    found = translations(apart, 2)
    assert (found.n, found.prefix) == (2, True)


SIZED = [
    er.Bipartite(1, 3), er.Documents([2, 2]), er.Grid((2, 2), 1), er.Graph([(0, 1)], nodes=4),
    er.GridOffset((2, 2), (0, 1)), er.GridOffset((2, 2), (0, 1), (1, 2)),
    er.GridOffset((2, 2), (1, 0), (3, 3)),
    er.FromMask(np.ones((2, 4), bool)), er.FromMask(np.ones((4, 4), bool)),
]  # fmt: skip


@pytest.mark.parametrize(("a", "b"), list(product(SIZED, SIZED)), ids=repr)
def test_the_sizes_of_an_expression_are_sizes_it_can_be_bound_to(a, b):
    for relation in (a & b, a | b, *([a - b] if a != b else [])):
        sizes = relation.own_sizes
        assert sizes is not None
        assert relation.on(*sizes).keys == 4

"""What a relation says of itself (laws, sizes, parts, ...) is true of what it binds to."""

from __future__ import annotations

from math import factorial, prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from erlangen.errors import SizeError
from erlangen.relations import Relation
from erlangen.testing.strategies import LEAVES, relations
from symmetry_brute import automorphisms

sizes = st.shared(st.integers(0, 6), key="n")
expressions = sizes.flatmap(relations)
leaves = pytest.mark.parametrize("kind", sorted(LEAVES, key=lambda c: c.__name__), ids=lambda c: c.__name__)


def holds_at(relation: Relation, n: int) -> bool:
    try:
        relation.on(n)
    except SizeError:
        return False
    return True


@given(n=sizes, relation=expressions)
def test_a_relation_without_a_size_of_its_own_fits_any(n, relation):
    own = relation.own_sizes
    if own is None:
        assert all(holds_at(relation, size) or "Padding" in repr(relation) for size in (n, n + 1, n + 5))
    else:
        # With more queries than keys a part may have its sizes, and no composition with it can be bound.
        assert own[0] > own[1] or relation.on(*own).keys == own[1]
        assert not holds_at(relation, own[1] + 1)


@given(n=sizes, relation=expressions)
def test_pointwise_relations_on_fewer_positions_are_restrictions(n, relation):
    if relation.pointwise:
        for fewer in range(n):
            cut = slice(0, fewer)
            assert relation.on(fewer) == relation.on(n).restrict(cut, cut)


@given(n=sizes, relation=expressions)
def test_the_transpose_reads_the_other_way(n, relation):
    assert np.array_equal(relation.T.on(n).dense(), relation.on(n).dense().T)


@given(n=sizes, relation=expressions)
def test_arithmetic_relations_answer_without_a_table(n, relation):
    if relation.arithmetic:
        i, j = np.indices((n, n))
        assert np.array_equal(relation.holds(i, j, n), relation.on(n).dense())


@leaves
@given(data=st.data())
@settings(max_examples=25)
def test_parts_are_those_of_an_equivalence(kind, data):
    n = data.draw(st.integers(0, 9))
    relation = data.draw(LEAVES[kind](n))
    parts = relation.parts(n)
    if parts is not None:
        same = np.zeros((n, n), bool)
        for length, blocks in parts.items():
            assert blocks.shape[1] == length
            for block in blocks:
                same[np.ix_(block, block)] = True
        assert np.array_equal(same, relation.on(n).dense())


@leaves
@given(data=st.data())
@settings(max_examples=25)
def test_classes_give_the_whole_group(kind, data):
    n = data.draw(st.integers(1, 5))
    relation = data.draw(LEAVES[kind](n))
    classes = relation.classes(n)
    if classes is not None:
        dense = relation.on(n).dense()
        assert len(automorphisms(dense)) == prod(factorial(points.size) for points in classes)
        for points in classes:
            turned = np.arange(n)
            turned[points] = np.roll(points, 1)
            assert np.array_equal(dense[np.ix_(turned, turned)], dense)

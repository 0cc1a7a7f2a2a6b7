"""`symmetry` against trying every permutation, on random relations with n <= 6."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from erlangen.relations import FromMask, Neighborhoods, PerHead
from erlangen.symmetry import stack_symmetry, symmetry
from erlangen.symmetry.moves import Move, all_keep, keeps
from erlangen.testing.strategies import relations
from symmetry_brute import automorphisms, every_permutation, pairs, same_group

sizes = st.shared(st.integers(0, 6), key="n")


def square(n: int, p: float = 0.5):
    return arrays(bool, (n, n), elements=st.booleans())


@settings(max_examples=150, deadline=None)
@given(sizes.flatmap(square))
def test_random_masks(mask):
    same_group(symmetry(FromMask(mask)), automorphisms(mask))


@settings(max_examples=60, deadline=None)
@given(sizes.flatmap(lambda n: st.tuples(st.just(n), relations(n, 4))))
def test_random_expressions(drawn):
    n, relation = drawn
    same_group(symmetry(relation, n), automorphisms(relation.on(n).dense()))


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 3).flatmap(lambda k: st.tuples(square(2 * k), st.sampled_from(sorted({2, k, 2 * k})))))
def test_symmetric_masks_made_of_orbits(drawn):
    """Random masks are mostly rigid: here a mask is closed under a random cyclic shift first."""
    mask, step = drawn
    shift = np.roll(np.arange(len(mask)), step)
    for _ in range(len(mask)):
        mask = mask | mask[np.ix_(shift, shift)]
    same_group(symmetry(FromMask(mask)), automorphisms(mask))


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 5).flatmap(lambda n: st.lists(square(n), min_size=1, max_size=4)))
def test_heads_and_stacks_keep_the_intersection(masks):
    expected = automorphisms(*masks)
    heads = [FromMask(mask) for mask in masks]
    same_group(symmetry(PerHead(heads)), expected)
    same_group(stack_symmetry(heads), expected)


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 4).flatmap(lambda q: st.integers(0, 4).flatmap(lambda k: arrays(bool, (q, k)))))
def test_queries_and_keys_apart(mask):
    group = symmetry(Neighborhoods.from_dense(mask), joint=False)
    expected = pairs(mask)
    found = {tuple(tuple(side.tolist()) for side in group.pair(element)) for element in group.elements()}
    assert found == expected
    assert group.order == len(expected)
    assert group.sides == mask.shape


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 5).flatmap(lambda n: st.tuples(square(n), st.permutations(range(n)))))
def test_the_exact_check_is_the_definition(drawn):
    mask, image = drawn
    image = np.array(image)
    expected = bool((mask[np.ix_(image, image)] == mask).all())
    bound = Neighborhoods.from_dense(mask)
    assert keeps(bound, Move.of(image)) is expected
    assert all_keep(bound, [Move.of(image)]) is expected
    assert (bound.permute(image) == bound) is expected
    assert symmetry(bound).contains(image) is expected


def test_the_batched_check_rejects_one_bad_move_among_many():
    rng = np.random.default_rng(0)
    mask = np.zeros((5, 5), bool)
    mask[0, 1] = True
    bound = Neighborhoods.from_dense(mask)
    good = [Move.of(image) for image in automorphisms(mask)]
    bad = [Move.of(image) for image in every_permutation(5) if not keeps(bound, Move.of(image))]
    assert all_keep(bound, good)
    for move in bad:
        assert not all_keep(bound, [*good, move])
    rng.shuffle(bad)
    assert not all_keep(bound, bad[:3])


@settings(max_examples=60, deadline=None)
@given(sizes.flatmap(lambda n: st.tuples(square(n), st.permutations(range(n)))))
def test_order_and_name_do_not_depend_on_the_labelling(drawn):
    mask, image = drawn
    image = np.array(image, np.int64)
    group, other = symmetry(FromMask(mask)), symmetry(FromMask(mask[np.ix_(image, image)]))
    assert group.order == other.order
    assert sorted(group.name.split(" x ")) == sorted(other.name.split(" x "))
    assert group.order == symmetry(FromMask(~mask)).order == symmetry(FromMask(mask.T)).order

"""Set operations, reshaping and tiles on runs, against the same on dense matrices."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from erlangen.errors import ParameterError, SizeError
from erlangen.relations import Documents, Full, Neighborhoods, Window
from relation_oracle import multiply

lengths = st.integers(0, 11)


@st.composite
def masks(draw, queries=lengths, keys=lengths):
    return draw(arrays(bool, (draw(queries), draw(keys))))


@st.composite
def mask_pairs(draw):
    shape = draw(lengths), draw(lengths)
    return draw(arrays(bool, shape)), draw(arrays(bool, shape))


@given(mask_pairs())
@settings(max_examples=200)
def test_set_operations(pair):
    x, y = pair
    a, b = Neighborhoods.from_dense(x), Neighborhoods.from_dense(y)
    for result, expected in [(a & b, x & y), (a | b, x | y), (a - b, x & ~y), (a ^ b, x ^ y), (~a, ~x)]:
        assert np.array_equal(result.dense(), expected)
        assert result == Neighborhoods.from_dense(expected)  # canonical: equal sets are equal arrays
        assert hash(result) == hash(Neighborhoods.from_dense(expected))
    assert (a <= b) == bool((x <= y).all())
    assert (a == b) == bool((x == y).all())


@given(masks())
@settings(max_examples=200)
def test_reading(x):
    a = Neighborhoods.from_dense(x)
    assert np.array_equal(a.dense(), x)
    assert a.num_edges == x.sum()
    assert np.array_equal(a.degrees, x.sum(1))
    assert np.array_equal(a.edges(), np.argwhere(x))
    assert np.array_equal(a.empty_queries(), np.flatnonzero(~x.any(1)))
    assert a.density == (x.mean() if x.size else 0.0)
    assert np.array_equal(a.T.dense(), x.T)
    assert Neighborhoods.from_edges(*x.shape, np.argwhere(x)) == a
    i, j = np.mgrid[-1 : x.shape[0] + 1, -1 : x.shape[1] + 1]
    assert np.array_equal(a.contains(i, j), np.pad(x, 1))


@given(st.data())
@settings(max_examples=200)
def test_compose_restrict_permute(data):
    x = data.draw(masks())
    y = data.draw(masks(queries=st.just(x.shape[1])))
    a, b = Neighborhoods.from_dense(x), Neighborhoods.from_dense(y)
    assert np.array_equal(a.compose(b).dense(), multiply(x, y))
    rows = data.draw(st.lists(st.integers(0, x.shape[0] - 1))) if x.shape[0] else []
    columns = sorted(data.draw(st.sets(st.integers(0, x.shape[1] - 1)))) if x.shape[1] else []
    assert np.array_equal(a.restrict(rows, columns).dense(), x[rows][:, columns])
    tau, sigma = (data.draw(st.permutations(range(n))) for n in x.shape)
    permuted = np.zeros_like(x)
    permuted[np.ix_(tau, sigma)] = x
    assert np.array_equal(a.permute(tau, sigma).dense(), permuted)


@given(masks(st.integers(0, 40), st.integers(0, 40)), st.integers(1, 20))
@settings(max_examples=200)
def test_tiles(x, size):
    tiles = Neighborhoods.from_dense(x).tiles(size)
    assert np.array_equal(tiles.dense(), x)
    kinds = {(b, c): int(p) for b, c, p in zip(tiles.rows, tiles.columns, tiles.pattern, strict=True)}
    for b in range(-(-x.shape[0] // size)):
        for c in range(-(-x.shape[1] // size)):
            block = x[b * size : (b + 1) * size, c * size : (c + 1) * size]
            assert ((b, c) in kinds) == block.any()
            assert (kinds.get((b, c)) == -1) == block.all()
    assert len({bits.tobytes() for bits in tiles.patterns}) == len(tiles.patterns)


@pytest.mark.parametrize("size", [63, 64, 65, 128, 130, 200])
def test_tiles_wider_than_a_word(size):
    rng = np.random.default_rng(size)
    x = rng.random((300, 410)) < 0.5
    x[64:200, 100:330] = True
    assert np.array_equal(Neighborhoods.from_dense(x).tiles(size).dense(), x)


def test_structured_relations_stay_small():
    n = 1_000_000
    window = Window(lookback=256).on(n)
    assert window.starts.size == n
    assert window.num_edges == n * 257 - 256 * 257 // 2
    tiles = window.tiles(64)
    assert len(tiles.patterns) == 2
    assert tiles.num_full + tiles.num_partial == 78115
    assert window.T.starts.size == n
    assert window.compose(window) == Window(lookback=512).on(n)
    documents = Documents([100] * 10_000).on(n)
    assert documents.num_edges == 100 * n


def test_edge_counts_do_not_overflow():
    from erlangen.relations.sizes import MAX_SIZE

    row = Full().rows([0], keys=MAX_SIZE)
    assert row.num_edges == MAX_SIZE
    with pytest.raises(SizeError, match="beyond the largest size"):
        Full().on(MAX_SIZE + 1)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Neighborhoods.from_edges(2, 2, [(0, 2)]), SizeError, r"edge \(0, 2\) lies outside"),
        (lambda: Neighborhoods.from_edges(2, 2, [(0, -1)]), SizeError, r"edge \(0, -1\) lies outside"),
        (lambda: Neighborhoods.from_edges(2, 2, [(0.5, 1.0)]), ParameterError, "must be integers"),
        (lambda: Neighborhoods.from_edges(2, 2, [(0, 1, 2)]), ParameterError, r"pairs \(query, key\)"),
        (lambda: Neighborhoods.from_dense([1, 0]), ParameterError, r"shape \(queries, keys\)"),
        (lambda: Full().on(2) & Full().on(3), SizeError, "cannot be combined"),
        (lambda: Full().on(2, 3).compose(Full().on(2, 3)), SizeError, "cannot compose"),
        (lambda: Full().on(3).permute([0, 0, 1]), ParameterError, "permutation of 0..2"),
        (lambda: Full().on(3).restrict(keys=[1, 0]), ParameterError, "strictly increasing"),
        (lambda: Full().on(3).restrict(queries=[3]), SizeError, "names index 3 of 3 queries"),
        (lambda: Full().on(3).tiles(0), ParameterError, "tiles"),
    ],
)
def test_bad_input(make, error, message):
    with pytest.raises(error, match=message):
        make()

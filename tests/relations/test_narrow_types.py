"""Numbers of a user are never computed with in a type of their own that is too narrow."""

from __future__ import annotations

import sys
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import erlangen as er
from erlangen.errors import ParameterError
from erlangen.relations import nearest

NUMPY = [bool, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64, np.float16,
         np.float32, np.float64]  # fmt: skip
TORCH = [torch.bool, torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.float16,
         torch.bfloat16, torch.float32, torch.float64]  # fmt: skip


def extreme(dtype, rng, rows):
    """Numbers up to the ends of a type, few enough to be exact in doubles."""
    if np.dtype(dtype).kind == "b":
        return rng.integers(0, 2, (rows, 5)).astype(bool)
    if np.dtype(dtype).kind == "f":
        return (rng.integers(-8, 9, (rows, 5)) * float(np.finfo(dtype).max) ** 0.45 / 8).astype(dtype)
    information = np.iinfo(dtype)
    high, low = min(information.max, 2**24), max(information.min, -(2**24))
    return rng.integers(low, high, (rows, 5), endpoint=True).astype(dtype)


def exactly(queries, keys, k):
    """The k keys of the largest inner products in fractions, the earlier of equal ones first."""

    def product(q, x):
        return sum(Fraction(a) * Fraction(b) for a, b in zip(q, x, strict=True))  # fmt: skip

    found = []
    for q in queries.tolist():
        scores = [product(q, x) for x in keys.tolist()]
        found.append(sorted(sorted(range(len(scores)), key=lambda j: -scores[j])[:k]))
    return np.array(found)


@pytest.mark.parametrize("dtype", NUMPY)
def test_nearest_keys_of_every_type_of_numpy(dtype):
    rng = np.random.default_rng(0)
    for k in (1, 2, 3):
        q, x = extreme(dtype, rng, 6), extreme(dtype, rng, 9)
        keys = er.Nearest(k).on(q, x).edges()[:, 1].reshape(-1, k)
        assert np.array_equal(keys, exactly(q, x, k))


@pytest.mark.parametrize("dtype", TORCH)
def test_nearest_keys_of_every_type_of_torch(dtype):
    rng = np.random.default_rng(1)
    numbers = {torch.bool: (0, 2), torch.uint8: (0, 256), torch.int8: (-128, 128)}.get(dtype, (-3000, 3000))
    q, x = (torch.tensor(rng.integers(*numbers, (rows, 5))).to(dtype) for rows in (6, 9))
    keys = er.Nearest(2).on(q, x).edges()[:, 1].reshape(-1, 2)
    assert np.array_equal(keys, exactly(q.double().numpy(), x.double().numpy(), 2))


def test_two_sides_of_different_types():
    q, x = np.array([[200, 1]], np.uint8), np.array([[-100, 0], [100, 0], [100, 1]], np.int8)
    assert er.Nearest(1).on(q, x).row(0) == [(2, 3)]
    assert er.Nearest(1).on(q, x.astype(np.float16)).row(0) == [(2, 3)]


def test_singles_whose_products_overflow_are_doubles():
    large = np.array([[3e30], [1e30], [2e30]], np.float32)
    assert er.Nearest(1).on(large[1:2], large[1:]).row(0) == [(1, 2)]
    assert nearest.vectors(large / 1e29, large / 1e29)[0].dtype == np.float32  # the usual ones stay


@pytest.mark.parametrize(
    "numbers", [np.ones((2, 2), complex), np.ones((2, 2), object), np.array([["a"], ["b"]])]
)
def test_what_is_no_real_number_is_refused(numbers):
    with pytest.raises(ParameterError, match="vectors of real numbers"):
        er.Nearest(1).on(numbers, numbers)


def test_faiss_is_given_the_same_numbers(monkeypatch):
    def knn(q, x, k, metric):
        scores = q @ x.T
        return None, np.argsort(-scores, axis=1, kind="stable")[:, :k]

    monkeypatch.setitem(sys.modules, "faiss", SimpleNamespace(knn=knn, METRIC_INNER_PRODUCT=0))
    q, x = np.array([[200]], np.uint8), np.array([[1], [2]], np.uint8)
    assert er.Nearest(1, "faiss").on(q, x).row(0) == [(1, 2)]


def test_tables_of_log_weights_keep_their_integers():
    for numbers in (np.array([2**63, 1], np.uint64), np.array([2**62, -(2**62)])):
        weighted = er.Weighted(er.Graph([(0, 0), (0, 1)], nodes=2), edges=numbers)
        assert weighted.on(2).dense()[0, 0].tolist() == [float(n) for n in numbers.tolist()]
    # In 64 bits 2^62 - (-2^62) would wrap to the least number, which is not what the two rows differ by.
    wide = er.Weighted(er.Full(), np.array([[2**62, -(2**62)], [2**62, -(2**62) + 1]]))
    assert er.symmetry(wide, 2).order == 1
    half = er.RelativeBias(
        np.array([0, -60000, -60000, -60000], np.float16), bidirectional=False, max_distance=8
    )
    assert (half.on(4).dense()[0, 3, :3] == -60000).all()


@pytest.mark.parametrize("dtype", [d for d in NUMPY if np.dtype(d).kind in "iu"])
def test_lengths_and_edges_of_every_integer_type(dtype):
    ends = np.array([0, 100, 120, 127], dtype)
    assert er.Documents.from_cu_seqlens(ends) == er.Documents([100, 20, 7])
    assert er.Documents.from_ids(ends[[0, 0, 3]]) == er.Documents([2, 1])
    pairs = np.array([[127, 0], [0, 127]], dtype)
    assert er.Graph.from_pairs(pairs).edges().tolist() == [[0, 127], [127, 0]]
    assert er.Causal().rows(ends, keys=128).degrees.tolist() == [1, 101, 121, 128]
    assert er.Window(lookback=50).holds(np.array([100], dtype), np.array([127], dtype)).tolist() == [False]

"""Nearest keys: against sorting all scores, in bounded memory, and through faiss."""

from __future__ import annotations

import sys
import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import erlangen as er
from erlangen.errors import DataError, ParameterError
from erlangen.relations import nearest
from erlangen.relations.parse import parse


def sorted_out(queries, keys, k):
    """By sorting all scores, stably: the earlier of equal keys comes first."""
    return np.sort(np.argsort(-(queries @ keys.T), axis=1, kind="stable")[:, :k], axis=1)


@given(
    st.integers(0, 6),
    st.integers(1, 40),
    st.integers(0, 12),
    st.integers(1, 7),
    st.integers(1, 60),
    st.data(),
)
def test_equals_sorting_all_scores_ties_included(queries, keys, k, width, scores, data):
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    q, x = (rng.integers(-2, 3, size=(n, 2)).astype(float) for n in (queries, keys))  # many ties
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nearest, "WIDTH", width)
        patch.setattr(nearest, "SCORES", scores)
        k = min(k, keys)
        assert np.array_equal(nearest.exact(q, x, k), sorted_out(q, x, k))


def test_no_number_is_the_least_and_integers_will_do():
    x = np.array([[np.nan], [-5.0], [np.nan], [2.0]])
    assert nearest.exact(np.array([[1.0]]), x, 2).tolist() == [[1, 3]]
    assert nearest.exact(np.array([[1.0]]), x, 3).tolist() == [[0, 1, 3]]
    assert er.Nearest(1).on(np.array([[1]]), np.array([[2], [5]])).row(0) == [(1, 2)]


def test_memory_does_not_grow_with_the_keys():
    rng = np.random.default_rng(0)
    q, x = rng.normal(size=(64, 8)), rng.normal(size=(200_000, 8))
    peaks = []
    for keys in (12_500, 200_000):
        tracemalloc.start()
        bound = er.Nearest(16).on(q, x[:keys])
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert bound.num_edges == 64 * 16
    assert peaks[1] < 1.1 * peaks[0]
    assert peaks[1] < 64 * 200_000 * 8 / 4  # a quarter of what all scores would take


def test_faiss_finds_the_same():
    pytest.importorskip("faiss")
    rng = np.random.default_rng(0)
    q, x = (rng.normal(size=(n, 16)).astype(np.float32) for n in (20, 500))
    assert er.Nearest(7, index="faiss").on(q, x) == er.Nearest(7).on(q, x)


def test_without_faiss_it_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(DataError, match=r"erlangen\[faiss"):
        er.Nearest(1, index="faiss").on(np.ones((2, 3)), np.ones((4, 3)))


def test_the_index_is_no_part_of_the_relation():
    other = er.Nearest(3, index="faiss")
    assert repr(er.Nearest(3)) == "Nearest(k=3)"
    assert repr(other) == "Nearest(k=3, index='faiss')"
    assert parse(repr(other)).index == "faiss"
    assert other == er.Nearest(3) != er.Nearest(4)
    with pytest.raises(ParameterError, match="exact, faiss, got 'annoy'"):
        er.Nearest(3, index="annoy")


@pytest.mark.parametrize("give", [np.array, torch.tensor], ids=["numpy", "torch"])
@pytest.mark.parametrize(
    "kind", ["bool", "int8", "uint8", "int16", "int32", "int64", "float16", "float32", "float64"]
)
def test_inner_products_of_every_type_are_those_of_wide_numbers(kind, give):
    rng = np.random.default_rng(0)
    largest = {"bool": 1, "int8": 127, "uint8": 255, "int16": 2**15 - 1, "float16": 300}.get(kind, 2**20)
    queries, keys = (rng.integers(0, largest + 1, (rows, 5)).astype(kind) for rows in (4, 30))
    scores = queries.astype(np.float64) @ keys.astype(np.float64).T
    expected = np.zeros(scores.shape, bool)
    np.put_along_axis(expected, np.argsort(-scores, axis=1, kind="stable")[:, :3], True, axis=1)
    assert np.array_equal(er.Nearest(3).on(give(queries), give(keys)).dense(), expected)


@pytest.mark.parametrize(
    "vectors",
    [np.ones((2, 2), complex), torch.ones(2, 2) * 1j, np.full((2, 2), None), np.full((2, 2), "a")],
)
def test_vectors_of_no_real_numbers_are_refused(vectors):
    with pytest.raises(ParameterError, match="vectors of real numbers, got"):
        er.Nearest(1).on(vectors, vectors)

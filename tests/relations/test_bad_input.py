"""Every relation refuses parameters and sizes outside its domain, restating what was written."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import erlangen as er
from erlangen.errors import DataError, ParameterError, SizeError


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: er.Window(-1), r"Window\(lookback\) must be an integer >= 0, got -1"),
        (lambda: er.Window(1, lookahead=-2), r"Window\(lookahead\)"),
        (lambda: er.Window(2.0), r"Window\(lookback\).*2\.0"),
        (lambda: er.Window(True), r"Window\(lookback\).*True"),
        (lambda: er.Window("3"), r"Window\(lookback\).*'3'"),
        (lambda: er.Ring(-1, 0), r"Ring\(lookback\)"),
        (lambda: er.Prefix(-3), r"Prefix\(length\)"),
        (lambda: er.Dilated(0), r"Dilated\(step\) must be an integer >= 1, got 0"),
        (lambda: er.Blocks(0), r"Blocks\(size\)"),
        (lambda: er.Bipartite(-1, 2), r"Bipartite\(encoder\)"),
        (lambda: er.Documents([2, -1]), r"Documents\(lengths\)"),
        (lambda: er.Documents(3), r"list of lengths"),
        (lambda: er.Padding(-1), r"Padding\(length\)"),
        (lambda: er.Padding(1, side="top"), "left.*right.*top"),
        (lambda: er.Global(keys=[-1]), r"Global\(keys\)"),
        (lambda: er.Global(keys="ab"), r"Global\(keys\)"),
        (lambda: er.Grid((3,), 1), r"Grid\(shape\)"),
        (lambda: er.Grid((3, 0), 1), r"Grid\(shape\)"),
        (lambda: er.Grid((3, 3), (1, 2, 3)), r"Grid\(radius\)"),
        (lambda: er.Random(-1, 0), r"Random\(keys_per_query\)"),
        (lambda: er.Nearest(-1), r"Nearest\(k\)"),
        (lambda: er.Graph([(0, -1)]), "negative position -1"),
        (lambda: er.Graph([(0, 1.5)]), "integers"),
        (lambda: er.Graph(torch.zeros(3, 2, dtype=torch.long)), r"edge_index of shape \(2, edges\)"),
        (lambda: er.FromMask([[0.5]]), "booleans"),
        (lambda: er.FromMask([True]), "shape"),
        (lambda: er.PerHead([]), "non-empty list"),
        (lambda: er.PerHead([3]), "relations"),
        (lambda: er.Batch("ab"), "relations"),
        (lambda: er.Full() ** -1, r"exponent"),
        (lambda: er.Full().reach(1.5), r"exponent"),
        (lambda: er.Full().on(-1), "queries"),
        (lambda: er.Full().on(2.5), "queries"),
        (lambda: er.Full().rows([0.5], 3), "positions"),
    ],
)
def test_parameters(make, message):
    with pytest.raises(ParameterError, match=message):
        make()


@pytest.mark.parametrize(
    ("relation", "sizes", "message"),
    [
        (er.Documents([2, 3]), (6,), r"Documents\(lengths=\(2, 3\)\) has 5 positions.*6 keys"),
        (er.Bipartite(2, 3), (4,), r"Bipartite\(encoder=2, decoder=3\).*5 joint positions.*4 keys"),
        (er.Grid((2, 3), 1), (5,), r"6 cells.*5 keys"),
        (er.Grid((2, 3), 1), (7, 6), "at most as many queries as keys"),
        (er.Graph([(0, 5)]), (3,), "position 5.*3 queries x 3 keys"),
        (er.Graph([(0, 1)], nodes=4), (3,), "4 positions"),
        (er.FromMask(np.ones((2, 3), bool)), (3,), "2 queries and 3 keys"),
        (er.Padding(9), (5,), "9 real keys.*5 keys"),
        (er.Random(1, 0), (5, 4), "at most as many queries as keys"),
        (er.Causal().T, (5, 4), "at most as many queries as keys"),
        (er.Causal() @ er.Dilated(2), (5, 4), "at most as many queries as keys"),
        (er.Causal() & er.Documents([2]), (3,), "Documents"),
        (er.Full(), (2**31,), "beyond the largest size"),
    ],
)
def test_sizes(relation, sizes, message):
    with pytest.raises(SizeError, match=message):
        relation.on(*sizes)


def test_grids_too_large_to_number_are_refused():
    with pytest.raises(SizeError, match="beyond the largest size"):
        er.Grid((2**16, 2**16), 1)


def test_huge_parameters_do_not_overflow():
    huge = 10**30
    assert er.Window(huge, huge).on(4) == er.Full().on(4)
    assert er.Window(huge).on(4) == er.Causal().on(4)
    assert er.Prefix(huge).on(4) == er.Full().on(4)
    assert er.Blocks(huge).on(4) == er.Full().on(4)
    assert er.Dilated(huge).on(4) == er.Identity().on(4)
    assert er.Ring(huge, huge).on(4) == er.Full().on(4)
    i, j = np.arange(4)[:, None], np.arange(4)
    for relation in (er.Window(huge), er.Prefix(huge), er.Blocks(huge), er.Dilated(huge), er.Ring(huge, 0)):
        assert np.array_equal(relation.holds(i, j, keys=4), relation.on(4).dense())
        assert np.array_equal(
            relation.holds(torch.from_numpy(i), torch.from_numpy(j), keys=4).numpy(), relation.on(4).dense()
        )
    assert er.Grid((2, 2), huge).on(4) == er.Full().on(4)
    assert er.Random(huge, huge).on(4) == er.Full().on(4)


@pytest.mark.parametrize("relation", [er.Ring(1, 0), er.Random(1, 0), er.Causal() @ er.Dilated(2)])
def test_holds_asks_for_the_number_of_keys_where_it_matters(relation):
    with pytest.raises(SizeError, match=r"holds\(i, j, keys=...\)"):
        relation.holds(0, 0)


def test_nearest_asks_for_vectors():
    with pytest.raises(DataError, match="depends on the data"):
        er.Nearest(2).on(4)
    with pytest.raises(DataError, match="depends on the data"):
        er.Nearest(2).holds(0, 1)
    with pytest.raises(DataError, match="depends on the data"):
        (er.Causal() @ er.Nearest(2)).on(np.ones((3, 2)), np.ones((3, 2)))
    with pytest.raises(SizeError, match="dimension"):
        er.Nearest(2).on(np.ones((3, 2)), np.ones((3, 4)))

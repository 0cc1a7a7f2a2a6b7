"""Arrays and positions given to bound relations: integers in their range, or an error that restates them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import erlangen as er
from erlangen.errors import ErlangenError, ParameterError, SizeError
from erlangen.integrations.masks import from_additive
from erlangen.relations import Neighborhoods, Triples

BOUND = er.Causal().on(4)
NOT_INTEGERS = [[0.0, 1.0], [0.5, 1.5], [np.nan, 1], [True, False], ["0", "1"], [0j, 1], [None, 1],
                [[0], [0, 1]], [2**63, 1], [2**70, 1], torch.tensor([0.0, 1.0])]  # fmt: skip


@pytest.mark.parametrize("asked", [-1, -5, 4, 9, 2**70, np.int64(-1), torch.tensor(-1)])
@pytest.mark.parametrize(
    "row",
    [
        BOUND.row,
        Triples(4, [(3, 0, 1)]).row,
        er.ALiBi(1).on(4).log_weights,
        er.ALiBi(1).on(4).weights,
        er.Weighted(er.Causal(), np.ones((4, 4))).on(4).log_weights,
    ],
)
def test_rows_that_are_not_there(row, asked):
    with pytest.raises(SizeError, match=rf"query {int(asked)} is none of 0\.\.3"):
        row(asked)
    for other in (1.0, True, "1", None, [1]):
        with pytest.raises(ParameterError, match="query must be an integer"):
            row(other)


def test_rows_of_any_integer_type():
    for three in (3, np.uint8(3), torch.tensor(3)):
        assert BOUND.row(three) == [(0, 4)]
    with pytest.raises(SizeError, match="query 0 is none of none"):
        er.Causal().on(0).row(0)


MAKERS = {
    "rows of runs": lambda a: Neighborhoods.from_runs(4, 4, a, [0, 0], [1, 1]),
    "starts of runs": lambda a: Neighborhoods.from_runs(4, 4, [0, 0], a, [1, 1]),
    "stops of runs": lambda a: Neighborhoods.from_runs(4, 4, [0, 0], [0, 0], a),
    "starts of bands": lambda a: Neighborhoods.from_bands(4, a, [1, 1]),
    "stops of bands": lambda a: Neighborhoods.from_bands(4, [0, 0], a),
    "edges": lambda a: Neighborhoods.from_edges(4, 4, [a]),
    "permute": lambda a: er.Full().on(2).permute(a),
    "permute keys": lambda a: er.Full().on(2).permute([0, 1], a),
    "permute triples": lambda a: Triples(2, [(0, 0, 1)]).permute(a),
    "contains": lambda a: BOUND.contains(a, 0),
    "contains triples": lambda a: Triples(2, []).contains(a, 0, 0),
    "restrict": lambda a: BOUND.restrict(a),
    "restrict keys": lambda a: BOUND.restrict(keys=a),
    "positions": lambda a: er.Causal().rows(a, keys=4),
    "holds": lambda a: er.Causal().holds(a, 0),
    "documents": er.Documents,
    "ids": er.Documents.from_ids,
    "graph": lambda a: er.Graph([a]),
    "edge index": lambda a: er.Graph.from_edge_index([a, a]),
    "global": er.Global,
    "group": lambda a: er.symmetry(er.Full(), 2).contains(a),
}


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("given", NOT_INTEGERS, ids=str)
def test_what_is_no_integer_is_refused(name, given):
    """Cut off, broadcast or wrapped, it would be another relation."""
    with pytest.raises(ErlangenError):
        MAKERS[name](given)


def test_runs_are_equally_long_lists_that_do_not_wrap():
    assert Neighborhoods.from_runs(2, 9, [1], np.array([5], np.uint8), [9]).row(1) == [(5, 9)]
    for rows, starts, stops in (([0, 0], [1], [2, 2]), ([[0]], [[1]], [[2]]), (0, 1, 2)):
        with pytest.raises(ParameterError, match="all equally long; got rows of shape"):
            Neighborhoods.from_runs(2, 9, rows, starts, stops)
    with pytest.raises(SizeError, match="outside the 9 keys"):
        Neighborhoods.from_runs(2, 9, [1], np.array([2**63 - 1]), [3])
    with pytest.raises(ParameterError, match="all equally long"):
        Neighborhoods.from_bands(9, [1, 2], [3])


def test_bands_are_cut_to_keys_that_fit_no_narrow_type():
    wide = Neighborhoods.from_bands(300, np.array([5], np.uint8), np.array([200], np.uint8))
    assert wide.row(0) == [(5, 200)]
    assert wide.starts.dtype == np.int64
    for keys in (-1, 2.0, 2**40):
        with pytest.raises(ErlangenError, match="keys"):
            Neighborhoods.from_bands(keys, [0], [1])


@pytest.mark.parametrize(
    "mask",
    [
        [[0.0, -np.inf], [0, 0]],
        [[0.0, 1.0]],
        [["a", ""]],
        [[np.nan]],
        [[0, 2]],
        [[-1, 0]],
        [[1 + 0j]],
        [[None]],
        [[1], [1, 0]],
        torch.zeros(2, 2),
    ],
    ids=str,
)
def test_a_mask_is_of_booleans(mask):
    with pytest.raises(ParameterError):
        Neighborhoods.from_dense(mask)
    for kind in (bool, np.int8, np.uint64):
        assert Neighborhoods.from_dense(np.array([[0, 1]], kind)).edges().tolist() == [[0, 1]]


def test_masks_that_are_added_are_of_floats():
    for other in (torch.zeros(2, 2, dtype=torch.long), torch.ones(2, 2, dtype=torch.bool), [[0.0]]):
        with pytest.raises(ParameterError, match="an additive mask is a tensor of floats"):
            from_additive(other)


def test_what_would_fill_all_memory_is_refused_before():
    with pytest.raises(SizeError, match="words"):
        BOUND.tiles(10**6)
    assert BOUND.tiles(1000).num_partial == 1
    with pytest.raises(SizeError, match="single keys"):
        er.Dilated(7).rows([5], 2**31 - 2)


def test_bound_to_vectors_again():
    assert BOUND.on(np.zeros((4, 2))) is BOUND
    with pytest.raises(SizeError, match="is bound already"):
        BOUND.on(np.zeros((3, 2)))

"""Single-offset relations: what they refuse, what they simplify to, and other query grids."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from erlangen.errors import ParameterError, SizeError
from erlangen.relations import Causal, Empty, GridOffset, Identity, Offset, Window
from erlangen.relations.parse import parse
from erlangen.symmetry import symmetry, translations


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Offset(1.5), r"Offset\(by\) must be an integer, got 1.5"),
        (lambda: Offset(True), r"Offset\(by\) must be an integer, got True"),
        (lambda: GridOffset(6, (0, 1)), r"GridOffset\(shape\) takes two or three lengths, got 6"),
        (lambda: GridOffset((6,), (1,)), r"GridOffset\(shape\) takes two or three lengths, got \(6,\)"),
        (lambda: GridOffset((2, 3), 1), r"GridOffset\(by\) takes one distance for each axis, got 1"),
        (lambda: GridOffset((2, 3), (1, 2, 3)), "as many distances as axes"),
        (lambda: GridOffset((2, 3), (1, 2), queries=(1, 2, 3)), "as many distances as axes"),
        (lambda: GridOffset((2, 3), (1, 2), queries="ab"), r"GridOffset\(queries\) takes two or three"),
    ],
)
def test_bad_parameters_are_refused(make, message):
    with pytest.raises(ParameterError, match=message):
        make()


def test_a_grid_offset_fits_its_grid_only():
    with pytest.raises(SizeError, match="has 6 cells, but was bound to 7 keys"):
        GridOffset((2, 3), (0, 1)).on(7)
    assert GridOffset((2, 3), (0, 1), queries=(1, 4)).own_sizes == (4, 6)


def test_offsets_simplify():
    assert Offset(1) & Offset(2) == Empty()
    assert Causal() & Offset(-2) == Offset(-2)
    assert Causal() & Offset(2) == Empty()
    assert Window(3) | Offset(-3) == Window(3)
    assert Offset(0) & Identity() == Identity()
    assert Offset(2) @ Offset(2) == Offset(4)
    assert repr(Offset(1) @ Offset(-1)) == "Offset(by=1) @ Offset(by=-1)"
    assert GridOffset((2, 3), (-1, 1)) == GridOffset((2, 3), (1, -1)).T
    assert parse("er.GridOffset((2, 3), (0, 1), queries=(2, 2))") == GridOffset((2, 3), (0, 1), (2, 2))


def test_a_union_of_offsets_is_a_window():
    union = Offset(0) | Offset(-1) | Offset(-2)
    for n in range(6):
        assert union.on(n) == Window(lookback=2).on(n)


@pytest.mark.parametrize("by", [2**70, -(2**70)])
def test_offsets_beyond_every_size_read_nothing(by):
    assert Offset(by).on(4) == Empty().on(4)
    assert not Offset(by).holds(np.arange(4)[:, None], np.arange(4)).any()
    assert GridOffset((2, 2), (0, by)).on(4) == Empty().on(4)


def test_holds_on_torch_tensors_is_the_dense_mask():
    for relation, queries in ((Offset(2), 6), (GridOffset((2, 3), (1, -1)), 6)):
        held = relation.holds(torch.arange(queries)[:, None], torch.arange(6))
        assert np.array_equal(held.numpy(), relation.on(queries, 6).dense())


def test_symmetry_of_one_offset_permutes_equal_paths():
    # On 7 positions i -> i + 3 is one path of three and two of two, so only the two may change places.
    assert symmetry(Offset(3), 7).order == 2
    assert symmetry(Offset(1), 7).order == 1
    assert translations(Offset(1), 7).integers == "Z"
    assert translations(Offset(1), 7).toeplitz

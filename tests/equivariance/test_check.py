"""Measuring and judging: the checker passes what is right and rejects what is wrong."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from erlangen.equivariance import check, measure
from erlangen.errors import ParameterError, ShapeError
from erlangen.nn import Attention, EncoderDecoderAttention, MaskedAttention, SelfAttention, SparseAttention
from erlangen.relations import (
    Bipartite,
    Blocks,
    Causal,
    Documents,
    Empty,
    FromMask,
    Full,
    Global,
    Identity,
    PerHead,
    Prefix,
    Ring,
    Window,
)
from erlangen.symmetry import symmetry
from erlangen.testing import assert_equivariant

D = 8
RELATIONS = [
    (Full(), 5),
    (Identity(), 5),
    (Causal(), 5),
    (Window(2), 6),
    (Window(1, 1), 6),
    (Ring(1, 1), 7),
    (Ring(2, 0), 7),
    (Ring(2, 2), 6),
    (Blocks(2), 6),
    (Prefix(3), 5),
    (Bipartite(2, 3), 5),
    (Documents([2, 2, 2]) & Causal(), 6),
    (Global(keys=[0], queries=[1]), 5),
]


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


@pytest.mark.parametrize(("relation", "n"), RELATIONS, ids=str)
def test_every_layer_has_exactly_the_group_of_its_relation(relation, n):
    result = assert_equivariant(SparseAttention(D, relation), relation, torch.randn(n, D))
    assert result.holds
    assert len(result.outside) == (0 if symmetry(relation, n).name == f"S{n}" else 16)


@pytest.mark.parametrize(("relation", "n"), RELATIONS, ids=str)
def test_rejects_a_layer_with_another_group(relation, n):
    group, x = symmetry(relation, n), torch.randn(n, D)
    smaller = check(SparseAttention(D, Causal()), group, x)
    larger = check(SelfAttention(D), group, x)
    assert smaller.keeps is bool(group.trivial)
    assert larger.keeps
    assert larger.breaks is (group.name == f"S{n}")
    if not group.trivial:
        with pytest.raises(AssertionError, match="is not equivariant to"):
            assert_equivariant(MaskedAttention(D), group, x)
    if group.name != f"S{n}":
        with pytest.raises(AssertionError, match="more symmetry than"):
            assert_equivariant(SelfAttention(D), group, x)


def test_rejects_a_single_wrong_edge():
    relation, n = Ring(1, 1), 6
    x, group = torch.randn(n, D), symmetry(relation, n)
    edges = relation.on(n)
    for i in range(n):
        for j in range(n):
            mask = torch.from_numpy(edges.dense())
            mask[i, j] = ~mask[i, j]
            assert not check(SparseAttention(D, FromMask(mask)), group, x).holds


def test_queries_and_keys_apart():
    x, encoder = torch.randn(3, D), torch.randn(4, D)
    layer = EncoderDecoderAttention(D)
    assert_equivariant(layer, Full(), (x, encoder))
    assert measure(layer, ([1, 2, 0], [3, 0, 1, 2]), (x, encoder)).error < 1e-12
    with pytest.raises(AssertionError, match="more symmetry"):
        assert_equivariant(layer, symmetry(Causal(), 3, keys=4, joint=False), (x, encoder))


def test_heads_keep_the_intersection():
    heads = PerHead([Ring(1, 1), Ring(1, 0)])
    layer = Attention(D, num_heads=2, relation=heads)
    assert_equivariant(layer, heads, torch.randn(6, D))
    with pytest.raises(AssertionError):
        assert_equivariant(layer, Ring(1, 1), torch.randn(6, D))


def test_absolute_positions_break_the_group():
    class Positioned(nn.Module):
        def __init__(self):
            super().__init__()
            self.positions = nn.Parameter(torch.randn(5, D))
            self.attention = SelfAttention(D)

        def forward(self, x):
            return self.attention(x + self.positions)

    x = torch.randn(5, D)
    with pytest.raises(AssertionError, match="not equivariant to S5"):
        assert_equivariant(Positioned(), Full(), x)
    assert_equivariant(Positioned(), Causal(), x)


def test_a_layer_that_is_zero_keeps_everything():
    assert measure(SparseAttention(D, Empty()), [1, 0, 2], torch.randn(3, D)).error == 0
    assert_equivariant(SparseAttention(D, Empty()), Empty(), torch.randn(3, D))


def test_the_layer_is_left_alone():
    layer = SelfAttention(D).train()
    before = {name: value.clone() for name, value in layer.state_dict().items()}
    measure(layer, [1, 0], torch.randn(2, D))
    assert layer.training
    assert all(torch.equal(before[name], value) for name, value in layer.state_dict().items())
    assert next(layer.parameters()).dtype == torch.float32


def test_bad_input():
    layer, x = SelfAttention(D), torch.randn(3, D)
    with pytest.raises(ParameterError, match="permutation"):
        measure(layer, [0, 1], x)
    with pytest.raises(ShapeError, match="acts on"):
        check(layer, symmetry(Full(), 4), x)
    with pytest.raises(ShapeError, match="shape"):
        measure(layer, [0], torch.randn(3))
    with pytest.raises(ShapeError, match="returned str"):
        measure(lambda _: "no", [0, 1, 2], x)
    with pytest.raises(ShapeError, match="expected"):
        measure(lambda t: t.sum(0), [0, 1, 2], x)
    with pytest.raises(ShapeError, match="pair"):
        measure(EncoderDecoderAttention(D), ([0, 1, 2],), (x, x))
    with pytest.raises(ParameterError, match="tensor"):
        assert_equivariant(layer, Full(), [[1.0]])

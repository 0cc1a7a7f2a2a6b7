"""Theorems T1 and T2: relation and group of a black box, for any relation and any weights."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import nn

from erlangen.equivariance import recover
from erlangen.errors import ParameterError
from erlangen.nn import Attention, SelfAttention, SparseAttention
from erlangen.relations import Causal, FromMask, Full, Identity, Neighborhoods, PerHead, Ring
from erlangen.symmetry import symmetry
from symmetry_brute import automorphisms


class Dense(nn.Module):
    """Attention over a mask, written out: affine maps, softmax over each row, zero for empty rows."""

    def __init__(self, mask: np.ndarray, dim: int, seed: int, relative: torch.Tensor | None = None) -> None:
        super().__init__()
        rng = torch.Generator().manual_seed(seed)
        self.mask = torch.from_numpy(np.asarray(mask, bool))
        self.dim = dim
        draw = lambda *shape: torch.randn(*shape, generator=rng, dtype=torch.float64) / math.sqrt(dim)  # noqa: E731
        self.weights = [(draw(dim, dim), draw(dim)) for _ in range(3)]
        self.relative = relative

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (x @ w + b for w, b in self.weights)
        scores = q @ k.T / math.sqrt(self.dim)
        if self.relative is not None:
            scores = scores + self.relative
        some = self.mask.any(1)
        scores = scores.masked_fill(~self.mask, -torch.inf)
        scores = torch.where(some[:, None], scores, torch.zeros_like(scores))
        return torch.where(some[:, None], scores.softmax(-1) @ v, torch.zeros_like(v))


masks = st.integers(1, 5).flatmap(lambda n: arrays(bool, (n, n)))


@settings(max_examples=25, deadline=None)
@given(masks, st.integers(0, 10**6))
def test_any_relation_any_weights(mask, seed):
    found = recover(Dense(mask, 4, seed), len(mask))
    expected = automorphisms(mask)
    assert found.neighborhoods == Neighborhoods.from_dense(mask)
    assert found.relation_group.order == found.group.order == len(expected)
    assert all(found.group.contains(image) for image in expected)
    assert found.group.evidence == "numeric"
    assert not found.positional
    assert found.largest_dropped < 1e-12


@settings(max_examples=20, deadline=None)
@given(masks, st.integers(0, 10**6))
def test_the_library_layer(mask, seed):
    torch.manual_seed(seed)
    relation = Neighborhoods.from_dense(mask)
    found = recover(SparseAttention(4, FromMask(mask)), len(mask))
    assert found.neighborhoods == relation
    assert found.group.order == symmetry(relation).order


def test_a_residual_keeps_the_group():
    mask = Ring(1, 0).on(5).dense() & ~np.eye(5, dtype=bool)
    inner = Dense(mask, 4, 0)
    found = recover(lambda x: x + inner(x), 5, dim=4)
    assert found.group.name == "C5"
    assert found.neighborhoods == (Ring(1, 0) | Identity()).on(5)


def test_absolute_positions_leave_nothing():
    positions = torch.randn(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    inner = Dense(np.ones((5, 5), bool), 4, 0)
    found = recover(lambda x: inner(x + positions), 5, dim=4)
    assert found.relation_group.name == "S5"
    assert found.group.trivial
    assert found.positional
    assert "keeps only 1" in str(found)


def test_equal_positions_leave_their_exchange():
    positions = torch.randn(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    positions = positions[[0, 0, 1, 1, 2]]
    inner = Dense(np.ones((5, 5), bool), 4, 0)
    found = recover(lambda x: inner(x + positions), 5, dim=4)
    assert found.group.order == 4
    assert [orbit.tolist() for orbit in found.group.orbits] == [[0, 1], [2, 3], [4]]


def test_a_cyclic_relative_bias_leaves_rotations():
    """Hidden at X = 0 from a layer that multiplies scores, and seen by adding to them."""
    n = 6
    offset = (torch.arange(n)[:, None] - torch.arange(n)) % n
    relative = torch.randn(n, dtype=torch.float64, generator=torch.Generator().manual_seed(1))[offset]
    found = recover(Dense(np.ones((n, n), bool), 4, 0, relative), n)
    assert found.relation_group.name == "S6"
    assert found.group.name == "C6"


def test_rotary_positions_are_seen_away_from_zero():
    """Turning queries and keys by position changes nothing at X = 0; equal non-zero rows show it."""
    n, rng = 5, torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 2, generator=rng, dtype=torch.float64) for _ in range(3))
    angle = torch.arange(n, dtype=torch.float64) * 0.7

    def turn(x):
        cos, sin = angle.cos(), angle.sin()
        return torch.stack([cos * x[:, 0] - sin * x[:, 1], sin * x[:, 0] + cos * x[:, 1]], -1)

    found = recover(lambda x: (turn(x @ q) @ turn(x @ k).T).softmax(-1) @ (x @ v), n, dim=2)
    assert found.neighborhoods == Full().on(n)
    assert found.group.order < found.relation_group.order


def test_heads():
    torch.manual_seed(0)
    heads = PerHead([Ring(1, 1), Ring(1, 0)])
    found = recover(Attention(8, num_heads=2, relation=heads), 6)
    assert found.neighborhoods == Ring(1, 1).on(6)
    assert found.relation_group.name == "D6"
    assert found.group.name == "C6"


def test_symmetry_broken_only_away_from_equal_rows():
    """A layer that probes at equal rows cannot tell from a symmetric one: measuring on random inputs does."""

    def layer(x):
        return x + (x[:1] - x[1:2]) ** 3 * torch.arange(4.0, dtype=x.dtype)[:, None]

    found = recover(layer, 4, dim=3)
    assert found.relation_group.name == "S4"
    assert found.group.order < 24
    assert found.group.evidence == "numeric"


def test_bad_input():
    with pytest.raises(ParameterError, match="dim="):
        recover(lambda x: x, 3)
    with pytest.raises(ParameterError):
        recover(SelfAttention(4), -1)
    with pytest.raises(ParameterError):
        recover(SelfAttention(4), 3, dim=0)


def test_no_positions_at_all():
    assert recover(SparseAttention(4, Causal()), 0).neighborhoods.queries == 0

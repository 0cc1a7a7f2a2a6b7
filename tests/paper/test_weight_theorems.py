"""The statements on weights verify, and fail when weights, gauge or buckets are broken on purpose."""

from __future__ import annotations

import numpy as np
import pytest

import erlangen.nn.attention
import erlangen.paper.theorems.weight_items as items
import erlangen.symmetry.structures
import erlangen.symmetry.symmetries
from erlangen.attention import attend
from erlangen.attention.binding import clear_cache
from erlangen.paper.theorems import run
from erlangen.relations import ALiBi, RelativeBias, Weighted, WeightedRelation
from erlangen.symmetry import symmetry

GAUGE, KEYS, BUCKETS = "Row scaling is a gauge", "Causal ALiBi is a key-only bias", "T5 buckets are Toeplitz"
ALL = {GAUGE, KEYS, BUCKETS}


@pytest.fixture(autouse=True)
def fresh_bindings():
    yield
    clear_cache()


def failing():
    return {name for name in ALL if not run(name)[0].verified}


def test_they_hold():
    assert failing() == set()
    [finding] = run(KEYS)
    assert finding.evidence.startswith("symbolic; exact at n = 2..8; numeric")
    assert finding.holds_as_printed


def test_a_layer_that_ignores_the_weights(monkeypatch):
    def ignores(q, k, v, relation=None, **options):
        plain = relation.support if isinstance(relation, WeightedRelation) else relation
        return attend(q, k, v, plain, **options)

    monkeypatch.setattr(erlangen.nn.attention, "attend", ignores)
    assert failing() == ALL


def test_weights_added_after_the_softmax(monkeypatch):
    """A gate outside the softmax sees the scale of a row; then scaling rows is no gauge."""

    def gated(q, k, v, relation=None, **options):
        if not isinstance(relation, WeightedRelation):
            return attend(q, k, v, relation, **options)
        import torch

        _, weights = attend(q, k, v, relation.support, return_weights=True)
        bias = torch.from_numpy(relation.on(q.shape[-2], k.shape[-2]).dense())
        return (weights * bias.exp()) @ v

    monkeypatch.setattr(erlangen.nn.attention, "attend", gated)
    assert failing() >= {GAUGE, KEYS}


def test_a_group_of_the_weights_as_they_are(monkeypatch):
    """Without the gauge the group is too small: rows are compared as they are."""
    monkeypatch.setattr(
        erlangen.symmetry.structures,
        "weight_classes",
        lambda logs, degrees: (np.unique(logs, return_inverse=True)[1], False),
    )
    assert GAUGE in failing()


def test_a_group_of_the_support_alone(monkeypatch):
    real = items.symmetry
    monkeypatch.setattr(
        items,
        "symmetry",
        lambda r, n=None: (
            real(r.support, n or r.own_sizes[0]) if isinstance(r, WeightedRelation) else real(r, n)
        ),
    )
    assert failing() == ALL


def test_slopes_of_the_wrong_sign(monkeypatch):
    real = ALiBi._by_offset
    monkeypatch.setattr(ALiBi, "_by_offset", lambda self, offsets: -real(self, offsets))
    assert KEYS in failing()


def test_a_bias_of_squared_distances(monkeypatch):
    monkeypatch.setattr(
        ALiBi, "_by_offset", lambda self, d: -self.slopes.astype(float)[:, None] * (d * d * 1.0)
    )
    assert KEYS in failing()


def test_the_symbolic_part_alone_fails_on_another_formula(monkeypatch):
    monkeypatch.setattr(
        ALiBi, "_units", lambda self, i, j: [(-1) * np.abs(2 * i - 2 * j) for _ in self.slopes]
    )
    [finding] = run(KEYS)
    assert not finding.verified
    assert "where j <= i" in finding.evidence


def test_buckets_that_count_from_the_end(monkeypatch):
    """A bias by the position of the query is not Toeplitz."""
    real = RelativeBias._by_pair

    def shifted(self, i, j):
        return real(self, i, j + i % 2)

    monkeypatch.setattr(RelativeBias, "_by_pair", shifted)
    monkeypatch.setattr(RelativeBias, "structured", False)
    assert BUCKETS in failing()


def test_queries_taken_for_the_first_positions(monkeypatch):
    real = RelativeBias.toeplitz
    monkeypatch.setattr(
        RelativeBias,
        "toeplitz",
        lambda self, q, k, offset=None: real(self, q, k, 0 if offset is None else offset),
    )
    assert BUCKETS in failing()


def test_the_mixed_difference_decides():
    assert items._row_plus_key([[1, 2], [5, 6]])
    assert not items._row_plus_key([[1, 2], [5, 7]])
    assert items._row_plus_key([[1, None], [5, 7]])
    weighted = Weighted(items.Full(), np.add.outer(np.arange(4), np.array([3, 1, 4, 1])))
    assert items._row_plus_key(items._rational_log_weights(weighted, 4)[0])
    assert symmetry(weighted).order == 2

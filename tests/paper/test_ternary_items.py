"""The items on ternary relations fail when what they are about is broken."""

from __future__ import annotations

import pytest
import torch

import erlangen.nn.ternary_layer
import erlangen.paper.theorems.ternary_items as items
from erlangen.attention import attend, attend_triples
from erlangen.paper.theorems import run
from erlangen.relations import Full, Geometry, Lines, ProjectivePlane, Triangles, Triples
from erlangen.symmetry import symmetry


def fails(*names):
    return [name for name in names if not run(name)[0].verified]


def all_pairs(q, k1, k2, v1, v2, relation):
    return attend_triples(q, k1, k2, v1, v2, Triangles(Full()))


def second_key_ignored(q, k1, k2, v1, v2, relation):
    return attend_triples(q, k1, torch.ones_like(k2), v1, torch.ones_like(v2), relation)


def one_triple_dropped(q, k1, k2, v1, v2, relation):
    bound = relation.on(q.shape[-2])
    return attend_triples(q, k1, k2, v1, v2, Triples(bound.n, bound.triples()[1:]))


@pytest.mark.parametrize("broken", [all_pairs, second_key_ignored, one_triple_dropped])
def test_a_broken_layer_fails_both_items_on_groups(monkeypatch, broken):
    monkeypatch.setattr(erlangen.nn.ternary_layer, "attend_triples", broken)
    assert fails("Fano plane", "group A4") == ["Fano plane", "group A4"]


def test_a_wrong_symmetry_fails_both_items_on_groups(monkeypatch):
    monkeypatch.setattr(items, "symmetry", lambda relation: symmetry(Full(), getattr(relation, "size", 7)))
    assert fails("Fano plane", "group A4") == ["Fano plane", "group A4"]


def test_a_plane_without_one_of_its_lines_fails(monkeypatch):
    lines = ProjectivePlane(2).lines()[1:]
    monkeypatch.setattr(items, "Fano", lambda: Lines(Geometry(7, lines)))
    assert fails("Fano plane") == ["Fano plane"]


def test_an_odd_permutation_among_the_even_ones_fails(monkeypatch):
    real = items._sign
    monkeypatch.setattr(items, "_sign", lambda pi: -real(pi))
    assert fails("group A4") == ["group A4"]


def test_attention_that_adds_its_logits_fails_the_trap(monkeypatch):
    def added(q, k1, k2, v1, v2, relation):
        bound = relation.on(q.shape[-2])
        i, j, last = torch.from_numpy(bound.triples()).T
        logits = (q[0, 0, i] * (k1[0, 0, j] + k2[0, 0, last])).sum(-1)
        powers = logits.exp()
        total = torch.zeros(bound.n, dtype=q.dtype).index_add(0, i, powers)
        products = (powers / total[i])[:, None] * v1[0, 0, j] * v2[0, 0, last]
        return torch.zeros(bound.n, v1.shape[-1], dtype=q.dtype).index_add(0, i, products)[None, None]

    monkeypatch.setattr(items, "attend_triples", added)
    assert fails("additive logits on pairs") == ["additive logits on pairs"]


def test_attention_with_another_scale_is_no_longer_the_factor(monkeypatch):
    real = attend
    monkeypatch.setattr(items, "attend", lambda *a, scale, **o: real(*a, scale=scale / 2, **o))
    assert fails("additive logits on pairs") == ["additive logits on pairs"]

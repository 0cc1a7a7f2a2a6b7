"""Layers over ternary relations and hypergraphs: definitions, symmetries, and that nothing else is kept."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
import torch

import erlangen as er
from erlangen.errors import ParameterError, ShapeError
from erlangen.nn import HypergraphAttention, TripleAttention
from erlangen.relations import (
    Causal,
    Fano,
    FromMask,
    Graph,
    Neighborhoods,
    ProjectivePlane,
    Triangles,
    Triples,
    WindowSquared,
)
from erlangen.symmetry import symmetry


def seeded(layer):
    generator = torch.Generator().manual_seed(0)
    layer = layer.double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) / 1.5)
    return layer


def error(layer, pi, x) -> float:
    """How far f(pi X) is from pi f(X)."""
    back = torch.from_numpy(np.argsort(np.asarray(pi)))
    with torch.no_grad():
        return float((layer(x[back]) - layer(x)[back]).abs().max())


def rows(n: int, width: int = 4) -> torch.Tensor:
    return torch.randn(n, width, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def test_the_layer_by_definition():
    relation, d, heads = Triples(4, [(0, 1, 2), (0, 3, 3), (2, 0, 1), (2, 1, 0), (2, 2, 2)]), 6, 2
    layer, x = seeded(TripleAttention(d, heads, relation)), rows(4, d)
    with torch.no_grad():
        q, k1, k2, v1, v2 = (
            getattr(layer, name)(x).view(4, heads, 3) for name in ("Q", "K1", "K2", "V1", "V2")
        )
        h = torch.zeros(4, heads, 3, dtype=torch.float64)
        for i in range(4):
            for head in range(heads):
                pairs = relation.row(i)
                if not pairs:
                    continue
                logits = [float((q[i, head] * k1[j, head] * k2[m, head]).sum()) / 3**0.5 for j, m in pairs]
                weights = torch.tensor(logits, dtype=torch.float64).softmax(0)
                for weight, (j, m) in zip(weights, pairs, strict=True):
                    h[i, head] += weight * v1[j, head] * v2[m, head]
        torch.testing.assert_close(layer(x), layer.O(h.view(4, d)))
        torch.testing.assert_close(layer(x.expand(3, 4, d)), layer(x).expand(3, 4, d))


@pytest.mark.parametrize(
    "relation",
    [
        Triples(4, [(0, 1, 2), (1, 2, 0), (2, 0, 1)]),
        Triples(5, [(i, (i + 1) % 5, (i + 3) % 5) for i in range(5)]),
        Triples(4, [(0, 1, 1), (1, 0, 0), (2, 3, 3)]),
        Triangles(Graph([(i, (i + s) % 5) for i in range(5) for s in (1, 2, 3)], nodes=5)),
        WindowSquared(1, 1).on(4),
    ],
    ids=repr,
)
def test_the_layer_is_equivariant_to_the_group_of_its_triples_and_to_nothing_else(relation):
    group = symmetry(relation)
    layer, x = seeded(TripleAttention(4, 1, relation)), rows(group.degree)
    for pi in permutations(range(group.degree)):
        off = error(layer, pi, x)
        assert off < 1e-9 if group.contains(pi) else off > 1e-6, pi


def test_equal_values_cannot_tell_the_order_of_a_pair():
    """Special weights: a single pair has weight 1, and with V1 = V2 its order is lost."""
    relation = Triples(3, [(0, 1, 2)])
    layer, x = seeded(TripleAttention(4, 1, relation)), rows(3)
    assert error(layer, [0, 2, 1], x) > 1e-6
    with torch.no_grad():
        layer.V2.weight.copy_(layer.V1.weight)
    assert error(layer, [0, 2, 1], x) < 1e-12


def test_gradients_reach_every_weight():
    layer = TripleAttention(8, 2, Fano())
    layer(torch.randn(2, 7, 8)).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in layer.parameters())
    assert sum(p.numel() for p in layer.parameters()) == 6 * 64


def test_triple_attention_refuses():
    with pytest.raises(ParameterError, match="multiple"):
        TripleAttention(5, 2, Fano())
    with pytest.raises(ParameterError, match="takes a ternary relation such as"):
        TripleAttention(4, 2, Causal())  # pyright: ignore[reportArgumentType]
    with pytest.raises(ShapeError, match="batch"):
        TripleAttention(4, 2, Fano())(torch.zeros(7, 3))


def test_the_former_name_of_the_relation_still_works_and_says_so():
    x = torch.randn(7, 4)
    with pytest.warns(DeprecationWarning, match="hyperrelation= is now relation="):
        layer = TripleAttention(4, 2, hyperrelation=Fano())
    with pytest.warns(DeprecationWarning, match="hyperrelation= is now relation="):
        assert torch.equal(layer(x, hyperrelation=Fano()), layer(x))
    with pytest.warns(DeprecationWarning, match="hyperrelation is now relation"):
        assert layer.hyperrelation == layer.relation == Fano()
    x = x[None]
    with pytest.warns(DeprecationWarning, match="hyperrelation= is now relation="):
        former = er.attend_triples(x, x, x, x, x, hyperrelation=Fano())
    assert torch.equal(former, er.attend_triples(x, x, x, x, x, relation=Fano()))


def test_hypergraph_attention_by_definition():
    incidence = FromMask([[1, 0], [1, 1], [0, 1], [0, 0]])
    layer, x = seeded(HypergraphAttention(4, 1, incidence)), rows(4)
    with torch.no_grad():
        up, down = layer.to_hyperedges, layer.to_nodes
        z = torch.zeros(2, 4, dtype=torch.float64)
        for e, members in enumerate(([0, 1], [1, 2])):
            weights = (up.K(x[members]) @ up.Q(layer.seed) / 2).softmax(0)
            z[e] = up.O(weights @ up.V(x[members]))
        wanted = torch.zeros(4, 4, dtype=torch.float64)
        for i, edges in enumerate(([0], [0, 1], [1], [])):
            if edges:
                weights = (down.K(z[edges]) @ down.Q(x[i]) / 2).softmax(0)
                wanted[i] = down.O(weights @ down.V(z[edges]))
        torch.testing.assert_close(layer(x), wanted)


def test_hypergraph_attention_keeps_exactly_the_automorphisms_of_the_incidence():
    plane = ProjectivePlane(2)
    lines = {frozenset(line) for line in plane.lines()}
    layer, x = seeded(HypergraphAttention(4, 2, plane.incidence())), rows(7)
    group = symmetry(Fano())
    for pi in group.generators:
        assert error(layer, pi, x) < 1e-9
    rng = np.random.default_rng(0)
    outside = [pi for pi in (rng.permutation(7) for _ in range(30)) if not group.contains(pi)]
    assert len(outside) > 20
    for pi in outside:
        assert {frozenset(pi[list(line)].tolist()) for line in lines} != lines
        assert error(layer, pi, x) > 1e-6


def test_hypergraph_attention_refuses():
    with pytest.raises(ParameterError, match="FromMask"):
        HypergraphAttention(4, 1, Causal())  # pyright: ignore[reportArgumentType]
    layer = HypergraphAttention(4, 1, Neighborhoods.from_edges(3, 2, [(0, 0), (2, 1)]))
    assert layer(torch.zeros(5, 3, 4)).shape == (5, 3, 4)
    with pytest.raises(ShapeError, match="3, 4"):
        layer(torch.zeros(4, 4))

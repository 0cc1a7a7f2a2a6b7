"""Weighted relations: their numbers against the definitions and the libraries that made them known."""

from __future__ import annotations

import copy
import pickle
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.t5.modeling_t5 import T5Attention

from erlangen.errors import ErlangenError, ParameterError, SizeError
from erlangen.nn import RelativeBias as Module
from erlangen.relations import (
    ALiBi,
    Batch,
    Causal,
    Decay,
    Distance,
    Documents,
    Full,
    Graph,
    Identity,
    Padding,
    PerHead,
    RelativeBias,
    Ring,
    Weighted,
    Window,
)
from erlangen.relations.weighted.position_buckets import buckets_of

RING = [(i, (i + s) % 6) for i in range(6) for s in (1, -1)]
TABLE = [[0.0, 0.5, -1.0, 2.0, 1.5, -2.0, 3.0, 0.25], [1.0, 0.0, 2.0, 0.0, -1.0, 4.0, 2.5, 1.0]]

EVERY_KIND = [
    ALiBi(0.5),
    ALiBi([Fraction(1, 3), 2], relation=Full()),
    ALiBi([1, 2]) & Documents([2, 4]),
    Decay([0.9, 0.5]),
    Decay(0.9, relation=Window(2, 2)),
    RelativeBias(TABLE, max_distance=5),
    RelativeBias(TABLE[0], max_distance=9, bidirectional=False, relation=Causal()),
    Distance(Graph(RING, nodes=6), [[0, -1, -2], [1, 1, 0]]),
    Weighted(Causal(), np.arange(36.0).reshape(6, 6)),
    Weighted(Window(1), np.arange(72).reshape(2, 6, 6)),
    Weighted(Full(), offsets={-1: 0.5, 0: 1, 2: -3}),
    Weighted(Causal(), offsets={0: (1, 2), -3: (0.5, 0)}),
    Weighted(Graph(RING, nodes=6), edges=np.arange(12.0)),
    Weighted(Graph(RING, nodes=6), edges=np.arange(24).reshape(2, 12)),
]


@pytest.mark.parametrize("weighted", EVERY_KIND, ids=str)
def test_the_forms_agree(weighted):
    """Vector, edges, dense matrix, rows and normalised rows tell the same."""
    bound = weighted.on(6)
    dense = bound.dense()
    assert dense.shape == (weighted.heads, 6, 6)
    assert np.array_equal(np.isfinite(dense), np.broadcast_to(bound.neighborhoods.dense(), dense.shape))
    edges = bound.neighborhoods.edges()
    assert np.array_equal(weighted.per_edge(bound.neighborhoods), dense[:, edges[:, 0], edges[:, 1]])
    if weighted.structured:
        vector = weighted.toeplitz(6, 6)
        assert vector.shape == (weighted.heads, 11)
        for i, j in edges.tolist():
            assert np.array_equal(vector[:, j - i + 5], dense[:, i, j])
    else:
        with pytest.raises(ParameterError, match="per_edge"):
            weighted.toeplitz(6, 6)
    shares = bound.normalised()
    for i in range(6):
        row = dense[:, i][:, np.isfinite(dense[0, i])]
        assert np.array_equal(bound.log_weights(i), row)
        if row.shape[1]:
            expected = np.exp(row) / np.exp(row).sum(1, keepdims=True)
            assert np.allclose(bound.weights(i), expected)
            assert np.allclose(shares[:, edges[:, 0] == i], expected)


@pytest.mark.parametrize("weighted", EVERY_KIND, ids=str)
def test_fewer_queries_are_the_last_rows(weighted):
    whole = weighted.on(6).dense()
    part = weighted.on(2, 6)
    assert np.array_equal(part.dense(), whole[:, 4:])
    if weighted.structured:
        # Rows 3 and 4 of six, and keys 1 to 4: the offset of row 0 from key 0 is 2.
        vector = weighted.toeplitz(2, 4, offset=2)
        for i in range(2):
            for j in range(4):
                if np.isfinite(whole[0, 3 + i, 1 + j]):
                    assert np.array_equal(vector[:, j - i + 1], whole[:, 3 + i, 1 + j])


@pytest.mark.parametrize("weighted", EVERY_KIND, ids=str)
def test_values(weighted):
    """Frozen, hashable, copied and pickled by value; unequal when a number or the support differs."""
    for other in (copy.copy(weighted), copy.deepcopy(weighted), pickle.loads(pickle.dumps(weighted))):
        assert other == weighted
        assert hash(other) == hash(weighted)
        assert repr(other) == repr(weighted)
    with pytest.raises(AttributeError, match="frozen"):
        weighted.support = Full()
    if not isinstance(weighted, Weighted) or weighted.edges is None:
        assert weighted.with_support(Identity()) != weighted
    assert weighted != weighted.support
    assert weighted.on(6) == weighted.on(6)
    assert weighted.on(6) != weighted.with_support(weighted.support).on(2, 6)


def test_equality_is_of_numbers_and_support():
    assert ALiBi([0.5]) == ALiBi(Fraction(1, 2)) == ALiBi(torch.tensor([0.5]))
    assert ALiBi(0.5) != ALiBi(0.25)
    assert ALiBi(0.5) != ALiBi([0.5, 0.5])
    assert ALiBi(0.5) != Decay(0.5)
    assert RelativeBias(TABLE) != RelativeBias(TABLE, max_distance=64)
    assert Decay(0.5).on(5) == ALiBi(float(-np.log(0.5))).on(5)
    # Toeplitz vectors that differ only where nothing is read are the same weights.
    assert Weighted(Causal(), offsets={3: 1}).on(5) == Weighted(Causal(), offsets={2: 7}).on(5)
    assert Weighted(Causal(), offsets={-3: 1}).on(5) != Weighted(Causal(), offsets={-3: 2}).on(5)
    assert ALiBi(1).on(10**6) == ALiBi(1).on(10**6)
    assert ALiBi(1).on(10**6) != ALiBi(2).on(10**6)


def test_supports_are_narrowed():
    assert ALiBi(1) & Window(2) == ALiBi(1, relation=Window(2)) == Window(2) & ALiBi(1)
    padded = RelativeBias(TABLE) & Batch([Padding(3), Padding(5)])
    assert padded.support == Batch([Padding(3), Padding(5)])
    per_head = ALiBi([1, 2]) & PerHead([Causal(), Full()])
    assert per_head.support == PerHead([Causal(), Causal()])
    graph = Weighted(Graph(RING, nodes=6), edges=np.arange(12.0))
    fewer = graph & Graph([(0, 1), (3, 2), (5, 5)], nodes=6)
    assert np.array_equal(fewer.on(6).dense()[0][[0, 3], [1, 2]], graph.on(6).dense()[0][[0, 3], [1, 2]])
    with pytest.raises(ParameterError, match="several relations"):
        padded.on(6)
    with pytest.raises(TypeError):
        ALiBi(1) & ALiBi(2)


# ------------------------------------------------------------------- against the libraries


@pytest.mark.parametrize("heads", [1, 2, 3, 4, 5, 7, 8, 12, 16, 20, 31, 32, 64, 112])
def test_slopes_and_biases_are_those_of_bloom(heads):
    theirs = build_alibi_tensor(torch.ones(1, 9), heads, torch.float32).reshape(heads, 9)
    slopes = ALiBi.slopes_for(heads)
    assert np.allclose(slopes, theirs[:, 1].numpy(), rtol=1e-5)
    # BLOOM adds m j, a bias of the key alone; up to the gauge (a constant per row) it is m (j - i).
    ours = ALiBi(slopes).on(9).normalised()
    rows = [torch.softmax(theirs[:, : i + 1].double(), dim=1).numpy() for i in range(9)]
    assert np.allclose(ours, np.concatenate(rows, axis=1), atol=1e-6)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("buckets", [4, 6, 8, 16, 20, 32, 64, 320])
def test_buckets_are_those_of_t5(buckets, bidirectional):
    offsets = np.arange(-2500, 2501)
    for max_distance in (81, 100, 128, 200, 256, 800, 1000, 2048):
        exact = (buckets // 2 if bidirectional else buckets) // 2
        if max_distance > exact:
            theirs = T5Attention._relative_position_bucket(
                torch.from_numpy(offsets), bidirectional, buckets, max_distance
            )
            ours = buckets_of(offsets, buckets, max_distance, bidirectional)
            assert np.array_equal(ours, theirs.numpy())
    # A neighbouring bucketing is another one: the comparison can fail.
    assert not np.array_equal(
        buckets_of(offsets, buckets, 129, bidirectional), buckets_of(offsets, buckets + 2, 129, bidirectional)
    )


def test_retention_weights():
    weights = np.exp(Decay([0.9, 0.5]).on(5).dense())
    i, j = np.indices((5, 5))
    for head, rate in enumerate((0.9, 0.5)):
        assert np.allclose(weights[head], np.where(j <= i, rate ** (i - j).clip(0).astype(float), 0))


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 7).flatmap(
        lambda n: st.tuples(st.just(n), st.sets(st.tuples(*[st.integers(0, n - 1)] * 2)), st.integers(1, 6))
    )
)
def test_distances_are_those_of_a_search(drawn):
    n, edges, length = drawn
    weighted = Distance(Graph(sorted(edges), nodes=n), list(range(length)))
    expected = np.full((n, n), length - 1)
    for source in range(n):
        reached, step = {source}, 0
        seen = {source: 0}
        while reached:
            reached = {b for a, b in edges if a in reached} - seen.keys()
            step += 1
            seen |= dict.fromkeys(reached, step)
        for target, distance in seen.items():
            expected[source, target] = min(distance, length - 1)
    assert np.array_equal(weighted.on(n).dense()[0], expected)


def test_distance_matches_networkx():
    networkx = pytest.importorskip("networkx")
    graph = networkx.petersen_graph()
    weighted = Distance(graph, [0, -1, -2, -9])
    lengths = dict(networkx.all_pairs_shortest_path_length(graph))
    dense = weighted.on(10).dense()[0]
    assert all(dense[i, j] == -lengths[i][j] for i in range(10) for j in range(10))


# ----------------------------------------------------------------------- sizes and gradients


def test_a_million_positions_stay_a_vector():
    bound = ALiBi(ALiBi.slopes_for(8)).on(1_000_000)
    assert bound.toeplitz.shape == (8, 1_999_999)
    assert bound.num_edges == 500_000_500_000
    assert np.allclose(bound.weights(3).sum(1), 1)


def test_learned_numbers_stay_tensors_and_receive_gradients():
    module = Module(2, buckets=8, max_distance=20)
    weighted = module(Causal())
    assert weighted.table is module.table
    vector = weighted.toeplitz(5, 7)
    assert vector.shape == (2, 11)
    assert vector.requires_grad
    vector.sum().backward()
    counts = np.bincount(buckets_of(np.arange(-6, 5), 8, 20), minlength=8)
    assert torch.equal(module.table.grad, torch.from_numpy(counts).float().expand(2, 8))
    slopes = torch.tensor([0.5, 0.25], requires_grad=True)
    ALiBi(slopes).toeplitz(3, 3).sum().backward()
    assert torch.equal(slopes.grad, torch.tensor([-6.0, -6.0]))
    rate = torch.tensor([0.5], requires_grad=True)
    Decay(rate).per_edge(Causal().on(3)).sum().backward()
    assert torch.allclose(rate.grad, torch.tensor([8.0]))  # sum of distances / rate
    for kind in ("bias", "edges"):
        values = torch.zeros(2, 6, 6) if kind == "bias" else torch.zeros(2, 12)
        values.requires_grad_()
        given_values = Weighted(Graph(RING, nodes=6), **{kind: values})
        given_values.per_edge(Graph(RING, nodes=6).on(6)).sum().backward()
        assert values.grad.sum() == 24
    table = torch.zeros(3, requires_grad=True)
    Distance(Graph(RING, nodes=6), table).per_edge(Full().on(6)).sum().backward()
    assert table.grad.tolist() == [6.0, 12.0, 18.0]
    assert str(module) == "RelativeBias(2, buckets=8, max_distance=20, bidirectional=True)"


def test_exact_numbers_are_kept():
    assert ALiBi([Fraction(1, 3)]).slopes.tolist() == [Fraction(1, 3)]
    assert repr(ALiBi(Fraction(1, 3))) == "ALiBi(slopes=[Fraction(1, 3)])"
    assert ALiBi([1, 2]).slopes.dtype == np.int64


# --------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ALiBi("a"), "numbers"),
        (lambda: ALiBi([[1]]), "shape"),
        (lambda: ALiBi([True]), "numbers"),
        (lambda: ALiBi([float("nan")]), "finite"),
        (lambda: ALiBi([Fraction(1), float("inf")]), "finite"),
        (lambda: ALiBi([[1], [1, 2]]), "equally long|numbers"),
        (lambda: ALiBi(torch.tensor([1])), "floating-point"),
        (lambda: ALiBi(1, relation="Causal()"), "takes a Relation"),
        (lambda: ALiBi.slopes_for(0), ">= 1"),
        (lambda: Decay(0), "> 0"),
        (lambda: Decay([0.5, -1]), "> 0"),
        (lambda: RelativeBias([[0, 0, 0]]), "at least 4|even"),
        (lambda: RelativeBias([[0] * 7]), "even"),
        (lambda: RelativeBias([0] * 32, max_distance=8), "beyond the 8"),
        (lambda: Distance(Graph([(0, 1)]), [0]), "number of nodes"),
        (lambda: Distance(Ring(1, 1), [0]), "number of nodes"),
        (lambda: Distance(Graph([(0, 1)], nodes=2), []), "distance 0"),
        (lambda: Distance(Graph([(0, 1)], nodes=2), [0, 1]).on(3), "position 2"),
        (lambda: Weighted(Causal()), "one of bias"),
        (lambda: Weighted(Causal(), [[0]], offsets={0: 1}), "one of bias"),
        (lambda: Weighted(Causal(), [[0, float("-inf")]]), "belongs outside"),
        (lambda: Weighted(Causal(), [[0, 1], [1, 0]]).on(3), "positions up to 2"),
        (lambda: Weighted(Causal(), [[0, 1], [1, 0]]).on(1), "2 keys"),
        (lambda: Weighted(Causal(), edges=[0, 1]), "size of its own"),
        (lambda: Weighted(Graph([(0, 1)]), edges=[0, 1]), "each of the 1 edges"),
        (lambda: Weighted(Graph([(0, 1)]), edges=[0]) & Causal(), "size of its own"),
        (lambda: Weighted(Causal(), offsets=[1, 2]), "j - i"),
        (lambda: Weighted(Causal(), offsets=[(0, 1), (0, 2)]), "twice"),
        (lambda: Weighted(Causal(), offsets={0: torch.tensor(1.0)}), "RelativeBias"),
        (lambda: Module(0), ">= 1"),
        (lambda: Module(2, buckets=3), "at least 4|even"),
    ],
)
def test_refusals(make, message):
    with pytest.raises(ErlangenError, match=message):
        make()


def test_no_edge_is_invented():
    weighted = Weighted(Graph([(0, 1)], nodes=3), edges=[2.0])
    with pytest.raises(SizeError, match=r"no edge \(0, 0\)"):
        weighted.per_edge(Identity().on(3))

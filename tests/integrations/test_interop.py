"""Masks, BlockMasks and graphs of other libraries, both ways."""

from __future__ import annotations

import warnings

import networkx
import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention.flex_attention import create_block_mask, create_mask, flex_attention

import erlangen as er
from erlangen.errors import ParameterError, SizeError
from erlangen.integrations import flex, graphs, masks
from erlangen.testing.strategies import LEAVES, relations

SAMPLES = {
    "window": er.Window(200, 3),
    "causal": er.Causal(),
    "ring": er.Ring(5, 2),
    "bigbird": er.Window(30, 30) | er.Global(keys=[0, 1], queries=[0]) | er.Random(3, seed=1),
    "documents": er.Documents([100, 211, 1]) & er.Causal(),
    "two steps": er.Dilated(7) @ er.Window(3),
    "empty": er.Empty(),
    "full": er.Full(),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_block_mask_equals_create_block_mask(name):
    relation, n = SAMPLES[name], 312
    ours = flex.block_mask(relation, n)
    mod = flex.mask_mod(relation, n)
    theirs = create_block_mask(mod, None, None, n, n, device="cpu", BLOCK_SIZE=128)
    for field in ("kv_num_blocks", "full_kv_num_blocks", "kv_indices", "full_kv_indices"):
        assert torch.equal(getattr(ours, field), getattr(theirs, field)), field
    assert torch.equal(ours.to_dense(), theirs.to_dense())
    assert ours.seq_lengths == theirs.seq_lengths
    dense = torch.from_numpy(relation.on(n).dense())
    assert torch.equal(create_mask(ours.mask_mod, 1, 1, n, n, device="cpu")[0, 0], dense)
    assert flex.from_block_mask(ours) == er.FromMask(dense)


@pytest.mark.parametrize("kind", sorted(LEAVES, key=lambda c: c.__name__), ids=lambda c: c.__name__)
@given(data=st.data())
@settings(max_examples=5)
def test_every_relation_is_a_mask_mod(kind, data):
    n = data.draw(st.integers(1, 8))
    relation = data.draw(LEAVES[kind](n))
    expected = torch.from_numpy(relation.on(n).dense())
    by_holds = create_mask(lambda b, h, i, j: relation.holds(i, j, n), 1, 1, n, n, device="cpu")
    assert torch.equal(by_holds[0, 0], expected)
    by_mod = create_mask(flex.mask_mod(relation, n), 1, 1, n, n, device="cpu")
    assert torch.equal(by_mod[0, 0], expected)


def test_block_mask_per_head_per_item_and_behind_a_cache():
    family = er.Batch([er.PerHead([er.Causal(), er.Window(9)]), er.PerHead([er.Dilated(3), er.Full()])])
    ours = flex.block_mask(family, 5, 130, batch=2, heads=2)
    dense = create_mask(ours.mask_mod, 2, 2, 5, 130, device="cpu")
    assert torch.equal(dense, masks.mask(family, 5, 130))
    assert flex.from_block_mask(ours) == er.Batch(
        [er.PerHead([er.FromMask(head) for head in item]) for item in dense]
    )
    arithmetic = flex.block_mask(er.Causal(), 5, 130)
    assert torch.equal(
        create_mask(arithmetic.mask_mod, 1, 1, 5, 130, device="cpu")[0, 0], masks.mask(er.Causal(), 5, 130)
    )


def test_block_mask_drives_flex_attention():
    relation, n = SAMPLES["bigbird"], 256
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2, n, 16) for _ in range(3))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="flex_attention called without torch.compile")
        out = flex_attention(q, k, v, block_mask=flex.block_mask(relation, n))
    assert torch.allclose(out, er.attend(q, k, v, relation, backend="reference"), atol=1e-5)


@given(st.data())
@settings(max_examples=50)
def test_masks_round_trip(data):
    n = data.draw(st.integers(1, 8))
    relation = data.draw(relations(n))
    queries = data.draw(st.integers(1, n))
    dense = masks.mask(relation, queries, n)
    assert er.FromMask(dense).on(queries, n) == relation.on(queries, n)
    assert masks.from_additive(masks.additive(relation, queries, n)) == er.FromMask(dense)
    arguments = masks.sdpa_arguments(relation, queries, n)
    q, k, v = torch.randn(1, queries, 4), torch.randn(1, n, 4), torch.randn(1, n, 4)
    full_rows = dense.any(-1)
    got = torch.nn.functional.scaled_dot_product_attention(q, k, v, **arguments)
    assert torch.allclose(
        got[:, full_rows], er.attend(q, k, v, relation, backend="reference")[:, full_rows], atol=1e-6
    )


def test_additive_masks_with_weights_are_refused():
    with pytest.raises(ParameterError, match=r"-0\.5"):
        masks.from_additive(torch.tensor([[0.0, -0.5]]))
    for kind in (torch.bool, torch.int64, torch.uint8, torch.complex64):
        with pytest.raises(ParameterError, match=f"an additive mask is a tensor of floats, got {kind}"):
            masks.from_additive(torch.zeros(2, 2, dtype=kind))
    low = torch.finfo(torch.float32).min
    assert masks.from_additive(torch.tensor([[0.0, low]])) == er.FromMask([[True, False]])


@given(st.data())
@settings(max_examples=50)
def test_graphs_round_trip(data):
    n = data.draw(st.integers(1, 8))
    bound = data.draw(relations(n)).on(n)
    index = graphs.to_edge_index(bound)
    assert er.Graph(index, nodes=n).on(n) == bound
    assert er.Graph.from_edge_index(index, num_nodes=n).on(n) == bound
    assert er.Graph(graphs.to_networkx(bound)).on(n) == bound
    assert er.Graph(graphs.to_scipy(bound)).on(n) == bound
    assert np.array_equal(graphs.to_scipy(bound).toarray(), bound.dense())


def test_arcs_point_from_the_key_to_the_query():
    arc = networkx.DiGraph([("a", "b")])  # a -> b: b reads a
    assert er.Graph(arc).edges().tolist() == [[1, 0]]
    assert er.Graph(networkx.Graph([(0, 1)])).edges().tolist() == [[0, 1], [1, 0]]
    assert er.Graph(torch.tensor([[0], [1]])).edges().tolist() == [[1, 0]]
    with pytest.warns(UserWarning, match="no weights"):
        assert er.Graph(scipy.sparse.csr_matrix(np.array([[0, 3], [0, 0]]))).edges().tolist() == [[0, 1]]
    with pytest.raises(SizeError, match="one set of nodes"):
        graphs.to_networkx(er.Full().on(2, 3))

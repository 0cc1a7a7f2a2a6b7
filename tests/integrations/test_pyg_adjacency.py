"""Graphs given to `RelationConv` as matrices and as PyG's `EdgeIndex`: what PyG's layers make of them."""

from __future__ import annotations

import pytest
import torch
from torch_geometric import EdgeIndex
from torch_geometric.typing import SparseTensor

from erlangen.errors import ParameterError, ShapeError
from erlangen.integrations.pyg import RelationConv
from pyg_layers import LAYERS, N, assert_same, pair, randn, random_edges

# PyTorch says this once of every process that makes sparse tensors.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled"),
    pytest.mark.filterwarnings("ignore:Sparse CS[RC] tensor support is in beta state"),
]


def matrix(edges: torch.Tensor, layout: str, targets: int = N, sources: int = N, values=None) -> torch.Tensor:
    """The matrix (targets, sources) of edges, as PyG takes it; its values may be vectors."""
    values = torch.ones(edges.shape[1], dtype=torch.double) if values is None else values
    size = (targets, sources, *values.shape[1:])
    coo = torch.sparse_coo_tensor(edges.flip(0), values, size).coalesce()
    if layout == "coo":
        return coo
    rows, columns = coo.indices()
    starts = torch.searchsorted(rows, torch.arange(targets + 1))
    return torch.sparse_csr_tensor(starts, columns, coo.values(), size)


@pytest.mark.parametrize("kernel", LAYERS)
@pytest.mark.parametrize("layout", ["coo", "csr"])
class TestMatrices:
    def test_a_matrix_is_its_edges(self, kernel, layout):
        theirs, ours = pair(kernel, 5, 4, heads=2)
        given = matrix(random_edges(), layout)
        assert_same(theirs, ours, randn(N, 5), given)
        torch.testing.assert_close(ours(randn(N, 5), given), ours(randn(N, 5), random_edges()))

    def test_between_other_numbers_of_targets_and_sources(self, kernel, layout):
        theirs, ours = pair(kernel, 5, 4, heads=2)
        given = matrix(random_edges(N, 7), layout, 7, N)
        assert_same(theirs, ours, (randn(N, 5), randn(7, 5)), given)
        if kernel == "additive":
            assert_same(theirs, ours, (randn(N, 5), None), given)
        with pytest.raises(ShapeError, match=r"size \(12, 7\) does not fit 12 sources and 12 targets"):
            ours(randn(N, 5), given)

    def test_self_loops_that_are_there(self, kernel, layout):
        theirs, ours = pair(kernel, 5, 4, heads=2)
        edges = torch.cat(
            [random_edges()[:, random_edges()[0] != random_edges()[1]], torch.full((2, 1), 3)], 1
        )
        assert_same(theirs, ours, randn(N, 5), matrix(edges, layout))

    def test_weights(self, kernel, layout):
        theirs, ours = pair(kernel, 5, 4, heads=2)
        given = matrix(random_edges(), layout)
        assert_same(theirs, ours, randn(N, 5), given, return_attention_weights=True)
        (_, (index, _)), (_, (our_index, _)) = (
            layer(randn(N, 5), given, return_attention_weights=True) for layer in (theirs, ours)
        )
        assert our_index.layout == index.layout
        torch.testing.assert_close(our_index.to_dense(), index.to_dense())

    def test_values_that_are_vectors_are_features(self, kernel, layout):
        theirs, ours = pair(kernel, 5, 4, heads=2, edge_dim=3)
        given = matrix(random_edges(), layout, values=randn(40, 3))
        assert_same(theirs, ours, randn(N, 5), given)
        torch.testing.assert_close(ours(randn(N, 5), given), ours(randn(N, 5), random_edges(), randn(40, 3)))

    def test_features_go_with_the_entries_in_their_order(self, kernel, layout):
        theirs, ours = pair(kernel, 5, 4, heads=2, edge_dim=3)
        given, features = matrix(random_edges(), layout), randn(40, 3)
        if kernel == "dot":  # PyG's others fail: they have no way to give them to self loops as well
            assert_same(theirs, ours, randn(N, 5), given, edge_attr=features)
        order = (random_edges()[1] * N + random_edges()[0]).argsort()
        torch.testing.assert_close(
            ours(randn(N, 5), given, features), ours(randn(N, 5), random_edges()[:, order], features)
        )


@pytest.mark.parametrize("kernel", LAYERS)
def test_a_matrix_in_columns_is_refused_as_in_pyg(kernel):
    theirs, ours = pair(kernel, 5, 4)
    columns = matrix(random_edges(N, 7), "coo", 7, N).to_sparse_csc()
    x = (randn(N, 5), randn(7, 5))
    with pytest.raises(ValueError, match="layout"):
        theirs(x, columns)
    with pytest.raises(ParameterError, match=r"got CSC of shape \(7, 12\)"):
        ours(x, columns)
    torch.testing.assert_close(ours(x, columns.to_sparse_csr()), ours(x, random_edges(N, 7)))


@pytest.mark.parametrize("kernel", LAYERS)
def test_a_matrix_with_entries_in_any_order(kernel):
    """PyG's TransformerConv asks for `coalesce()` here, and the others do not."""
    theirs, ours = pair(kernel, 5, 4, heads=2)
    edges = random_edges()
    unsorted = torch.sparse_coo_tensor(edges.flip(0), torch.ones(40), (N, N))
    assert not unsorted.is_coalesced()
    expected = theirs(randn(N, 5), edges)
    torch.testing.assert_close(ours(randn(N, 5), unsorted), expected)
    ours.register_message_forward_hook(lambda *_: None)
    torch.testing.assert_close(ours(randn(N, 5), unsorted), expected)


def test_features_of_a_matrix_with_entries_in_any_order_are_refused():
    unsorted = torch.sparse_coo_tensor(random_edges().flip(0), torch.ones(40), (N, N))
    conv = RelationConv(5, 4, edge_dim=3)
    with pytest.raises(ParameterError, match=r"coalesce\(\) it first"):
        conv(torch.randn(N, 5), unsorted, torch.randn(40, 3))
    assert conv(torch.randn(N, 5), unsorted.coalesce(), torch.randn(40, 3)).shape == (N, 4)


@pytest.mark.parametrize("kernel", LAYERS)
@pytest.mark.parametrize("order", [None, "row", "col"])
def test_edge_index_of_pyg(kernel, order):
    theirs, ours = pair(kernel, 5, 4, heads=2)
    edges = EdgeIndex(random_edges(N, 7), sparse_size=(N, 7))
    if order is not None:
        edges, _ = edges.sort_by(order)
    x = (randn(N, 5), randn(7, 5))
    assert_same(theirs, ours, x, edges)
    torch.testing.assert_close(ours(x, edges), ours(x, edges.as_tensor()))
    with pytest.raises(ShapeError, match=r"size \(12, 7\) does not fit"):
        ours(randn(N, 5), edges)
    unsized = EdgeIndex(random_edges(N, 7))
    torch.testing.assert_close(ours(x, unsized), theirs(x, unsized))


def test_a_sparse_tensor_of_torch_sparse_is_refused():
    given = SparseTensor.__new__(SparseTensor)  # PyG has the class even where torch_sparse is not installed
    with pytest.raises(ParameterError, match=r"give its to_torch_sparse_csr_tensor\(\)"):
        RelationConv(5, 4)(torch.randn(N, 5), given)

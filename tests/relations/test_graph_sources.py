"""Graphs from lists, arrays, tensors, networkx and scipy: nothing renumbered, dropped, turned in silence."""

from __future__ import annotations

import tracemalloc
import warnings

import networkx
import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import erlangen as er
from erlangen.errors import ErlangenError, ParameterError
from erlangen.relations.neighborhoods import Neighborhoods

EDGES = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=12)


@given(EDGES, st.permutations(range(7)), st.booleans())
@settings(max_examples=150, deadline=None)
def test_integer_labels_are_positions_in_whatever_order_they_came(edges, order, directed):
    graph = networkx.DiGraph() if directed else networkx.Graph()
    graph.add_nodes_from(order)
    graph.add_edges_from((key, query) for query, key in edges)  # an arc key -> query
    both = edges if directed else [*edges, *((key, query) for query, key in edges)]
    assert er.Graph(graph) == er.Graph(both, nodes=7)
    assert er.Graph(networkx.relabel_nodes(graph, np.int64)) == er.Graph(both, nodes=7)


@pytest.mark.parametrize(
    "labels", [[1, 2, 3], [0, 2], [-1, 0], [0, "a"], [True, False], [10**30, 0], [0, 1, 1.5]]
)
def test_labels_that_are_no_positions_are_refused(labels):
    graph = networkx.Graph()
    graph.add_nodes_from(labels)
    with pytest.raises(ParameterError, match="convert_node_labels_to_integers"):
        er.Graph(graph)


def test_other_labels_are_numbered_as_they_came():
    assert er.Graph(networkx.DiGraph([("b", "a"), ("a", "c")])).edges().tolist() == [[1, 0], [2, 1]]
    assert er.Graph(networkx.grid_2d_graph(2, 2)).nodes == 4


def quiet(source):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return er.Graph(source)


@pytest.mark.parametrize("kind", [scipy.sparse.csr_matrix, scipy.sparse.coo_array, scipy.sparse.lil_matrix])
def test_weights_are_said_not_dropped_in_silence(kind):
    for weights in ([[0, 3], [1, 0]], [[0, 0.5], [1, 0]], [[0, -1], [1, 0]], [[0, np.nan], [1, 0]]):
        with pytest.warns(UserWarning, match="matrix != 0"):
            assert er.Graph(kind(np.array(weights))).edges().tolist() == [[0, 1], [1, 0]]
    for plain in (
        np.array([[0, 1], [1, 0]]),
        np.array([[0.0, 1], [1, 0]]),
        np.array([[False, True], [True, False]]),
    ):
        assert quiet(kind(plain)).edges().tolist() == [[0, 1], [1, 0]]


@pytest.mark.parametrize("kind", ["i1", "u1", "i2", "i4", "u8", "f4", "f8", "c8", "?"])
@pytest.mark.parametrize("make", [scipy.sparse.coo_matrix, scipy.sparse.coo_array, scipy.sparse.csr_matrix])
def test_an_edge_is_stored_however_often_and_whatever_the_entries_add_up_to(kind, make):
    bits = np.dtype(kind).itemsize * 8
    value = 2 ** (bits - 2) if np.dtype(kind).kind in "iu" else 1
    for values in ([value] * 4, [1] * 256, [1, -1] if np.dtype(kind).kind in "ifc" else [1, 1]):
        data = np.array(values, dtype=kind)
        if make is scipy.sparse.csr_matrix:
            matrix = make((data, np.ones(data.size, int), np.array([0, data.size, data.size])), shape=(2, 2))
        else:
            matrix = make((data, (np.zeros(data.size, int), np.ones(data.size, int))), shape=(2, 2))
        if kind == "?":  # as often as they are stored, booleans weigh nothing
            assert quiet(matrix) == er.Graph([(0, 1)], nodes=2)
        else:
            with pytest.warns(UserWarning, match="store one entry for each edge"):
                assert er.Graph(matrix) == er.Graph([(0, 1)], nodes=2)
        assert matrix.nnz == data.size  # what was given is not changed
    zeros = scipy.sparse.coo_matrix((np.zeros(2, kind), ([0, 0], [1, 1])), shape=(2, 2))
    assert quiet(zeros) == er.Graph([], nodes=2)


def test_weights_of_networkx_are_said():
    weighted = networkx.Graph([(0, 1)])
    assert quiet(weighted).nodes == 2
    weighted.add_edge(0, 1, weight=2.0)
    with pytest.warns(UserWarning, match="no weights"):
        er.Graph(weighted)


@pytest.mark.parametrize("several", [np.array([1, 2]), torch.tensor([1, 2]), torch.tensor([[1.0, 0.0]])])
@pytest.mark.parametrize("make", [networkx.Graph, networkx.DiGraph, networkx.MultiGraph])
def test_weights_of_networkx_that_are_no_numbers_are_refused(make, several):
    graph = make([(1, 0)])
    graph.add_edge(0, 1, weight=several)
    with pytest.raises(ParameterError, match=r"takes weights that are numbers, got .* on the edge \("):
        er.Graph(graph)
    for single in (np.array(1), np.array([1.0]), torch.tensor(1)):
        assert quiet(make([(0, 1, {"weight": single})])).nodes == 2


@given(st.lists(st.integers(0, 3), min_size=4, max_size=4))
@settings(max_examples=100, deadline=None)
def test_an_array_and_the_same_tensor_are_never_opposite(numbers):
    array = np.array(numbers).reshape(2, 2)
    tensor = er.Graph(torch.from_numpy(array))
    assert tensor == er.Graph.from_edge_index(array) == er.Graph.from_edge_index(torch.from_numpy(array))
    if er.Graph.from_pairs(array) == tensor:
        assert er.Graph(array) == tensor
    else:
        with pytest.raises(ParameterError, match=r"from_pairs\(array\) or Graph.from_edge_index"):
            er.Graph(array)
    assert (
        er.Graph(array.tolist()) == er.Graph.from_pairs(array) == er.Graph.from_pairs(torch.from_numpy(array))
    )


def test_relations_made_of_two_edges_inside_are_not_refused():
    for edges in ([(0, 1), (0, 2)], [(0, 0), (1, 0)], [(2, 1), (1, 1)]):
        graph = er.Graph(edges)
        assert graph == graph.T.T
        assert er.Graph(graph) == graph
    assert er.Triples(3, [(0, 1, 2)]).shadow().edges().tolist() == [[0, 1], [0, 2]]


@given(st.integers(0, 9), st.integers(0, 9), st.data())
@settings(max_examples=200, deadline=None)
def test_edges_of_every_integer_type_are_the_same_sets(queries, keys, data):
    pair = st.tuples(st.integers(0, max(queries - 1, 0)), st.integers(0, max(keys - 1, 0)))
    edges = data.draw(st.lists(pair, max_size=20)) if queries and keys else []
    dense = np.zeros((queries, keys), bool)
    for i, j in edges:
        dense[i, j] = True
    kind = data.draw(st.sampled_from(["i1", "u1", "i2", "u4", "i8", "u8", ">i4"]))
    bound = Neighborhoods.from_edges(queries, keys, np.array(edges, kind).reshape(-1, 2))
    assert bound == Neighborhoods.from_dense(dense)
    assert [array.dtype for array in (bound.indptr, bound.starts, bound.stops)] == [np.int64] * 3


def test_many_edges_need_little_more_than_their_result():
    edges = np.random.default_rng(0).integers(0, 100_000, (1_000_000, 2))
    before = edges.copy()
    tracemalloc.start()
    graph = er.Graph(edges)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2.5 * edges.nbytes
    assert np.array_equal(edges, before)
    assert np.array_equal(graph.edges(), np.unique(edges, axis=0))


INDEX = torch.tensor([[0, 1], [1, 0]])
ODD = {
    "sparse": lambda: INDEX.bool().to_sparse(),
    "csr": lambda: INDEX.float().to_sparse_csr(),
    "meta": lambda: INDEX.to("meta"),
    "nested": lambda: torch.nested.nested_tensor([INDEX[0], INDEX[0, :1]], layout=torch.jagged),
}


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize(
    "make",
    [er.Graph, er.Graph.from_edge_index, er.Graph.from_pairs, er.FromMask, lambda t: er.Triples(3, t),
     lambda t: er.Weighted(er.Causal(), bias=t), lambda t: er.Nearest(1).on(t), er.Documents, er.Global,
     lambda t: er.Causal().rows(t, keys=3), lambda t: er.Causal().on(3).permute(t)],
)  # fmt: skip
def test_tensors_that_are_no_arrays_are_refused_in_words(kind, make):
    tensor = ODD[kind]()
    with pytest.raises(ErlangenError):
        make(tensor)


def test_empty_tensors_are_empty_graphs():
    for index in (
        torch.empty(2, 0),
        torch.empty(2, 0, dtype=torch.int64),
        torch.empty(0, 2).T,
        torch.empty(2, 6)[:, ::2][:, :0],
    ):
        assert er.Graph(index, nodes=3).on(3).num_edges == 0
        assert er.Graph.from_edge_index(index, num_nodes=3).on(3).num_edges == 0
    for rows, columns in ((0, 5), (3, 0), (0, 0)):
        assert er.FromMask(torch.zeros(rows, columns) > 0).on(rows, columns).num_edges == 0
    vectors = torch.zeros(3, 0)
    assert er.Nearest(1).on(vectors, torch.zeros(4, 0)).edges().tolist() == [[0, 0], [1, 0], [2, 0]]
    assert er.Nearest(2).on(torch.zeros(0, 5), torch.zeros(4, 5)).num_edges == 0
    turned = torch.tensor([[0, 1], [1, 2], [2, 0]]).T  # not contiguous
    assert er.Graph(turned).edges().tolist() == [[0, 2], [1, 0], [2, 1]]

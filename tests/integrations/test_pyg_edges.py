"""The edges that `RelationConv` reads: worked out once, with changes noticed, or prepared."""

from __future__ import annotations

import pytest
import torch

from erlangen.errors import ParameterError, SizeError
from erlangen.integrations.pyg import RelationConv, prepare
from erlangen.models.gat import with_self_loops
from erlangen.nn import edge_index as edge_indices
from erlangen.nn.edge_index import Edges, edges_of
from pyg_layers import LAYERS, N, assert_same, pair, randn, random_edges


@pytest.fixture
def built(monkeypatch):
    """How many edge indices were worked out."""
    count = []

    class Counted(Edges):
        def __init__(self, *arguments, **keywords):
            count.append(1)
            super().__init__(*arguments, **keywords)

    monkeypatch.setattr(edge_indices, "Edges", Counted)
    edge_indices._cache.cache_clear()
    return count


def test_an_edge_index_is_worked_out_once(built):
    edges, conv = random_edges(), RelationConv(5, 5)
    for _ in range(3):
        conv(conv(torch.randn(N, 5), edges), edges.clone()).sum().backward()
    assert len(built) == 1
    conv(torch.randn(N + 1, 5), edges)
    assert len(built) == 2


def test_a_change_in_place_is_noticed(built):
    edges, x = random_edges(), torch.randn(N, 5)
    conv = RelationConv(5, 4).eval()
    before = conv(x, edges)
    edges[0, 0] = (edges[0, 0] + 1) % N
    after = conv(x, edges)
    assert len(built) == 2
    assert not torch.equal(before, after)
    assert torch.equal(after, conv(x, edges.clone()))


def _in_place(edges, other):
    edges[0, 0] = other[0, 0]
    edges[1] = other[1]
    edges[0] = other[0]


def _through_numpy(edges, other):
    edges.numpy()[:] = other.numpy()


def _through_a_view(edges, other):
    edges.detach().view(-1)[:] = other.reshape(-1)


def _through_shared_storage(edges, other):
    torch.frombuffer(memoryview(edges.numpy()).cast("B"), dtype=edges.dtype)[:] = other.reshape(-1)


def _by_set(edges, other):
    edges.set_(other.clone())


def _by_data_attribute(edges, other):
    edges.data = other.clone()


def _by_resize(edges, other):
    edges.resize_(2, 0).resize_(other.shape).copy_(other)


CHANGES = {
    "in-place op": _in_place,
    "copy_ into a reused buffer": lambda edges, other: edges.copy_(other),
    "data": lambda edges, other: edges.data.copy_(other),
    "data attribute": _by_data_attribute,
    "numpy": _through_numpy,
    "view of a detached": _through_a_view,
    "shared storage": _through_shared_storage,
    "set_": _by_set,
    "resize_": _by_resize,
    "index_put_": lambda edges, other: edges.index_put_((torch.arange(2),), other),
    "data add_": lambda edges, other: edges.data.add_(other - edges),
}


@pytest.mark.parametrize("kernel", LAYERS)
@pytest.mark.parametrize("features", [None, 3])
@pytest.mark.parametrize("change", CHANGES)
def test_every_change_of_an_edge_index_is_noticed(kernel, features, change):
    """Whatever way the entries change, the layer gives what PyG gives for the new ones, with gradients."""
    theirs, ours = pair(kernel, 5, 4, heads=2, edge_dim=features)
    edges, other = random_edges(), random_edges(seed=1)
    given = {} if features is None else {"edge_attr": randn(40, 3)}
    x = randn(N, 5)
    before = ours(x, edges, **given)
    CHANGES[change](edges, other)
    assert torch.equal(edges, other)
    assert_same(theirs, ours, x, edges, **given)
    assert not torch.allclose(before, ours(x, edges, **given))
    # And back again: an answer remembered for these entries is the right one.
    CHANGES[change](edges, random_edges())
    assert torch.equal(ours(x, edges, **given), before)


@pytest.mark.parametrize("kernel", LAYERS)
@pytest.mark.parametrize("change", ["data", "numpy"])
def test_every_change_of_edge_features_is_noticed(kernel, change):
    theirs, ours = pair(kernel, 5, 4, heads=2, edge_dim=3)
    edges, features = random_edges(), randn(40, 3)
    x = randn(N, 5)
    before = ours(x, edges, features)
    CHANGES[change](features, randn(40, 3, seed=1))
    assert not torch.allclose(before, ours(x, edges, features))
    assert_same(theirs, ours, x, edges, edge_attr=features)


def test_a_change_between_forward_and_backward_does_not_reach_the_gradient():
    theirs, ours = pair("dot", 5, 4, heads=2, edge_dim=3)
    edges, features = random_edges(), randn(40, 3)
    x = randn(N, 5)
    gradients = []
    for layer, given in ((theirs, edges.clone()), (ours, edges)):
        leaf = x.clone().requires_grad_()
        out = layer(leaf, given, features)
        if layer is ours:
            given.numpy()[:] = 0
        out.square().sum().backward()
        gradients.append(leaf.grad)
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("kernel", LAYERS)
def test_what_is_returned_may_be_changed(kernel):
    """The edges that come with the weights are the caller's: writing to them changes no later answer."""
    theirs, ours = pair(kernel, 5, 4)
    edges, x = random_edges(), randn(N, 5)
    _, (returned, _) = ours(x, edges, return_attention_weights=True)
    returned.zero_()
    assert_same(theirs, ours, x, random_edges())


def test_models_notice_changes_too():
    graph = with_self_loops(edges := random_edges(), N)
    edges.numpy()[:] = random_edges(seed=1).numpy()
    assert with_self_loops(edges, N) != graph
    assert with_self_loops(random_edges(), N) == graph


@pytest.mark.parametrize("kernel", LAYERS)
def test_a_prepared_graph_is_the_graph_of_when_it_was_prepared(kernel):
    theirs, ours = pair(kernel, 5, 4, heads=2, edge_dim=3)
    edges, features = random_edges(), randn(40, 3)
    x, graph = randn(N, 5), prepare(edges, N)
    edges.numpy()[:] = 0
    expected = theirs(x, random_edges(), features)
    torch.testing.assert_close(ours(x, graph, features), expected)
    ours(x, graph, features, return_attention_weights=True)[1][0].zero_()
    graph.edge_index.zero_()
    torch.testing.assert_close(ours(x, graph, features), expected)


def test_a_prepared_graph_of_other_sizes_is_refused():
    graph = prepare(random_edges(), N)
    with pytest.raises(SizeError, match=r"12 targets.* was given features of 13 sources"):
        RelationConv(5, 4)(torch.randn(N + 1, 5), graph)
    with pytest.raises(SizeError, match="names source 11, but there are 4"):
        prepare(torch.tensor([[11], [0]]), 4)
    with pytest.raises(ParameterError, match="integers of shape"):
        prepare(torch.randn(2, 4), 4)


def test_inference_tensors_are_compared_by_their_entries(built):
    with torch.inference_mode():
        edges, conv = random_edges(), RelationConv(5, 4).eval()
        x = torch.randn(N, 5)
        before = conv(x, edges)
        conv(x, edges)
        assert len(built) == 1
        edges[0, 0] = (edges[0, 0] + 1) % N
        assert not torch.equal(conv(x, edges), before)
    assert len(built) == 2


def test_the_least_recently_used_is_forgotten(built):
    for n in range(1, edge_indices.CACHE_SIZE + 5):
        edges_of(torch.tensor([[0], [0]]), n, n)
    assert len(edge_indices._cache) == edge_indices.CACHE_SIZE


@pytest.mark.parametrize("kernel", LAYERS)
@pytest.mark.parametrize("dtype", [torch.int32, torch.int16, torch.int8, torch.uint8])
@pytest.mark.parametrize("repeated", [False, True], ids=["simple", "multi-edges"])
def test_every_type_of_integers_is_the_same_graph(kernel, dtype, repeated):
    """PyTorch reads uint8 as a mask where it expects an index; with as many edges as nodes in silence."""
    _, ours = pair(kernel, 5, 4, heads=2)
    edges = random_edges(edges=N)
    edges = torch.cat([edges[:, :-1], edges[:, :1]], dim=1) if repeated else edges
    for weights in (None, True):
        expected = ours(randn(N, 5), edges, return_attention_weights=weights)
        given = ours(randn(N, 5), edges.to(dtype), return_attention_weights=weights)
        torch.testing.assert_close(given, expected, check_dtype=False)


@pytest.mark.parametrize("fill", ["mean", "max", 0.5])
@pytest.mark.parametrize("kernel", ["additive", "gatv2"])
def test_an_index_of_smaller_integers_has_the_gradients_of_int64(kernel: str, fill: object) -> None:
    torch.manual_seed(0)
    conv = RelationConv(5, 4, heads=2, kernel=kernel, edge_dim=4, fill_value=fill).double()
    index, x = torch.randint(6, (2, 18)), torch.randn(6, 5, dtype=torch.float64)
    features = torch.randn(18, 4, dtype=torch.float64, requires_grad=True)
    for dtype in (torch.int32, torch.int16, torch.uint8):
        found, wanted = (
            torch.autograd.grad(conv(x, given, features).sin().sum(), features)
            for given in (index.to(dtype), index)
        )
        torch.testing.assert_close(found, wanted)

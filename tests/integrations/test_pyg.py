"""`RelationConv` against PyG's own layers: numbers, gradients, state, and what it refuses."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from torch_geometric.nn import GATConv, GATv2Conv, TransformerConv

from erlangen.errors import ParameterError, ShapeError, SizeError
from erlangen.integrations import edge_index as edge_indices
from erlangen.integrations.edge_index import Edges, edges_of
from erlangen.integrations.pyg import RelationConv, prepare
from erlangen.models.gat import with_self_loops

LAYERS = {"dot": TransformerConv, "additive": GATConv}
N = 12


def random_edges(sources: int = N, targets: int = N, edges: int = 40, seed: int = 0) -> torch.Tensor:
    """Edges without repetition; the last target has none."""
    flat = torch.randperm(sources * (targets - 1), generator=torch.Generator().manual_seed(seed))[:edges]
    return torch.stack([flat % sources, flat // sources])


def assert_same(theirs, ours, *inputs, **keywords):
    """Outputs and all gradients, in float64."""
    results = []
    for layer in (theirs, ours):
        given = [x.clone().requires_grad_() if x.is_floating_point() else x for x in inputs[:-1]]
        x = given[0] if len(given) == 1 else tuple(given)
        out = layer(x, inputs[-1], **keywords)
        weight = torch.randn(out.shape, generator=torch.Generator().manual_seed(1), dtype=out.dtype)
        layer.zero_grad()
        (out * weight).sum().backward()
        grads = {name: p.grad for name, p in layer.named_parameters()}
        results.append((out.detach(), [x.grad for x in given if x.is_floating_point()], grads))
    (out, grads, parameters), (our_out, our_grads, our_parameters) = results
    torch.testing.assert_close(our_out, out, atol=1e-10, rtol=0)
    for a, b in zip(grads, our_grads, strict=True):
        torch.testing.assert_close(b, a, atol=1e-10, rtol=0)
    assert parameters.keys() == our_parameters.keys()
    for name, gradient in parameters.items():
        # Where PyG leaves a gradient of zero out and we do not, or the other way round, both are zero.
        one, other = (0.0 if g is None else g for g in (gradient, our_parameters[name]))
        assert float((torch.as_tensor(other) - torch.as_tensor(one)).abs().max()) < 1e-10, name


def pair(kernel: str, *arguments, **options):
    """A PyG layer with random parameters everywhere, and ours that has loaded its state."""
    torch.manual_seed(0)
    theirs = LAYERS[kernel](*arguments, **options).double()
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter)
    ours = RelationConv(*arguments, kernel=kernel, **options).double()
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


OPTIONS = [
    ("dot", {}),
    ("dot", {"heads": 3}),
    ("dot", {"heads": 3, "concat": False}),
    ("dot", {"heads": 2, "beta": True}),
    ("dot", {"heads": 2, "beta": True, "concat": False}),
    ("dot", {"heads": 2, "root_weight": False, "bias": False}),
    ("additive", {}),
    ("additive", {"heads": 3}),
    ("additive", {"heads": 3, "concat": False}),
    ("additive", {"heads": 2, "add_self_loops": False}),
    ("additive", {"heads": 2, "negative_slope": 0.7, "bias": False}),
    ("additive", {"heads": 2, "residual": True}),
]


@pytest.mark.parametrize(("kernel", "options"), OPTIONS)
@pytest.mark.parametrize("repeated", [False, True], ids=["simple", "multi-edges"])
def test_equals_pyg_forward_and_backward(kernel, options, repeated):
    theirs, ours = pair(kernel, 5, 4, **options)
    edges = random_edges()
    if repeated:
        edges = torch.cat([edges, edges[:, ::3], torch.tensor([[2, 2], [2, 2]])], dim=1)
    assert_same(theirs, ours, torch.randn(N, 5, dtype=torch.double), edges)


@pytest.mark.parametrize("kernel", LAYERS)
def test_bipartite_pairs(kernel):
    theirs, ours = pair(kernel, (5, 6), 4, heads=2)
    x = (torch.randn(9, 5, dtype=torch.double), torch.randn(N, 6, dtype=torch.double))
    assert_same(theirs, ours, *x, random_edges(9, N))
    theirs, ours = pair(kernel, 5, 4, heads=2)
    x = (torch.randn(N, 5, dtype=torch.double), torch.randn(7, 5, dtype=torch.double))
    assert_same(theirs, ours, *x, random_edges(N, 7))


def test_targets_without_features():
    theirs, ours = pair("additive", (5, 5), 4, heads=2, add_self_loops=False)
    x = (torch.randn(9, 5, dtype=torch.double), None)
    edges = random_edges(9, 7, edges=20)
    torch.testing.assert_close(ours(x, edges, size=(9, 7)), theirs(x, edges, size=(9, 7)))
    with pytest.raises(ShapeError, match="features of the targets"):
        RelationConv((5, 5), 4)((torch.randn(9, 5), None), edges)


@pytest.mark.parametrize(
    ("kernel", "options"),
    [
        ("dot", {"heads": 2}),
        ("additive", {"heads": 2}),
        ("additive", {"heads": 2, "fill_value": 0.5}),
        ("additive", {"heads": 2, "add_self_loops": False}),
    ],
)
def test_edge_features(kernel, options):
    theirs, ours = pair(kernel, 5, 4, edge_dim=3, **options)
    edges = torch.cat([random_edges(), torch.tensor([[3, 3], [3, 4]])], dim=1)
    features = torch.randn(edges.shape[1], 3, dtype=torch.double)
    assert_same(theirs, ours, torch.randn(N, 5, dtype=torch.double), edges, edge_attr=features)


def test_edge_features_are_differentiable():
    theirs, ours = pair("additive", 5, 4, heads=2, edge_dim=1)
    x, edges = torch.randn(N, 5, dtype=torch.double), random_edges()
    features = torch.randn(edges.shape[1], dtype=torch.double)
    gradients = []
    for layer in (theirs, ours):
        given = features.clone().requires_grad_()
        layer(x, edges, given).square().sum().backward()
        gradients.append(given.grad)
    torch.testing.assert_close(*gradients)
    assert gradients[0].abs().max() > 1e-3


@pytest.mark.parametrize("kernel", LAYERS)
@pytest.mark.parametrize("edge_dim", [None, 3])
def test_attention_weights(kernel, edge_dim):
    theirs, ours = pair(kernel, 5, 4, heads=2, edge_dim=edge_dim)
    edges = torch.cat([random_edges(), random_edges()[:, :5]], dim=1)
    given = {} if edge_dim is None else {"edge_attr": torch.randn(edges.shape[1], 3, dtype=torch.double)}
    x = torch.randn(N, 5, dtype=torch.double)
    out, (index, weights) = theirs(x, edges, **given, return_attention_weights=True)
    our_out, (our_index, our_weights) = ours(x, edges, **given, return_attention_weights=True)
    assert torch.equal(our_index, index)
    torch.testing.assert_close(our_weights, weights)
    torch.testing.assert_close(our_out, out)


@pytest.mark.parametrize("kernel", LAYERS)
def test_same_seed_same_parameters_and_lazy_ones(kernel):
    torch.manual_seed(3)
    theirs = LAYERS[kernel](5, 4, heads=2)
    torch.manual_seed(3)
    ours = RelationConv(5, 4, heads=2, kernel=kernel)
    state = theirs.state_dict()
    assert list(ours.state_dict()) == list(state)
    assert all(torch.equal(value, state[name]) for name, value in ours.state_dict().items())
    lazy = RelationConv(-1, 4, kernel=kernel)
    assert lazy(torch.randn(N, 9), random_edges()).shape == (N, 4)


@pytest.mark.parametrize("kernel", LAYERS)
def test_dropout_drops_weights_while_training_only(kernel):
    theirs, ours = pair(kernel, 5, 4, heads=2, dropout=0.5)
    x, edges = torch.randn(N, 5, dtype=torch.double), random_edges()
    assert not torch.equal(ours(x, edges), ours(x, edges))
    torch.testing.assert_close(ours.eval()(x, edges), theirs.eval()(x, edges))
    # Dropout is unbiased: the mean over many draws is what evaluation gives.
    mean = torch.stack([ours.train()(x, edges).detach() for _ in range(200)])
    error = (mean.mean(0) - ours.eval()(x, edges)).abs() / (mean.std(0) / 200**0.5 + 1e-12)
    assert error.mean() < 1.5


@pytest.mark.parametrize("kernel", LAYERS)
def test_like_takes_the_place_of_a_layer(kernel):
    theirs, _ = pair(kernel, 5, 4, heads=2)
    ours = RelationConv.like(theirs.eval())
    assert not ours.training
    assert [id(p) for p in ours.parameters()] == [id(p) for p in theirs.parameters()]
    assert_same(theirs, ours, torch.randn(N, 5, dtype=torch.double), random_edges())
    assert_same(theirs, deepcopy(ours), torch.randn(N, 5, dtype=torch.double), random_edges())


@pytest.mark.parametrize(
    ("kernel", "options"), [*OPTIONS, ("dot", {"edge_dim": 3}), ("additive", {"edge_dim": 3})]
)
def test_reset_draws_what_pyg_draws(kernel, options):
    theirs, ours = pair(kernel, 5, 4, **options)
    for layer in (theirs, ours):
        torch.manual_seed(7)
        layer.reset_parameters()
    state = theirs.state_dict()
    assert all(torch.equal(value, state[name]) for name, value in ours.state_dict().items())


def test_arguments_by_position_are_those_of_pyg():
    assert (
        RelationConv(5, 4, 2, True, True, 0.25).dropout == TransformerConv(5, 4, 2, True, True, 0.25).dropout
    )
    conv = RelationConv(5, 4, 2, True, 0.7, 0.25, False, kernel="additive")
    assert (conv.negative_slope, conv.dropout, conv.add_self_loops) == (0.7, 0.25, False)
    with pytest.raises(ParameterError, match="each once"):
        RelationConv(5, 4, 2, True, True, beta=False)
    with pytest.raises(ParameterError, match="after concat"):
        RelationConv(5, 4, 2, True, *range(9))


def test_edge_features_without_edge_dim_are_left_aside_by_gat():
    theirs, ours = pair("additive", 5, 4, heads=2)
    x, edges = torch.randn(N, 5, dtype=torch.double), random_edges()
    assert_same(theirs, ours, x, edges, edge_attr=torch.randn(40, 3, dtype=torch.double))


@pytest.mark.parametrize("kernel", LAYERS)
@pytest.mark.parametrize("edge_dim", [None, 3])
def test_autocast_gives_the_type_and_the_numbers_of_pyg(kernel, edge_dim):
    theirs, ours = (layer.float() for layer in pair(kernel, 5, 4, heads=2, edge_dim=edge_dim))
    given = {} if edge_dim is None else {"edge_attr": torch.randn(40, 3)}
    x, edges = torch.randn(N, 5), random_edges()
    exact = theirs(x, edges, **given)
    with torch.autocast("cpu", torch.bfloat16):
        expected, out = theirs(x, edges, **given), ours(x, edges, **given)
    assert out.dtype == expected.dtype
    # No further from float32 than PyG is, up to the rounding of bfloat16.
    scale = exact.abs().max()
    assert (out - exact).abs().max() < (expected - exact).abs().max() + 0.02 * scale
    out.float().sum().backward()


def test_like_refuses_what_it_cannot_be():
    with pytest.raises(ParameterError, match="TransformerConv or a GATConv, got GATv2Conv"):
        RelationConv.like(GATv2Conv(4, 4))
    with pytest.raises(ParameterError, match="flow='target_to_source'"):
        RelationConv.like(GATConv(4, 4, flow="target_to_source"))
    with pytest.raises(ParameterError, match="aggr='max'"):
        RelationConv.like(GATConv(4, 4, aggr="max"))


def test_a_wrong_argument_is_named():
    with pytest.raises(ParameterError, match=r"kernel='dot'.* no argument negative_slope.*beta"):
        RelationConv(4, 4, negative_slope=0.1)
    with pytest.raises(ParameterError, match="no argument aggr"):
        RelationConv(4, 4, aggr="max")
    with pytest.raises(ParameterError, match="'dot' or 'additive', got 'cosine'"):
        RelationConv(4, 4, kernel="cosine")


def test_a_wrong_call_is_explained():
    conv, edges = RelationConv(5, 4), random_edges()
    with pytest.raises(ShapeError, match="n, in_channels"):
        conv(torch.randn(1, N, 5), edges)
    with pytest.raises(ShapeError, match="edge_dim=None, and edge_attr was given"):
        conv(torch.randn(N, 5), edges, torch.randn(40, 2))
    with pytest.raises(ShapeError, match="edge_dim=2, and edge_attr was not given"):
        RelationConv(5, 4, edge_dim=2)(torch.randn(N, 5), edges)
    with pytest.raises(ShapeError, match=r"size \(3, 3\)"):
        conv(torch.randn(N, 5), edges, size=(3, 3))
    with pytest.raises(ParameterError, match=r"shape \(2, edges\)"):
        conv(torch.randn(N, 5), edges.T)
    with pytest.raises(ParameterError, match="sparse"):
        conv(torch.randn(N, 5), torch.eye(N).to_sparse())
    with pytest.raises(SizeError, match="source 11, but there are 8"):
        conv(torch.randn(8, 5), torch.tensor([[0, 11], [1, 2]]))


@pytest.mark.parametrize("kernel", LAYERS)
def test_graphs_without_edges(kernel):
    theirs, ours = pair(kernel, 5, 4, heads=2)
    empty = torch.empty(2, 0, dtype=torch.long)
    assert_same(theirs, ours, torch.randn(N, 5, dtype=torch.double), empty)


@pytest.fixture
def built(monkeypatch):
    """How many edge indices were worked out."""
    count = []

    class Counted(Edges):
        def __init__(self, *arguments, **keywords):
            count.append(1)
            super().__init__(*arguments, **keywords)

    monkeypatch.setattr(edge_indices, "Edges", Counted)
    edge_indices._cache.clear()
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
    given = {} if features is None else {"edge_attr": torch.randn(40, 3, dtype=torch.double)}
    x = torch.randn(N, 5, dtype=torch.double)
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
    edges, features = random_edges(), torch.randn(40, 3, dtype=torch.double)
    x = torch.randn(N, 5, dtype=torch.double)
    before = ours(x, edges, features)
    CHANGES[change](features, torch.randn(40, 3, dtype=torch.double))
    assert not torch.allclose(before, ours(x, edges, features))
    assert_same(theirs, ours, x, edges, edge_attr=features)


def test_a_change_between_forward_and_backward_does_not_reach_the_gradient():
    theirs, ours = pair("dot", 5, 4, heads=2, edge_dim=3)
    edges, features = random_edges(), torch.randn(40, 3, dtype=torch.double)
    x = torch.randn(N, 5, dtype=torch.double)
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
    edges, x = random_edges(), torch.randn(N, 5, dtype=torch.double)
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
    edges, features = random_edges(), torch.randn(40, 3, dtype=torch.double)
    x, graph = torch.randn(N, 5, dtype=torch.double), prepare(edges, N)
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

"""`RelationConv` against PyG's own layers: numbers, gradients, state, and what it refuses."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from torch_geometric.nn import GATConv, GCNConv, TransformerConv

from erlangen.errors import ParameterError, ShapeError, SizeError
from erlangen.integrations.pyg import RelationConv
from pyg_layers import LAYERS, N, assert_same, pair, randn, random_edges

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
    ("gatv2", {}),
    ("gatv2", {"heads": 3}),
    ("gatv2", {"heads": 3, "concat": False}),
    ("gatv2", {"heads": 2, "add_self_loops": False}),
    ("gatv2", {"heads": 2, "negative_slope": 0.7, "bias": False}),
    ("gatv2", {"heads": 2, "residual": True, "share_weights": True}),
]


@pytest.mark.parametrize(("kernel", "options"), OPTIONS)
@pytest.mark.parametrize("repeated", [False, True], ids=["simple", "multi-edges"])
def test_equals_pyg_forward_and_backward(kernel, options, repeated):
    theirs, ours = pair(kernel, 5, 4, **options)
    edges = random_edges()
    if repeated:
        edges = torch.cat([edges, edges[:, ::3], torch.tensor([[2, 2], [2, 2]])], dim=1)
    assert_same(theirs, ours, randn(N, 5), edges)


@pytest.mark.parametrize("kernel", LAYERS)
@pytest.mark.parametrize("residual", [False, True])
def test_bipartite_pairs(kernel, residual):
    options = {"residual": residual} if kernel != "dot" else {"beta": residual}
    theirs, ours = pair(kernel, (5, 6), 4, heads=2, **options)
    assert_same(theirs, ours, (randn(9, 5), randn(N, 6)), random_edges(9, N))
    theirs, ours = pair(kernel, 5, 4, heads=2, **options)
    assert_same(theirs, ours, (randn(N, 5), randn(7, 5)), random_edges(N, 7))
    # A layer for pairs, given one set of nodes, has weights of its own for each side.
    theirs, ours = pair(kernel, (5, 5), 4, heads=2, **options)
    assert_same(theirs, ours, randn(N, 5), random_edges())


@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("residual", [False, True])
def test_targets_without_features(loops, residual):
    theirs, ours = pair("additive", (5, 5), 4, heads=2, add_self_loops=loops, residual=residual)
    edges = random_edges(9, 7, edges=20)
    assert_same(theirs, ours, (randn(9, 5), None), edges, size=(9, 7))
    assert_same(theirs, ours, (randn(9, 5), None), edges)
    assert_same(theirs, ours, (randn(9, 5), None), edges, None, (9, 7))


@pytest.mark.parametrize("kernel", ["dot", "gatv2"])
def test_targets_without_features_are_refused_where_the_logits_need_them(kernel):
    with pytest.raises(ShapeError, match="features of the targets"):
        RelationConv((5, 5), 4, kernel=kernel)((torch.randn(9, 5), None), random_edges(9, 7, edges=20))


@pytest.mark.parametrize(
    ("kernel", "options"),
    [
        ("dot", {}),
        *(
            (kernel, {"fill_value": fill})
            for kernel in ("additive", "gatv2")
            for fill in ("mean", "add", 0.5)
        ),
        *((kernel, {"add_self_loops": False}) for kernel in ("additive", "gatv2")),
    ],
)
def test_edge_features(kernel, options):
    theirs, ours = pair(kernel, 5, 4, heads=2, edge_dim=3, **options)
    edges = torch.cat([random_edges(), torch.tensor([[3, 3], [3, 4]])], dim=1)
    assert_same(theirs, ours, randn(N, 5), edges, edge_attr=randn(edges.shape[1], 3))
    assert_same(theirs, ours, (randn(N, 5), randn(N, 5)), edges, edge_attr=randn(edges.shape[1], 3))


@pytest.mark.parametrize("kernel", ["additive", "gatv2"])
def test_one_number_for_each_edge(kernel):
    theirs, ours = pair(kernel, 5, 4, heads=2, edge_dim=1)
    assert_same(theirs, ours, randn(N, 5), random_edges(), edge_attr=randn(40))
    # Edge features may be left out even where the layer has weights for them.
    assert_same(theirs, ours, randn(N, 5), random_edges())


@pytest.mark.parametrize("kernel", LAYERS)
def test_as_many_edge_features_as_edges(kernel):
    conv = RelationConv(5, 4, edge_dim=3, kernel=kernel)
    with pytest.raises(ShapeError, match="edge_attr has 50 rows, and there are 40 edges"):
        conv(torch.randn(N, 5), random_edges(), torch.randn(50, 3))


@pytest.mark.parametrize("kernel", LAYERS)
@pytest.mark.parametrize("edge_dim", [None, 3])
@pytest.mark.parametrize("repeated", [False, True], ids=["simple", "multi-edges"])
def test_attention_weights(kernel, edge_dim, repeated):
    theirs, ours = pair(kernel, 5, 4, heads=2, edge_dim=edge_dim)
    edges = torch.cat([random_edges(), random_edges()[:, :5]], dim=1) if repeated else random_edges()
    given = {} if edge_dim is None else {"edge_attr": randn(edges.shape[1], 3)}
    x = randn(N, 5)
    _, (index, weights) = theirs(x, edges, **given, return_attention_weights=True)
    _, (our_index, our_weights) = ours(x, edges, **given, return_attention_weights=True)
    assert torch.equal(our_index, index)
    assert our_weights.shape == weights.shape
    assert_same(theirs, ours, x, edges, **given, return_attention_weights=True)
    # Asked for by False, TransformerConv gives them all the same, and the others do not.
    assert isinstance(ours(x, edges, **given, return_attention_weights=False), tuple) == (kernel == "dot")
    assert_same(theirs, ours, x, edges, **given, return_attention_weights=False)


@pytest.mark.parametrize("kernel", LAYERS)
def test_weights_in_training_are_those_of_pyg(kernel):
    """Those of `TransformerConv` before dropout, those of the others after it."""
    theirs, ours = pair(kernel, 5, 4, heads=2, dropout=0.5)
    x, edges = randn(N, 5), random_edges()
    weights = []
    for layer in (theirs, ours):
        torch.manual_seed(1)
        weights.append(layer(x, edges, return_attention_weights=True)[1][1])
    torch.testing.assert_close(*weights)
    assert bool((weights[1] == 0).any()) == (kernel != "dot")


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
    x, edges = randn(N, 5), random_edges()
    torch.manual_seed(2)
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
    assert isinstance(ours, RelationConv)
    assert [id(p) for p in ours.parameters()] == [id(p) for p in theirs.parameters()]
    assert_same(theirs, ours, randn(N, 5), random_edges())
    assert_same(theirs, deepcopy(ours), randn(N, 5), random_edges())
    # What becomes of one layer's tables does not become of the other's.
    ours.register_buffer("mine", torch.zeros(1))
    ours.register_message_forward_hook(lambda *_: None)
    assert not hasattr(theirs, "mine")
    assert not theirs._message_forward_hooks


@pytest.mark.parametrize(("kernel", "options"), [*OPTIONS, *((kernel, {"edge_dim": 3}) for kernel in LAYERS)])
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
    assert_same(theirs, ours, randn(N, 5), random_edges(), randn(40, 3))


@pytest.mark.parametrize("kernel", ["dot", "gatv2"])
def test_edge_features_without_edge_dim_are_refused_by_the_others(kernel):
    with pytest.raises(ShapeError, match="edge_dim=None, and edge_attr was given"):
        RelationConv(5, 4, kernel=kernel)(torch.randn(N, 5), random_edges(), torch.randn(40, 3))


@pytest.mark.parametrize("kernel", LAYERS)
@pytest.mark.parametrize("edge_dim", [None, 3])
def test_autocast_gives_the_type_and_the_numbers_of_pyg(kernel, edge_dim):
    theirs, ours = (layer.float() for layer in pair(kernel, 5, 4, heads=2, edge_dim=edge_dim))
    given = {} if edge_dim is None else {"edge_attr": randn(40, 3).float()}
    x, edges = randn(N, 5).float(), random_edges()
    exact = theirs(x, edges, **given)
    with torch.autocast("cpu", torch.bfloat16):
        expected, out = theirs(x, edges, **given), ours(x, edges, **given)
    assert out.dtype == expected.dtype
    # No further from float32 than PyG is, up to the rounding of bfloat16.
    scale = exact.abs().max()
    assert (out - exact).abs().max() < (expected - exact).abs().max() + 0.02 * scale
    out.float().sum().backward()


def test_like_refuses_what_it_cannot_be():
    with pytest.raises(ParameterError, match="GATv2Conv, got GCNConv"):
        RelationConv.like(GCNConv(4, 4))
    with pytest.raises(ParameterError, match="flow='target_to_source'"):
        RelationConv.like(GATConv(4, 4, flow="target_to_source"))
    with pytest.raises(ParameterError, match="aggr='max'"):
        RelationConv.like(GATConv(4, 4, aggr="max"))
    with pytest.raises(ParameterError, match="decomposed_layers=2"):
        RelationConv.like(GATConv(4, 4, decomposed_layers=2))


def test_a_wrong_argument_is_named():
    with pytest.raises(ParameterError, match=r"kernel='dot'.* no argument negative_slope.*beta"):
        RelationConv(4, 4, negative_slope=0.1)
    with pytest.raises(ParameterError, match="no argument share_weights"):
        RelationConv(4, 4, kernel="additive", share_weights=True)
    for setting in ({"aggr": "max"}, {"flow": "target_to_source"}):
        with pytest.raises(ParameterError, match=f"no argument {next(iter(setting))}"):
            RelationConv(4, 4, **setting)
    with pytest.raises(ParameterError, match="'gatv2', got 'cosine'"):
        RelationConv(4, 4, kernel="cosine")


@pytest.mark.parametrize("kernel", LAYERS)
def test_a_wrong_call_is_explained(kernel):
    conv, edges = RelationConv(5, 4, kernel=kernel), random_edges()
    with pytest.raises(ShapeError, match="n, in_channels"):
        conv(torch.randn(1, N, 5), edges)
    with pytest.raises(ParameterError, match=r"shape \(2, edges\)"):
        conv(torch.randn(N, 5), edges.T)
    with pytest.raises(ParameterError, match=r"shape \(2, edges\)"):
        conv(torch.randn(N, 5), edges.double())
    with pytest.raises(ParameterError, match="got list"):
        conv(torch.randn(N, 5), edges.tolist())
    with pytest.raises(SizeError, match="source 11, but there are 8"):
        conv(torch.randn(8, 5), torch.tensor([[0, 11], [1, 2]]))


def test_a_size_that_does_not_fit_is_refused():
    with pytest.raises(ShapeError, match=r"size \(3, 3\)"):
        RelationConv(5, 4, kernel="additive")(torch.randn(N, 5), random_edges(), size=(3, 3))
    with pytest.raises(ShapeError, match="edge_dim=2, and edge_attr was not given"):
        RelationConv(5, 4, edge_dim=2)(torch.randn(N, 5), random_edges())


@pytest.mark.parametrize("kernel", LAYERS)
def test_graphs_without_edges_and_without_nodes(kernel):
    theirs, ours = pair(kernel, 5, 4, heads=2)
    empty = torch.empty(2, 0, dtype=torch.long)
    assert_same(theirs, ours, randn(N, 5), empty)
    assert ours(randn(0, 5), empty).shape == theirs(randn(0, 5), empty).shape == (0, 8)


@pytest.mark.parametrize("kernel", LAYERS)
def test_second_derivatives(kernel):
    theirs, ours = pair(kernel, 5, 4, heads=2)
    results = []
    for layer in (theirs, ours):
        x = randn(N, 5).requires_grad_()
        (first,) = torch.autograd.grad(layer(x, random_edges()).square().sum(), x, create_graph=True)
        results.append(torch.autograd.grad(first.square().sum(), [x, *layer.parameters()], allow_unused=True))
    for one, other in zip(*results, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(other, one)

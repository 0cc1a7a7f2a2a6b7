"""What PyG does with its layers (hops, explainers, hooks, ...), done with `RelationConv`."""

from __future__ import annotations

import pickle
import subprocess
import sys
from copy import deepcopy
from textwrap import dedent

import pytest
import torch
from torch import nn
from torch_geometric.data import HeteroData
from torch_geometric.explain import AttentionExplainer, Explainer, GNNExplainer, PGExplainer
from torch_geometric.nn import (
    GATConv,
    HeteroConv,
    MaxAggregation,
    MessagePassing,
    to_hetero,
)
from torch_geometric.utils import get_num_hops

from erlangen.errors import ParameterError
from erlangen.integrations.pyg import RelationConv, prepare
from pyg_layers import LAYERS, N, assert_same, pair, randn, random_edges

NO_LOOPS = {"dot": {}, "additive": {"add_self_loops": False}, "gatv2": {"add_self_loops": False}}


class Net(nn.Module):
    """Two layers, given as classes."""

    def __init__(self, kernel: str, ours: bool, classes: int = 3, **options) -> None:
        super().__init__()
        options |= {"kernel": kernel} if ours else {}
        make = RelationConv if ours else LAYERS[kernel]
        self.first = make((5, 5), 4, heads=2, **options)
        self.second = make((8, 8), classes, **options)

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index)


def nets(kernel: str, **options) -> tuple[Net, Net]:
    torch.manual_seed(0)
    theirs, ours = (Net(kernel, mine, **options).double().eval() for mine in (False, True))
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


@pytest.mark.parametrize("kernel", LAYERS)
def test_it_is_the_layer_of_pyg(kernel):
    conv = RelationConv(5, 4, heads=2, kernel=kernel)
    assert isinstance(conv, RelationConv)
    assert isinstance(conv, MessagePassing)
    assert isinstance(conv, LAYERS[kernel])
    assert repr(conv) == f"RelationConv(5, 4, heads=2, kernel={kernel!r})"
    assert repr(eval(repr(conv))) == repr(conv)


@pytest.mark.parametrize("kernel", LAYERS)
def test_hops_are_counted(kernel):
    assert get_num_hops(nets(kernel)[1]) == 2


@pytest.mark.parametrize("kernel", LAYERS)
def test_copies_and_pickles_compute_the_same(kernel):
    theirs, ours = pair(kernel, 5, 4, heads=2)
    for copied in (deepcopy(ours), pickle.loads(pickle.dumps(ours))):
        assert type(copied) is type(ours)
        assert_same(theirs, copied, randn(N, 5), random_edges())


# Heterogeneous graphs


def hetero() -> HeteroData:
    data = HeteroData()
    data["paper"].x, data["author"].x = randn(9, 5), randn(7, 5, seed=1)
    data["paper", "cites", "paper"].edge_index = random_edges(9, 9, 20)
    data["author", "writes", "paper"].edge_index = random_edges(7, 9, 20, seed=1)
    data["paper", "of", "author"].edge_index = random_edges(9, 7, 20, seed=2)
    return data


def assert_same_on_hetero(theirs, ours):
    """All outputs and all gradients; the two have the same parameters."""
    gradients = []
    for net in (theirs, ours):
        data = hetero()
        xs = {kind: x.requires_grad_() for kind, x in data.x_dict.items()}
        net.zero_grad()
        out = net(xs, data.edge_index_dict)
        sum((part * randn(*part.shape)).sum() for part in out.values()).backward()
        gradients.append((out, [x.grad for x in xs.values()], [p.grad for p in net.parameters()]))
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(other, one)


@pytest.mark.parametrize("kernel", LAYERS)
@pytest.mark.parametrize("aggr", ["sum", "mean", "max"])
def test_to_hetero(kernel, aggr):
    theirs, ours = nets(kernel, **NO_LOOPS[kernel])
    theirs, ours = (to_hetero(net, hetero().metadata(), aggr=aggr) for net in (theirs, ours))
    convs = [module for module in ours.modules() if isinstance(module, RelationConv)]
    assert len(convs) == 2 * len(hetero().edge_types)
    ours.load_state_dict(theirs.state_dict())
    assert_same_on_hetero(theirs, ours)


@pytest.mark.parametrize("kernel", LAYERS)
def test_to_hetero_of_layers_without_sizes(kernel):
    net = Net(kernel, True, **NO_LOOPS[kernel])
    net.first = RelationConv((-1, -1), 4, heads=2, kernel=kernel, **NO_LOOPS[kernel])
    net = to_hetero(net.double(), hetero().metadata())
    assert net(hetero().x_dict, hetero().edge_index_dict)["paper"].shape == (9, 3)


@pytest.mark.parametrize("kernel", ["additive", "gatv2"])
def test_self_loops_between_kinds_of_nodes_are_refused_by_pyg(kernel):
    for net in nets(kernel):
        with pytest.raises(ValueError, match="self"):
            to_hetero(net, hetero().metadata())


@pytest.mark.parametrize("kernel", LAYERS)
def test_hetero_conv(kernel):
    torch.manual_seed(0)
    options = {"heads": 2, **NO_LOOPS[kernel]}
    theirs = HeteroConv({kind: LAYERS[kernel]((5, 5), 4, **options) for kind in hetero().edge_types}).double()
    ours = HeteroConv(
        {kind: RelationConv((5, 5), 4, kernel=kernel, **options) for kind in hetero().edge_types}
    ).double()
    ours.load_state_dict(theirs.state_dict())
    assert_same_on_hetero(theirs, ours)


# Explainers


MODEL = {"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"}


def explanations(kernel: str, algorithm, seeds: tuple[int, int] = (1, 1), **options):
    results = []
    for net, seed in zip(nets(kernel), seeds, strict=True):
        explainer = Explainer(
            net, algorithm(), explanation_type="model", edge_mask_type="object", model_config=MODEL, **options
        )
        torch.manual_seed(seed)
        results.append((explainer(randn(N, 5), random_edges(), index=4), net))
    return results


@pytest.mark.parametrize("kernel", LAYERS)
@pytest.mark.parametrize("features", [None, "attributes"])
def test_gnn_explainer_gives_the_masks_of_pyg(kernel, features):
    (theirs, _), (ours, net) = explanations(kernel, lambda: GNNExplainer(epochs=20), node_mask_type=features)
    torch.testing.assert_close(ours.edge_mask, theirs.edge_mask)
    assert (ours.edge_mask > 0).sum() > 3
    if features is not None:
        torch.testing.assert_close(ours.node_mask, theirs.node_mask)
    # And attention runs natively afterwards, with the same numbers.
    assert net.first.fallback is None
    torch.testing.assert_close(net(randn(N, 5), random_edges()), nets(kernel)[0](randn(N, 5), random_edges()))


def test_explanations_depend_on_the_seed():
    """So that the comparisons here can fail."""
    (theirs, _), (ours, _) = explanations("dot", lambda: GNNExplainer(epochs=20), seeds=(1, 2))
    assert not torch.allclose(ours.edge_mask, theirs.edge_mask)


@pytest.mark.parametrize("kernel", LAYERS)
def test_attention_explainer_gives_the_weights_of_pyg(kernel):
    (theirs, _), (ours, net) = explanations(kernel, AttentionExplainer)
    torch.testing.assert_close(ours.edge_mask, theirs.edge_mask)
    assert (ours.edge_mask > 0).sum() > 3
    assert net.first.fallback is None


@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad=True to a scalar")  # PyG does
@pytest.mark.parametrize("kernel", LAYERS)
def test_pg_explainer_gives_the_masks_of_pyg(kernel):
    masks = []
    for net in nets(kernel):
        torch.manual_seed(1)
        explainer = Explainer(
            net,
            PGExplainer(epochs=2).double(),
            explanation_type="phenomenon",
            edge_mask_type="object",
            model_config=MODEL,
        )
        given = {"target": torch.arange(N) % 3, "index": 4}
        for epoch in range(2):
            explainer.algorithm.train(epoch, net, randn(N, 5), random_edges(), **given)
        masks.append(explainer(randn(N, 5), random_edges(), **given).edge_mask)
    torch.testing.assert_close(*masks)
    assert masks[0].max() > 0


@pytest.mark.parametrize("kernel", LAYERS)
@pytest.mark.parametrize("edge_dim", [None, 3])
def test_masked_edges_with_gradients(kernel, edge_dim):
    """The mask of an explainer weighs messages: outputs and gradients of the mask, too, are those of PyG."""
    theirs, ours = pair(kernel, 5, 4, heads=2, edge_dim=edge_dim)
    edges, given = random_edges(), [] if edge_dim is None else [randn(40, 3)]
    gradients = []
    for layer in (theirs, ours):
        layer.explain = True
        layer._edge_mask = nn.Parameter(randn(40, seed=3))
        layer._loop_mask = edges[0] != edges[1]
        layer._apply_sigmoid = True
        layer(randn(N, 5), edges, *given).square().sum().backward()
        gradients.append(layer._edge_mask.grad)
    torch.testing.assert_close(*gradients)
    assert gradients[0].abs().max() > 1e-3
    assert ours.fallback == "explain=True"
    assert_same(theirs, ours, randn(N, 5), edges, *given)


@pytest.mark.slow
def test_masks_weigh_messages_whichever_class_was_used_first():
    """PyG's explainers would not reach a class derived from one that has objects already."""
    code = """
        import torch
        from torch_geometric.nn import GATConv, GATv2Conv, TransformerConv
        layers = {"dot": TransformerConv, "additive": GATConv, "gatv2": GATv2Conv}
        theirs = {kernel: layer(5, 4) for kernel, layer in layers.items()}
        from erlangen.integrations.pyg import RelationConv
        for kernel in layers:
            for conv in (RelationConv.like(theirs[kernel]), RelationConv(5, 4, kernel=kernel)):
                edges, x = torch.tensor([[0, 1], [2, 2]]), torch.randn(3, 5)
                before = conv(x, edges)
                conv.explain, conv._edge_mask = True, torch.full((2,), -50.0)
                conv._loop_mask = edges[0] != edges[1]
                assert not torch.allclose(conv(x, edges)[2], before[2]), kernel
                assert torch.allclose(conv(x, edges)[:2], before[:2], atol=1e-6), kernel
    """
    subprocess.run([sys.executable, "-W", "ignore", "-c", dedent(code)], check=True)


# Hooks, and other ways to change what a layer does


STEPS = ["propagate", "message", "aggregate", "edge_update"]


@pytest.mark.parametrize("kernel", LAYERS)
@pytest.mark.parametrize("step", STEPS)
def test_hooks_of_message_passing_run_and_may_change_what_they_see(kernel, step):
    theirs, ours = pair(kernel, 5, 4, heads=2)
    before = ours(randn(N, 5), random_edges())
    seen = {layer: [] for layer in (theirs, ours)}

    def look(layer, inputs):
        seen[layer].append("before")

    def double(layer, inputs, out):
        seen[layer].append("after")
        return 2 * out

    handles = [
        handle
        for layer in (theirs, ours)
        for handle in (
            getattr(layer, f"register_{step}_forward_pre_hook")(look),
            getattr(layer, f"register_{step}_forward_hook")(double),
        )
    ]
    assert ours.fallback == "hooks of its message passing"
    assert_same(theirs, ours, randn(N, 5), random_edges())
    ran = kernel != "dot" or step != "edge_update"  # TransformerConv has no such step
    assert seen[ours] == seen[theirs] == (["before", "after"] if ran else [])
    assert torch.allclose(ours(randn(N, 5), random_edges()), before) != ran
    for handle in handles:
        handle.remove()
    assert ours.fallback is None
    torch.testing.assert_close(ours(randn(N, 5), random_edges()), before)


@pytest.mark.parametrize("kernel", LAYERS)
def test_hooks_of_modules_run_once(kernel):
    theirs, ours = pair(kernel, 5, 4, heads=2)
    for layer in (theirs, ours):
        layer.seen = []
        for name, module in list(layer.named_modules()):
            module.register_forward_hook(
                lambda module, inputs, out, layer=layer, name=name: layer.seen.append(name)
            )
        layer(randn(N, 5), random_edges())
    assert ours.seen == theirs.seen
    assert "aggr_module" in ours.seen


def _flow(layer):
    layer.flow = "target_to_source"


def _aggregation(layer):
    layer.aggr_module = MaxAggregation()


def _message(layer):
    message = layer.message
    layer.message = lambda *arguments, **named: 3 * message(*arguments, **named)


def _update(layer):
    layer.update = lambda inputs: inputs + 1


@pytest.mark.parametrize("kernel", LAYERS)
@pytest.mark.parametrize("change", [_flow, _aggregation, _message, _update])
def test_a_layer_that_was_changed_does_what_pyg_does(kernel, change):
    theirs, ours = pair(kernel, 5, 4, heads=2)
    before = ours(randn(N, 5), random_edges())
    for layer in (theirs, ours):
        change(layer)
    assert ours.fallback is not None
    assert_same(theirs, ours, randn(N, 5), random_edges())
    assert not torch.allclose(ours(randn(N, 5), random_edges()), before)


@pytest.mark.parametrize("kernel", LAYERS)
def test_prepared_edges_are_explained_too(kernel):
    theirs, ours = pair(kernel, 5, 4, heads=2)
    ours.register_message_forward_hook(lambda *_: None)
    graph = prepare(random_edges(), N)
    torch.testing.assert_close(ours(randn(N, 5), graph), theirs(randn(N, 5), random_edges()))


def test_like_of_a_layer_that_was_explained():
    """PyG leaves a method bound to the layer on it; the new layer must not run the old one's."""
    theirs = GATConv(5, 4).double()
    theirs.explain = True
    with pytest.raises(ParameterError, match="explain=True"):
        RelationConv.like(theirs)
    theirs.explain = None
    assert "propagate" in vars(theirs)
    ours = RelationConv.like(theirs)
    ours.register_message_forward_hook(lambda *_: None)
    assert_same(theirs, ours, randn(N, 5), random_edges())


def test_a_subclass_is_refused():
    with pytest.raises(TypeError, match=r"would not call its message\(\)"):

        class Mine(RelationConv):
            def message(self, x_j):
                return x_j

    with pytest.raises(TypeError, match=r"would not call its message\(\)"):

        class Other(type(RelationConv(5, 4))):
            pass


# Compilers


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.parametrize("kernel", LAYERS)
def test_torch_script_is_refused_and_leaves_the_model_as_it_was(kernel):
    net = nn.Sequential(RelationConv(5, 4, kernel=kernel))
    with pytest.raises(ParameterError, match=f"load its state_dict into a {LAYERS[kernel].__name__}"):
        torch.jit.script(net)
    assert isinstance(net[0], RelationConv)


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("kernel", LAYERS)
def test_a_trace_and_an_export_take_other_graphs(kernel):
    theirs, ours = pair(kernel, 5, 4, heads=2)
    x, edges, other = randn(N, 5), random_edges(), random_edges(seed=1)
    traced = torch.jit.trace(ours, (x, edges))
    exported = torch.export.export(ours, (x, edges)).module()
    for run in (traced, exported):
        torch.testing.assert_close(run(x, other), theirs(x, other))


# The compiler looks at gradients of tensors between two graphs.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize("kernel", LAYERS)
def test_compiled_layers_take_other_graphs(kernel):
    theirs, ours = pair(kernel, 5, 4, heads=2)
    torch._dynamo.reset()
    ours.compile(backend="eager")
    for seed in range(2):
        assert_same(theirs, ours, randn(N, 5), random_edges(seed=seed))

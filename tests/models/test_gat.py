"""GAT against PyG's GATConv on copied weights, its relation, its state."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.nn import GATConv

import erlangen as er
from erlangen.errors import ParameterError, ShapeError, SizeError
from erlangen.models import GAT
from erlangen.models.gat import GATLayer, with_self_loops

N = 14
TINY = GAT.Config(features=6, classes=3, hidden=4, heads=2, output_heads=2)


def edges() -> torch.Tensor:
    """Random edges; nodes 12 and 13 have none, node 3 has a self loop."""
    drawn = torch.randint(12, (2, 40), generator=torch.Generator().manual_seed(0))
    return torch.cat([drawn, torch.tensor([[3], [3]])], dim=1).unique(dim=1)


def copied(heads: int, concat: bool, slope: float) -> tuple[GATConv, GATLayer]:
    torch.manual_seed(0)
    theirs = GATConv(6, 5, heads=heads, concat=concat, negative_slope=slope).double()
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter)
    ours = GATLayer(6, 5, heads, concat=concat, slope=slope).double()
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


@pytest.mark.parametrize(("heads", "concat", "slope"), [(1, True, 0.2), (3, True, 0.2), (3, False, 0.5)])
def test_a_layer_equals_gatconv_forward_and_backward(heads, concat, slope):
    theirs, ours = copied(heads, concat, slope)
    results = []
    for layer in (theirs, ours):
        torch.manual_seed(1)
        x = torch.randn(N, 6, dtype=torch.double, requires_grad=True)
        out = layer(x, edges())
        (out * torch.randn_like(out)).sum().backward()
        results.append([out, x.grad, *(p.grad for _, p in sorted(layer.named_parameters()))])
    for ours_value, their_value in zip(*reversed(results), strict=True):
        torch.testing.assert_close(ours_value, their_value, atol=1e-10, rtol=0)


def test_isolated_nodes_read_themselves():
    _, layer = copied(2, True, 0.2)
    x = torch.randn(N, 6, dtype=torch.double)
    own = layer.lin(x) + layer.bias
    torch.testing.assert_close(layer(x, edges())[12:], own[12:])


def test_a_pair_named_twice_counts_once_and_not_twice_as_in_gatconv():
    theirs, ours = copied(2, True, 0.2)
    x, index = torch.randn(N, 6, dtype=torch.double), edges()
    doubled = torch.cat([index, index[:, ::2]], dim=1)
    assert torch.equal(ours(x, doubled), ours(x, index))
    assert not torch.allclose(theirs(x, doubled), theirs(x, index))


def test_the_graph_as_relation_and_as_edge_index():
    model = GAT(TINY).eval()
    x, graph = torch.randn(N, 6), er.Graph.from_edge_index(edges(), num_nodes=N)
    assert torch.equal(model(x, graph), model(x, edges()))
    want = (graph | er.Identity()).on(N)
    assert model.relation(graph, N).on(N) == model.relation(edges(), N).on(N) == want
    assert with_self_loops(er.Identity(), N).on(N) == er.Identity().on(N)


def test_two_layers_of_gatconv_are_a_gat():
    torch.manual_seed(0)
    model = GAT(TINY).double().eval()
    first, second = GATConv(6, 4, heads=2).double(), GATConv(8, 3, heads=2, concat=False).double()
    first.load_state_dict(model.first.state_dict())
    second.load_state_dict(model.second.state_dict())
    x = torch.randn(N, 6, dtype=torch.double)
    want = second(torch.nn.functional.elu(first(x, edges())), edges())
    torch.testing.assert_close(model(x, edges()), want, atol=1e-10, rtol=0)


def test_it_is_equivariant_under_permutations_of_the_nodes():
    model, x, index = GAT(TINY).double().eval(), torch.randn(N, 6, dtype=torch.double), edges()
    order = torch.randperm(N)
    moved = torch.empty_like(order)
    moved[order] = torch.arange(N)
    torch.testing.assert_close(model(x[order], moved[index]), model(x, index)[order])


def test_sparse_features_give_what_dense_ones_give():
    model, x = GAT(TINY), torch.randn(N, 6) * (torch.rand(N, 6) > 0.5)
    torch.testing.assert_close(model.eval()(x.to_sparse(), edges()), model.eval()(x, edges()))
    model.train()(x.to_sparse(), edges()).sum().backward()
    assert model.first.lin.weight.grad is not None
    model.config = GAT.Config(features=6, classes=3, dropout=0.5)
    dropped, kept = model._dropped(x.to_sparse()).to_dense(), x != 0
    assert torch.equal(dropped[~kept], x[~kept])
    assert set((dropped[kept] / x[kept]).round().tolist()) == {0.0, 2.0}


def test_dropout_acts_while_training_only():
    model, x = GAT(TINY), torch.randn(N, 6)
    assert not torch.equal(model(x, edges()), model(x, edges()))
    model.eval()
    assert torch.equal(model(x, edges()), model(x, edges()))


def test_saved_and_loaded(tmp_path):
    model = GAT(TINY).eval()
    model.save(tmp_path / "gat.safetensors")
    again = GAT.load(tmp_path / "gat.safetensors").eval()
    x = torch.randn(N, 6)
    assert again.config == TINY
    assert torch.equal(again(x, edges()), model(x, edges()))


def test_the_audit_finds_the_graph_with_self_loops():
    graph = er.Graph.from_edge_index(edges(), num_nodes=N)

    class Whole(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.gat = GAT(TINY)

        def forward(self, x):
            return self.gat(x, graph)

    torch.manual_seed(0)
    report = er.audit(Whole().eval(), torch.randn(N, 6), variants=False)
    assert [call.measured.kernel.unique for call in report.calls] == [((graph | er.Identity()).on(N),)] * 2


def test_wrong_input_is_explained():
    with pytest.raises(ParameterError, match="hidden"):
        GAT.Config(features=6, classes=3, hidden=0)
    with pytest.raises(ParameterError, match="dropout"):
        GAT.Config(features=6, classes=3, dropout=1.0)
    with pytest.raises(ShapeError, match=r"\(n, 6\), got \(14, 7\)"):
        GAT(TINY)(torch.randn(N, 7), edges())
    with pytest.raises(SizeError, match="source 11"):
        GAT(TINY)(torch.randn(5, 6), torch.tensor([[11], [0]]))
    with pytest.raises(ParameterError, match="edge_index must be"):
        GAT(TINY)(torch.randn(5, 6), "Causal()")

"""RelationConv where tensors are made in inference mode first, or have no numbers."""

from __future__ import annotations

import pytest
import torch

from erlangen.errors import ParameterError
from erlangen.integrations.pyg import RelationConv, prepare

N = 5
SIMPLE = torch.tensor([[0, 1, 2, 3, 3], [1, 2, 0, 4, 3]])
TWICE = torch.tensor([[0, 1, 1, 3, 3], [1, 2, 2, 4, 3]])
KINDS = {"dot": {}, "additive": {"kernel": "additive"}, "gatv2": {"kernel": "gatv2"}}


def layer(kind):
    torch.manual_seed(0)
    return RelationConv(4, 2, heads=2, edge_dim=2, **KINDS[kind])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("given", [SIMPLE, TWICE, SIMPLE.int()], ids=["simple", "twice", "int32"])
@pytest.mark.parametrize("how", ["as it is", "prepared inside", "made inside"])
def test_training_after_inference_on_the_same_graph(kind, given, how):
    conv, x, features = layer(kind), torch.randn(N, 4), torch.randn(5, 2)
    with torch.inference_mode():
        edge_index = given.clone() if how == "made inside" else given
        graph = prepare(edge_index, N) if how == "prepared inside" else edge_index
        before = conv(x, graph, features)
        conv(x, graph, features, return_attention_weights=True)
    for again, edges in ((conv, graph), (layer(kind), given.clone())):
        out = again(x, edges, features)
        torch.testing.assert_close(out, before)
        out.square().sum().backward()
        assert all(parameter.grad is not None for parameter in again.parameters())
        weights = again(x, edges, features, return_attention_weights=True)[1][1]
        weights.square().sum().backward()


def test_edges_without_numbers_are_refused_in_words():
    with torch.device("meta"):
        conv, x, edge_index = RelationConv(4, 2), torch.randn(N, 4), torch.zeros(2, 3, dtype=torch.long)
    with pytest.raises(ParameterError, match=r"edge_index of shape \(2, 3\) is on the meta device"):
        conv(x, edge_index)
    with pytest.raises(ParameterError, match="meta device"):
        prepare(edge_index, N)

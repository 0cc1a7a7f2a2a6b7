"""The layers against the equations of the paper, written here from the definitions."""

from __future__ import annotations

from math import sqrt

import pytest
import torch
from torch import nn
from torch.autograd import gradcheck

import erlangen as er
from erlangen.errors import ParameterError, ShapeError
from erlangen.nn import (
    Attention,
    EncoderDecoderAttention,
    GraphAttention,
    GraphLayer,
    MaskedAttention,
    SelfAttention,
    SparseAttention,
    StridedAttention,
)

D = 6


class Equation(nn.Module):
    """alpha = softmax over N_i of <Q x_i, K y_j> / sqrt(d); the state dict the paper's own modules have."""

    def __init__(self, d):
        super().__init__()
        self.Q, self.K, self.V = (nn.Linear(d, d, bias=False) for _ in range(3))

    def forward(self, x, y, allowed):
        h, weights = (
            torch.zeros(len(x), y.shape[1], dtype=x.dtype),
            torch.zeros(len(x), len(y), dtype=x.dtype),
        )
        for i in range(len(x)):
            reads = [j for j in range(len(y)) if allowed(i, j)]
            if reads:
                scores = torch.stack([self.Q(x[i]) @ self.K(y[j]) / sqrt(x.shape[1]) for j in reads])
                alpha = torch.softmax(scores, 0)
                h[i] = sum(a * self.V(y[j]) for a, j in zip(alpha, reads, strict=True))
                weights[i, reads] = alpha
        return h, weights


GRAPH = torch.tensor([[0, 1, 0, 0], [1, 1, 0, 1], [0, 0, 0, 0], [1, 0, 0, 1]])
ENCODER = torch.randn(5, D, dtype=torch.float64, generator=torch.Generator().manual_seed(9))

SIX = {
    "self": (SelfAttention(D), (), lambda i, j: True),
    "masked": (MaskedAttention(D), (), lambda i, j: j <= i),
    "encoder-decoder": (EncoderDecoderAttention(D), (ENCODER,), lambda i, j: True),
    "strided": (StridedAttention(D, stride=3), (), lambda i, j: max(0, i - 2) <= j <= i),
    "sparse": (SparseAttention(D, er.Dilated(2)), (), lambda i, j: (i - j) % 2 == 0),
    "graph": (GraphAttention(D), (GRAPH,), lambda i, j: bool(GRAPH[i, j])),
}


@pytest.mark.parametrize("name", SIX)
def test_the_six_layers_are_their_equations(name):
    layer, arguments, allowed = SIX[name]
    layer = layer.double()
    equation = Equation(D).double()
    layer.load_state_dict(equation.state_dict())
    assert list(layer.state_dict()) == ["Q.weight", "K.weight", "V.weight"]
    x = torch.randn(4, D, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    source = arguments[0] if name == "encoder-decoder" else x
    h, weights = layer(x, *arguments)
    expected_h, expected_weights = equation(x, source, allowed)
    torch.testing.assert_close(h, expected_h, atol=1e-12, rtol=0)
    torch.testing.assert_close(weights, expected_weights, atol=1e-12, rtol=0)
    fast, none = layer(x, *arguments, need_weights=False)
    assert none is None
    torch.testing.assert_close(fast, h, atol=1e-12, rtol=0)


@pytest.mark.parametrize("name", SIX)
def test_the_six_layers_take_batches_and_half_precision(name):
    layer, arguments, _ = SIX[name]
    layer = layer.double()
    x = torch.randn(3, 4, D, dtype=torch.float64)
    batched = [a.expand(3, *a.shape) if name == "encoder-decoder" else a for a in arguments]
    h, weights = layer(x, *batched)
    assert h.shape == x.shape
    for b in range(3):
        single, w = layer(x[b], *arguments)
        torch.testing.assert_close(h[b], single, atol=1e-12, rtol=0)
        torch.testing.assert_close(weights[b], w, atol=1e-12, rtol=0)
    import copy

    half = copy.deepcopy(layer).to(torch.bfloat16)
    low = [a.to(torch.bfloat16) if a.is_floating_point() else a for a in batched]
    out, _ = half(x.to(torch.bfloat16), *low)
    assert out.dtype == torch.bfloat16
    assert (out.double() - h).abs().max() < 0.1


@pytest.mark.parametrize("name", SIX)
def test_the_six_layers_have_right_gradients(name):
    layer, arguments, _ = SIX[name]
    x = torch.randn(4, D, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda x: layer.double()(x, *arguments)[0], (x,))


def test_graph_attention_gives_zeros_where_nothing_is_read():
    layer = GraphAttention(D).double()
    x = torch.ones(4, D, dtype=torch.float64)
    h, weights = layer(torch.randn(4, D, dtype=torch.float64), GRAPH)
    assert (h[2] == 0).all()
    assert (weights[2] == 0).all()
    by_relation, _ = layer(x, er.Graph([(0, 1), (1, 0), (1, 1), (1, 3), (3, 0), (3, 3)]))
    by_matrix, _ = layer(x, GRAPH)
    assert torch.equal(by_relation, by_matrix)
    batch, _ = layer(x.expand(2, 4, D), torch.stack([GRAPH, GRAPH.T]))
    # A batched and a single matrix product may sum in another order.
    assert torch.allclose(batch[1], layer(x, GRAPH.T)[0], rtol=0, atol=1e-12)
    sparse, _ = layer(x, GRAPH.to_sparse())
    assert torch.equal(sparse, by_matrix)


@pytest.mark.parametrize("shape", [(3, 3), (4, 5), (2, 4, 4), (4,)])
def test_adjacency_of_the_wrong_shape(shape):
    with pytest.raises(ShapeError, match="adjacency must have shape"):
        GraphAttention(D)(torch.randn(4, D), torch.ones(shape))


def test_wrong_widths_and_parameters():
    with pytest.raises(ShapeError, match=r"SelfAttention\(6\) takes"):
        SelfAttention(D)(torch.randn(4, 5))
    with pytest.raises(ParameterError, match="stride"):
        StridedAttention(D, stride=0)
    with pytest.raises(ParameterError, match="Relation"):
        SparseAttention(D, "causal")  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="adjacency"):
        GraphAttention(D)(torch.randn(4, D), [[1]])  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="multiple of num_heads"):
        Attention(6, num_heads=4)
    with pytest.raises(ShapeError, match="x must be"):
        Attention(6)(torch.randn(3, 5))


def test_attention_is_a_graph_layer():
    """The message carries numerator and denominator; the update divides (empty rows give 0)."""
    torch.manual_seed(0)
    Q, K, V = (torch.randn(D, D, dtype=torch.float64) for _ in range(3))

    def message(xi, xj):
        e = ((xi @ Q) * (xj @ K)).sum(-1, keepdim=True).div(sqrt(D)).exp()
        return e, e * (xj @ V)

    def update(x, aggregated):
        z, s = aggregated
        return s / torch.where(z == 0, 1, z)

    layer = GraphLayer(message, "sum", update)
    x = torch.randn(2, 7, D, dtype=torch.float64)
    for relation in (er.Full(), er.Causal() - er.Identity(), er.Window(2, 1), er.Dilated(3)):
        expected = er.attend(*((x @ w)[:, None] for w in (Q, K, V)), relation, backend="reference")[:, 0]
        torch.testing.assert_close(layer(x, relation), expected, atol=1e-12, rtol=0)


def test_graph_layer_monoids_and_units():
    x = torch.tensor([[1.0], [5.0], [3.0]])
    relation = er.Causal() - er.Identity()
    largest = GraphLayer(lambda xi, xj: xj, "max", lambda x, m: m)
    assert largest(x, relation).squeeze().tolist() == [-torch.inf, 1.0, 5.0]
    smallest = GraphLayer(lambda xi, xj: xj, "min", lambda x, m: m)
    assert smallest(x, relation).squeeze().tolist() == [torch.inf, 1.0, 1.0]
    context = GraphLayer(lambda xi, xj: xj, "sum", lambda x, m: m)
    assert context(x, er.Full(), torch.ones(4, 1)).squeeze().tolist() == [4.0, 4.0, 4.0]
    with pytest.raises(ParameterError, match="sum, max, min"):
        GraphLayer(None, "mean", None)  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match="does not fit"):
        context(x, er.Full().on(2))


def test_general_layer_against_torch():
    """With the full relation and copied weights it is `nn.MultiheadAttention`."""
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(8, 4, bias=True, batch_first=True).double().eval()
    ours = Attention(8, num_heads=4, bias=True).double()
    wq, wk, wv = theirs.in_proj_weight.chunk(3)
    bq, bk, bv = theirs.in_proj_bias.chunk(3)
    ours.load_state_dict(
        {
            "Q.weight": wq, "Q.bias": bq, "K.weight": wk, "K.bias": bk, "V.weight": wv, "V.bias": bv,
            "O.weight": theirs.out_proj.weight, "O.bias": theirs.out_proj.bias,
        }
    )  # fmt: skip
    x, context = torch.randn(2, 5, 8).double(), torch.randn(2, 7, 8).double()
    torch.testing.assert_close(ours(x), theirs(x, x, x)[0], atol=1e-12, rtol=0)
    h, weights = ours(x, context, need_weights=True)
    expected, expected_weights = theirs(x, context, context, average_attn_weights=False)
    torch.testing.assert_close(h, expected, atol=1e-12, rtol=0)
    torch.testing.assert_close(weights, expected_weights, atol=1e-12, rtol=0)


def test_general_layer_options():
    torch.manual_seed(0)
    layer = Attention(8, num_heads=4, num_kv_heads=2, relation=er.PerHead([er.Causal()] * 4), dropout=0.5)
    assert layer.K.weight.shape == (4, 8)
    assert "Causal()" in repr(layer)
    x = torch.randn(2, 5, 8)
    assert not torch.equal(layer(x), layer(x))  # dropout acts in training
    layer.eval()
    assert torch.equal(layer(x), layer(x))
    padded = layer(x, relation=er.Batch([er.Padding(5), er.Padding(2)]))
    changed = x.clone()
    changed[1, 2:] += 1
    assert torch.equal(
        layer(changed, relation=er.Batch([er.Padding(5), er.Padding(2)]))[1, :2], padded[1, :2]
    )
    cross = Attention(8, 2, context_dim=3)
    assert cross(torch.randn(5, 8), torch.randn(4, 3)).shape == (5, 8)

"""Layers over weighted relations: the definition, gradients, and decoding through a cache, token by token."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import erlangen as er
from erlangen.errors import ParameterError, SizeError
from erlangen.nn import Attention, KVCache, RelativeBias

N = 11
CHAIN = er.Graph([(i, j) for i in range(N) for j in (i - 1, i, i - 4) if j >= 0], nodes=N)
_NUMBERS = np.random.default_rng(0)

DECODED = [
    er.ALiBi([0.5, 0.25]),
    er.ALiBi(0.7),
    er.ALiBi([0.5, 2], relation=er.Window(3)),
    er.ALiBi([0.5, 2], relation=er.Causal() & er.Dilated(3)),
    er.ALiBi([0.5, 2], relation=er.PerHead([er.Window(2), er.Causal()])),
    er.ALiBi(1.5, relation=er.Batch([er.Causal(), er.Window(1)])),
    er.Decay([0.9, 0.4], relation=er.Window(4)),
    er.Weighted(er.Causal() - er.Identity(), offsets={-1: (1, 2), -3: (0.5, -1)}),
    er.RelativeBias(_NUMBERS.normal(size=(2, 8)), relation=er.Causal(), bidirectional=False, max_distance=9),
    er.Weighted(er.Window(5), _NUMBERS.normal(size=(2, N, N))),
    er.Weighted(CHAIN, edges=_NUMBERS.normal(size=(2, CHAIN.on(N).num_edges))),
    er.Distance(CHAIN, _NUMBERS.normal(size=(2, 4)), relation=er.Causal()),
]


def layer_of(relation, seed=0):
    torch.manual_seed(seed)
    return Attention(8, num_heads=2, relation=relation).double().eval()


def by_definition(layer, x, bias):
    """Softmax over N_i of scores plus log-weights, pair by pair in dense matrices."""
    q, k, v = (m(x).unflatten(-1, (2, 4)).transpose(-3, -2) for m in (layer.Q, layer.K, layer.V))
    logits = q @ k.transpose(-1, -2) / 2 + torch.from_numpy(np.array(bias))
    weights = torch.softmax(logits, -1).nan_to_num(0.0)  # a row of -inf reads nothing
    return layer.O((weights @ v).transpose(-3, -2).flatten(-2))


@pytest.mark.parametrize("relation", DECODED, ids=str)
def test_the_layer_is_the_definition(relation):
    layer = layer_of(relation)
    x = torch.randn(2, N, 8, dtype=torch.float64)
    out = layer(x)
    family = isinstance(relation.support, (er.PerHead, er.Batch))
    members = relation.support.members if family else (relation.support,)
    biases = [relation.with_support(member).on(N).dense() for member in members]
    if isinstance(relation.support, er.PerHead):
        biases = [np.stack([bias[head] for head, bias in enumerate(biases)])]
    for item in range(2):
        expected = by_definition(layer, x[item], biases[item % len(biases)])
        torch.testing.assert_close(out[item], expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("relation", DECODED, ids=str)
@pytest.mark.parametrize("steps", [[1] * N, [4, 1, 1, 5], [N]], ids=str)
def test_decoding_through_a_cache_is_the_full_pass(relation, steps):
    layer = layer_of(relation)
    x = torch.randn(2, N, 8, dtype=torch.float64)
    for need_weights in (False, True):
        cache, pieces, start = KVCache(length=N), [], 0
        with torch.no_grad():
            for size in steps:
                out = layer(x[:, start : start + size], cache=cache, need_weights=need_weights)
                pieces.append(out[0] if need_weights else out)
                start += size
            torch.testing.assert_close(torch.cat(pieces, 1), layer(x), atol=1e-12, rtol=0)


@pytest.mark.parametrize("relation", DECODED[:6], ids=str)
def test_decoding_without_a_length(relation):
    layer, cache = layer_of(relation), KVCache()
    x = torch.randn(2, N, 8, dtype=torch.float64)
    with torch.no_grad():
        pieces = [layer(x[:, t : t + 1], cache=cache) for t in range(N)]
        torch.testing.assert_close(torch.cat(pieces, 1), layer(x), atol=1e-12, rtol=0)


def test_a_wrong_offset_would_be_seen():
    """The comparison can fail: weights that were read off the rectangle alone give another layer."""
    layer, cache = layer_of(er.ALiBi([0.5, 2], relation=er.Window(3))), KVCache()
    x = torch.randn(2, N, 8, dtype=torch.float64)
    with torch.no_grad():
        for t in range(N - 1):
            layer(x[:, t : t + 1], cache=cache)
        layer.relation = er.ALiBi([0.25, 2], relation=er.Window(3))
        last = layer(x[:, -1:], cache=cache)
        layer.relation = er.ALiBi([0.5, 2], relation=er.Window(3))
        assert (last - layer(x)[:, -1:]).abs().max() > 1e-3


def test_tokens_are_the_same_as_without_a_cache():
    """Greedy decoding of a tiny language model, with and without cache: equal token by token."""
    torch.manual_seed(0)
    embed, head = torch.nn.Embedding(17, 8).double(), torch.nn.Linear(8, 17).double()
    layers = [layer_of(er.ALiBi(er.ALiBi.slopes_for(2), relation=er.Window(6)), seed) for seed in range(2)]
    tokens = torch.randint(17, (3, 5))
    with torch.no_grad():
        whole = tokens
        for _ in range(12):
            x = embed(whole)
            for layer in layers:
                x = x + layer(x)
            whole = torch.cat([whole, head(x[:, -1:]).argmax(-1)], 1)
        caches, cached, new = [KVCache() for _ in layers], tokens, tokens
        for _ in range(12):
            x = embed(new)
            for layer, cache in zip(layers, caches, strict=True):
                x = x + layer(x, cache=cache)
            new = head(x[:, -1:]).argmax(-1)
            cached = torch.cat([cached, new], 1)
    assert torch.equal(whole, cached)
    assert len(whole[0].unique()) > 3


def test_gradients_reach_the_learned_bias():
    torch.manual_seed(0)
    layer, bias = Attention(8, num_heads=2).double(), RelativeBias(2, buckets=8, max_distance=9).double()
    torch.nn.init.normal_(bias.table)
    x = torch.randn(5, 8, dtype=torch.float64)

    def loss(table):
        bias.table = torch.nn.Parameter(table) if not isinstance(table, torch.nn.Parameter) else table
        return layer(x, relation=bias()).square().sum()

    loss(bias.table).backward()
    grad, table = bias.table.grad.clone(), bias.table.detach().clone()
    for h, b in ((0, 0), (1, 1), (0, 5), (1, 6)):
        step = torch.zeros_like(table)
        step[h, b] = 1e-6
        numeric = (loss(table + step) - loss(table - step)) / 2e-6
        assert abs(numeric.item() - grad[h, b].item()) < 1e-6
    assert grad[:, 3].abs().max() == 0  # no distance of five positions falls into the last bucket of a side


def test_refusals():
    with pytest.raises(ParameterError, match="weights for 3 heads"):
        Attention(8, num_heads=2, relation=er.ALiBi([1, 2, 3]))
    with pytest.raises(ParameterError, match="weighted relation"):
        Attention(8, relation="ALiBi(1)")
    full = Attention(8, relation=er.ALiBi(1, relation=er.Full()))
    with pytest.raises(SizeError, match="step by step"):
        full(torch.randn(1, 1, 8), cache=KVCache())

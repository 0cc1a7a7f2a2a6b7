"""Decoding through a cache gives the full pass, token by token and chunk by chunk, for any relation."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import erlangen as er
from erlangen.errors import ParameterError, ShapeError, SizeError
from erlangen.nn import Attention, KVCache
from erlangen.testing.strategies import LEAVES, relations

N = 12


def decode(layer, x, steps, length):
    cache = KVCache(length=length)
    pieces, start = [], 0
    for size in steps:
        pieces.append(layer(x[:, start : start + size], cache=cache))
        start += size
    return torch.cat(pieces, 1)


def check(relation, steps, length):
    torch.manual_seed(0)
    layer = Attention(8, num_heads=2, relation=relation).double().eval()
    x = torch.randn(2, sum(steps), 8, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(decode(layer, x, steps, length), layer(x), atol=1e-12, rtol=0)


@pytest.mark.parametrize("kind", sorted(LEAVES, key=lambda c: c.__name__), ids=lambda c: c.__name__)
@given(data=st.data())
@settings(max_examples=10)
def test_any_relation_made_causal_decodes_exactly(kind, data):
    relation = data.draw(LEAVES[kind](N)) & er.Causal()
    check(relation, [1] * N, length=N)
    check(relation, [5, 1, 4, 2], length=N)


@given(relations(N, 4))
@settings(max_examples=30)
def test_any_expression_made_causal_decodes_exactly(relation):
    check(relation & er.Causal(), [3] + [1] * (N - 3), length=N)


GROWING = [
    er.Causal(),
    er.Window(3),
    er.Identity(),
    er.Causal() & er.Dilated(3),
    er.Causal() & er.Blocks(4),
    er.Window(2) | er.Global(keys=[0, 5]) & er.Causal(),
    er.PerHead([er.Window(2), er.Causal() & er.Dilated(2)]),
    er.Batch([er.Causal(), er.Window(1)]),
]


@pytest.mark.parametrize("relation", GROWING, ids=repr)
def test_relations_that_never_change_need_no_length(relation):
    check(relation, [1] * N, length=None)
    check(relation, [4, 4, 1, 3], length=None)


def test_a_prefix_is_read_in_one_step():
    check(er.Prefix(4), [4] + [1] * (N - 4), length=None)
    with pytest.raises(SizeError, match=r"Prefix\(length=4\) cannot be decoded step by step: position 0"):
        check(er.Prefix(4), [1] * N, length=None)


@pytest.mark.parametrize("relation", [er.Full(), er.Window(2, lookahead=1), er.Ring(1, 0)], ids=repr)
@pytest.mark.parametrize("length", [None, N])
def test_reading_the_future_is_refused(relation, length):
    with pytest.raises(SizeError, match="cannot be decoded step by step"):
        check(relation, [1] * N, length)


def test_sizes_of_their_own_need_the_length():
    relation = er.Documents([5, 7]) & er.Causal()
    with pytest.raises(SizeError, match="12 positions"):
        check(relation, [1] * N, length=None)
    check(relation, [1] * N, length=N)


@pytest.mark.parametrize(
    "relation",
    [
        er.Ring(3, 0) & er.Prefix(5),  # row 0 reads 3 and 4 while there are 6 positions
        er.Offset(-1) | ((er.Offset(2) @ er.Offset(-2)) - (er.Offset(5) @ er.Offset(-5))),
        er.Random(1, 397) & er.Offset(-1) | er.Identity(),
    ],
    ids=repr,
)
def test_rows_that_change_and_change_back_need_the_length(relation):
    with pytest.raises(SizeError, match=r"KVCache\(length=\.\.\.\)"):
        check(relation, [1] * N, length=None)


def test_a_cache_is_checked():
    layer = Attention(8)
    cache = KVCache(length=3)
    layer(torch.randn(2, 3, 8), cache=cache)
    assert cache.position == 3
    with pytest.raises(SizeError, match="made for 3 positions"):
        layer(torch.randn(2, 1, 8), cache=cache, relation=er.Causal())
    with pytest.raises(ParameterError, match="either cache or context"):
        layer(torch.randn(2, 1, 8), torch.randn(2, 1, 8), cache=KVCache())
    other = KVCache()
    layer(torch.randn(2, 3, 8), cache=other, relation=er.Causal())
    with pytest.raises(ShapeError, match="the cache holds"):
        layer(torch.randn(5, 1, 8), cache=other, relation=er.Causal())
    with pytest.raises(ParameterError):
        KVCache(length=-1)


def test_gradients_flow_through_a_cache():
    layer = Attention(8, relation=er.Causal()).double()
    x = torch.randn(1, 4, 8, dtype=torch.float64, requires_grad=True)
    (stepwise,) = torch.autograd.grad(decode(layer, x, [1, 2, 1], None).square().sum(), x)
    (whole,) = torch.autograd.grad(layer(x).square().sum(), x)
    torch.testing.assert_close(stepwise, whole, atol=1e-10, rtol=0)


@given(relations(N, 3), st.sampled_from([None, N]))
@settings(max_examples=60)
def test_any_expression_decodes_exactly_or_is_refused(relation, length):
    torch.manual_seed(0)
    layer = Attention(8, num_heads=2, relation=relation).double().eval()
    x = torch.randn(1, N, 8, dtype=torch.float64)
    try:
        steps = decode(layer, x, [1] * N, length)
    except SizeError:
        return
    torch.testing.assert_close(steps, layer(x))


@pytest.mark.parametrize(
    "relation",
    [
        er.Dilated(4),
        er.Offset(5),
        er.Offset(11),
        er.Causal() | er.Global(keys=[10]),
        er.Window(2).T @ er.Dilated(5),
    ],
    ids=repr,
)
def test_a_key_far_ahead_is_refused(relation):
    layer = Attention(8, num_heads=2, relation=relation)
    with pytest.raises(SizeError, match="decoded step by step"):
        decode(layer, torch.randn(1, N, 8), [1] * N, None)


@torch.no_grad()
@pytest.mark.parametrize("compiled", [False, True])
def test_a_cache_belongs_to_one_layer(compiled):
    first, second, cache = Attention(8, relation=er.Causal()), Attention(8, relation=er.Causal()), KVCache()
    x = torch.randn(1, 3, 8)
    if compiled:
        first, second = (torch.compile(layer, backend="eager") for layer in (first, second))
    first(x, cache=cache)
    with pytest.raises(ParameterError, match="another layer"):
        second(x, cache=cache)
    again = pickle.loads(pickle.dumps(cache))
    assert again.position == 3
    second(x, cache=again)
    first(x, cache=copy.deepcopy(cache))


@pytest.mark.parametrize("chunks", [[4, 5], [3, 3, 3], [1] * 9])
def test_gradients_of_queries_alone_flow_through_a_cache(chunks):
    layer = Attention(8, relation=er.Causal()).double()
    layer.requires_grad_(False).Q.requires_grad_(True)
    x = torch.randn(1, 9, 8, dtype=torch.float64)
    (stepwise,) = torch.autograd.grad(decode(layer, x, chunks, None).square().sum(), layer.Q.weight)
    (whole,) = torch.autograd.grad(layer(x).square().sum(), layer.Q.weight)
    torch.testing.assert_close(stepwise, whole, atol=1e-10, rtol=0)

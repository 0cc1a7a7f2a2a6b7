"""Unlimiformer: full cross-attention where k is large, the mass k keys hold, memory, chunks, decoding."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import erlangen as er
from erlangen.errors import ParameterError, ShapeError, SizeError
from erlangen.models import Unlimiformer
from erlangen.models.unlimiformer import NearestAttention, chunks

TINY = {"vocab_size": 11, "chunk": 8, "context": 6, "layers": 2, "heads": 2, "width": 16}


def tiny(**options) -> Unlimiformer:
    torch.manual_seed(0)
    return Unlimiformer(Unlimiformer.Config(**TINY | options)).eval()


def tokens(*shape: int) -> torch.Tensor:
    return torch.randint(11, shape, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("k", [30, 1000])
def test_equals_full_cross_attention_when_k_reaches_the_length(k):
    torch.manual_seed(0)
    ours = NearestAttention(16, 4, er.Nearest(k)).double()
    full = er.Attention(16, 4).double()
    full.load_state_dict(ours.state_dict())
    results = []
    for layer in (ours, full):
        torch.manual_seed(1)
        x = torch.randn(2, 5, 16, dtype=torch.double, requires_grad=True)
        states = torch.randn(2, 30, 16, dtype=torch.double, requires_grad=True)
        out = layer(x, states)
        out.square().sum().backward()
        results.append([out, x.grad, states.grad, *(p.grad for p in layer.parameters())])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, atol=1e-10, rtol=0)


def test_the_whole_model_with_k_of_the_length_is_a_full_encoder_decoder():
    model = tiny(k=40)
    source, target = tokens(2, 40), tokens(2, 6)
    want = model(source, target)
    for block in model.decoder:
        full = er.Attention(16, 2)
        full.load_state_dict(block.reading.state_dict())
        block.reading = full
    torch.testing.assert_close(model(source, target), want, atol=1e-6, rtol=0)
    assert (tiny(k=2)(source, target) - want).abs().max() > 1e-4


def test_each_head_reads_the_k_states_of_its_highest_scores():
    torch.manual_seed(0)
    layer = NearestAttention(16, 4, er.Nearest(3)).double()
    x, states = torch.randn(1, 5, 16, dtype=torch.double), torch.randn(1, 50, 16, dtype=torch.double)
    q, k, v = (
        linear(given).unflatten(-1, (4, 4)).transpose(1, 2)
        for linear, given in ((layer.Q, x), (layer.K, states), (layer.V, states))
    )
    scores = q @ k.mT / 2
    kept = scores >= scores.topk(3).values[..., -1:]
    weights = scores.masked_fill(~kept, -torch.inf).softmax(-1)
    want = layer.O((weights @ v).transpose(1, 2).flatten(-2))
    torch.testing.assert_close(layer(x, states), want, atol=1e-10, rtol=0)


def recovered(spread: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Of 64 random queries with scores of this spread over 1,024 keys: the number of keys that full attention
    effectively reads, exp(entropy), and the share of its mass on the 16 keys of Nearest(16)."""
    generator = torch.Generator().manual_seed(0)
    q, k = (torch.randn(1, n, 64, generator=generator, dtype=torch.double) for n in (64, 1024))
    _, weights = er.attend(q * spread, k, k, return_weights=True)
    entropy = -(weights * weights.clamp(min=1e-300).log()).sum(-1)
    inside = torch.from_numpy(er.Nearest(16).on(q[0] * spread, k[0]).dense())
    return entropy.exp()[0], (weights[0] * inside).sum(-1)


def test_sixteen_of_1024_keys_hold_the_mass_of_peaked_queries():
    effective, mass = recovered(spread=5.0)
    peaked = effective < 16  # attention that reads, in effect, fewer keys than are looked up
    assert peaked.sum() > 48
    assert mass[peaked].mean() > 0.9
    assert mass[peaked].min() > 0.5


def test_they_do_not_hold_the_mass_of_flat_queries():
    effective, mass = recovered(spread=0.3)
    assert effective.min() > 512
    assert mass.max() < 0.1


class Largest(TorchDispatchMode):
    """The most numbers that any operation gives."""

    def __init__(self):
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        out = function(*arguments, **(keywords or {}))
        for tensor in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(tensor, torch.Tensor):
                self.numbers = max(self.numbers, tensor.numel())
        return out


def largest_tensor(layer, length: int) -> int:
    x, states = torch.randn(1, 64, 16), torch.randn(1, length, 16)
    with torch.no_grad(), Largest() as seen:
        layer(x, states)
    return seen.numbers


def test_no_tensor_of_queries_by_states_is_formed():
    length = 20_000
    nearest = largest_tensor(NearestAttention(16, 2, er.Nearest(8)), length)
    assert nearest == length * 16  # the states themselves, which a view gives again
    assert largest_tensor(er.Attention(16, 2, backend="reference"), length) >= 64 * length


def test_a_query_reads_k_edges_whatever_the_length():
    q = torch.randn(5, 16)
    for length in (100, 5000):
        assert er.Nearest(8).on(q, torch.randn(length, 16)).degrees.tolist() == [8] * 5


@pytest.mark.parametrize("length", [1, 7, 8, 9, 12, 13, 50, 51])
def test_chunks_keep_every_position_once_with_context(length):
    pieces = chunks(length, 8)
    assert [n for _, first, last in pieces for n in range(first, last)] == list(range(length))
    for start, first, last in pieces:
        assert start <= first < last <= min(start + 8, length)
        for place in range(first, last):
            assert place - start >= min(2, place)
            assert min(start + 8, length) - 1 - place >= min(1, length - 1 - place)


def test_an_input_of_one_chunk_is_encoded_whole_and_a_longer_one_locally():
    model = tiny()
    source = tokens(1, 64)
    states = model.encode(source)
    assert states.shape == (1, 64, 16)
    changed = source.clone()
    changed[0, 0] = (changed[0, 0] + 1) % 11
    moved = (model.encode(changed) - states).abs().sum(-1)[0] > 0
    assert moved[:5].all()
    assert not moved[8:].any()


def test_every_token_of_a_long_input_can_be_read():
    model = tiny(k=300)
    source, target = tokens(1, 300), tokens(1, 3)
    states = model.encode(source).detach().requires_grad_()
    model.decode(states, target).square().sum().backward()
    assert (states.grad.abs().sum(-1) > 0).all()


def test_generation_with_a_cache_is_that_without():
    model = tiny(k=5)
    source, target = tokens(2, 100), tokens(2, 2)
    grown = target
    for _ in range(4):
        grown = torch.cat([grown, model(source, grown)[:, -1:].argmax(-1)], dim=1)
    assert torch.equal(model.generate(source, target, 4), grown)


def test_faiss_gives_the_same():
    pytest.importorskip("faiss")
    source, target = tokens(2, 200), tokens(2, 6)
    exact, faiss = tiny(k=4), tiny(k=4, index="faiss")
    torch.testing.assert_close(faiss(source, target), exact(source, target))


def test_saved_and_loaded(tmp_path):
    model = tiny(k=4)
    model.save(tmp_path / "model.safetensors")
    again = Unlimiformer.load(tmp_path / "model.safetensors").eval()
    assert again.relation == er.Nearest(4)
    assert torch.equal(again(tokens(1, 40), tokens(1, 3)), model(tokens(1, 40), tokens(1, 3)))


def test_wrong_input_is_explained():
    with pytest.raises(ParameterError, match="multiple of heads=3"):
        Unlimiformer.Config(**TINY | {"heads": 3})
    with pytest.raises(ParameterError, match="multiple of 4"):
        Unlimiformer.Config(**TINY | {"chunk": 6})
    with pytest.raises(ParameterError, match=r"Unlimiformer.Config\(k\)"):
        Unlimiformer.Config(**TINY | {"k": 0})
    with pytest.raises(ShapeError, match=r"\(batch, n\), got \(2, 0\)"):
        tiny()(tokens(2, 0), tokens(2, 3))
    with pytest.raises(ShapeError, match=r"target must be \(2, m\), got \(3, 3\)"):
        tiny()(tokens(2, 9), tokens(3, 3))
    with pytest.raises(SizeError, match="6 tokens at most, got 7"):
        tiny()(tokens(2, 9), tokens(2, 7))

"""Two models, backends, modes, prefill and decode: the same relations, or the edges that differ."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import erlangen as er
from audit_models import stack, vectors
from erlangen.audit import compare
from erlangen.errors import DataError, ParameterError

N = 8
CAUSAL = er.Causal()


def test_two_styles_of_the_same_relation():
    a, b = (stack([[CAUSAL, er.Window(2)]] * 2, N, style) for style in ("masked_fill", "sdpa_bool"))
    result = compare(a, b, vectors(N))
    assert result
    assert result.calls == 2
    assert str(result) == "first / second: the same relations (2 attention calls)"


def test_the_first_edge_the_head_and_the_count():
    a, b = stack([[CAUSAL, CAUSAL]], N), stack([[CAUSAL, er.Window(5)]], N)
    result = compare(a, b, vectors(N), flow=False)
    assert not result.same
    (one,) = result.differences
    assert (one.module, one.head, one.query, one.key, one.reader, one.edges) == (
        "layers.0.attention", 1, 6, 0, "first", 6,
    )  # fmt: skip
    assert "edge (6, 0) is read by first, not by second; 6 edges differ" in str(result)


def test_other_numbers_of_calls_and_heads_are_said():
    a = stack([[CAUSAL, CAUSAL]], N)
    assert "first has 1 attention calls, second has 2" in str(
        compare(a, stack([[CAUSAL] * 2] * 2, N), vectors(N))
    )
    result = compare(a, stack([[CAUSAL] * 4], N), vectors(N))
    assert not result
    assert "heads x queries x keys (2, 8, 8), second has (4, 8, 8)" in str(result)


def test_a_leak_outside_attention_is_seen_by_the_flow():
    class Shifted(nn.Module):
        def __init__(self, ahead):
            super().__init__()
            self.stack, self.ahead = stack([[CAUSAL]], N), ahead

        def forward(self, x):
            return self.stack(x) + (x.roll(-1, 1) if self.ahead else 0)

    result = compare(Shifted(False), Shifted(True), vectors(N))
    assert [one.module for one in result.differences] == ["the flow from x"]


def test_nothing_is_inferred_from_silence():
    result = compare(nn.Linear(16, 16), nn.Linear(16, 16), vectors(N), flow=False)
    assert not result
    assert "nothing was compared" in str(result)
    assert compare(nn.Linear(16, 16), nn.Linear(16, 16), vectors(N))


class Forgetful(nn.Module):
    def __init__(self, forgets):
        super().__init__()
        self.forgets = forgets

    def forward(self, x):
        return F.scaled_dot_product_attention(x, x, x, is_causal=not (self.forgets and self.training))


@pytest.mark.parametrize("forgets", [False, True])
def test_modes(forgets):
    model = Forgetful(forgets)
    result = compare(model, vectors(N), modes=["eval", "train"])
    assert result.same is not forgets
    assert model.training
    if forgets:
        assert result.differences[0].reader == "train"


class Cached(nn.Module):
    """Attention with a cache; `top_left` aligns new queries with the oldest keys."""

    def __init__(self, top_left):
        super().__init__()
        self.top_left = top_left

    def forward(self, x, past_key_values=None, use_cache=False):
        keys = x if past_key_values is None else torch.cat([past_key_values, x], dim=1)
        mask = torch.ones(x.shape[1], keys.shape[1], dtype=torch.bool)
        mask = mask.tril(0 if self.top_left else keys.shape[1] - x.shape[1])
        out = F.scaled_dot_product_attention(x, keys, keys, attn_mask=mask)
        return _Output(out, keys) if use_cache else out


class _Output(tuple):
    def __new__(cls, out, keys):
        made = super().__new__(cls, (out, keys))
        made.past_key_values = keys
        return made


@pytest.mark.parametrize("top_left", [False, True])
def test_prefill_against_decode(top_left):
    result = compare(Cached(top_left), vectors(N), decode=5)
    assert result.sides == ("prefill", "decode in one chunk", "decode one by one")
    assert result.same is not top_left
    if top_left:
        assert {one.sides[1] for one in result.differences} == set(result.sides[1:])
        assert result.differences[0].reader == "prefill"


def test_a_real_decoder_under_backends_and_behind_its_cache():
    transformers = pytest.importorskip("transformers")
    config = transformers.MistralConfig(
        vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=64, sliding_window=4, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    model = transformers.MistralModel(config)
    inputs = {"input_ids": torch.randint(5, 60, (2, 10), generator=torch.Generator().manual_seed(0))}
    assert compare(model, inputs, backends=["eager", "sdpa"]).calls == 2
    assert compare(model, inputs, backends=["eager", "sdpa"]).same
    assert compare(model, inputs, decode=6).same
    wider = transformers.MistralModel(transformers.MistralConfig(**{**config.to_dict(), "sliding_window": 5}))
    assert compare(model, wider, inputs, flow=False).differences[0].reader == "second"
    with pytest.raises(ParameterError, match="has no backend 'nothing'"):
        compare(model, inputs, backends=["eager", "nothing"])


def test_bad_questions():
    model, x = stack([[CAUSAL]], N), vectors(N)
    for wrong in (
        lambda: compare(model, x),
        lambda: compare(model, x, x),
        lambda: compare(model, x, modes=["eval", "test"]),
        lambda: compare(model, x, modes=["eval"]),
        lambda: compare(model, x, modes=["eval", "train"], decode=3),
        lambda: compare(model, x, backends=["eager", "sdpa"]),
        lambda: compare(model, x, decode=N),
    ):
        with pytest.raises(ParameterError):
            wrong()
    with pytest.raises((DataError, TypeError)):
        compare(model, x, decode=3)


def test_a_backend_that_is_not_taken_is_refused():
    class Config:
        _attn_implementation = "eager"

    class Stubborn(nn.Linear):
        config = Config()

        @classmethod
        def _from_config(cls, config, attn_implementation):
            return cls(2, 2)

    with pytest.raises(ParameterError, match="asked for backend 'sdpa' and took 'eager'"):
        compare(Stubborn(2, 2), torch.zeros(1, 3, 2), backends=["eager", "sdpa"])

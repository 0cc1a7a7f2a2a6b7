"""Two models, backends, modes, prefill and decode: the same relations, or the edges that differ."""

import copy
from typing import Any

import numpy as np
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
    past_key_values = property(lambda self: self[1])

    def __new__(cls, out, keys):
        return super().__new__(cls, (out, keys))


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
    questions: list[tuple[Any, str]] = [
        (3, r"Stack\.forward\(x\) does not take past_key_values and use_cache"),
        (True, "decode= is the number of positions"),
        ("3", "decode= is the number of positions"),
    ]
    for decode, words in questions:
        with pytest.raises(ParameterError, match=words):
            compare(model, x, decode=decode)
    with pytest.raises(ParameterError, match="prompt= belongs to decode=step"):
        compare(model, x, modes=["eval", "train"], prompt=3)


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


# ------------------------------------------------------------------------------------ in steps, any model


class Decoder(nn.Module):
    """Attention with a cache that belongs to its caller: (output, cache). One fault or none."""

    def __init__(self, fault=None, window=None, ring=None):
        super().__init__()
        self.fault, self.window, self.ring = fault, window, ring
        self.mix = nn.Linear(16, 16)
        self.positions = nn.Parameter(torch.randn(64, 16))

    def forward(self, x, cache=None):
        done = 0 if cache is None else cache[1]
        q = self.mix(x + self.positions[done : done + x.shape[1]])
        q = self.mix(x + self.positions[: x.shape[1]]) if self.fault == "positions" else q
        keys = q if cache is None else torch.cat([cache[0], q], dim=1)
        new, every = q.shape[1], keys.shape[1]
        mask = torch.ones(new, every, dtype=torch.bool).tril(every - new)
        if self.window is not None:
            mask = mask.triu(every - new - self.window)
            mask = mask.triu(every - new - self.window + 1) if self.fault == "window" and done else mask
        if self.fault == "top left" and done:
            mask = torch.ones(new, every, dtype=torch.bool).tril()
        out = F.scaled_dot_product_attention(q, keys, keys, attn_mask=mask)
        kept = keys if self.window is None or self.fault == "keeps all" else keys[:, -self.window :]
        kept = kept[:, :-1] if self.fault == "forgets" and cache is not None else kept
        return out, (kept, done + new)


def step(model, part, state):
    return model(*part.args, cache=state, **part.kwargs)


@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("fault", [None, "positions", "top left", "window", "forgets"])
def test_a_step_function(fault, window):
    if fault == "window" and window is None:
        return
    result = compare(Decoder(fault, window), vectors(N), decode=step)
    assert result.sides == ("prefill", "decode in one chunk", "decode one by one")
    assert [one.sides[1] for one in result.outputs] == list(result.sides[1:])
    assert result.same is (fault is None)
    if fault == "positions":
        # The relations are right, so only the outputs tell; half of the sequence was read before.
        assert not result.differences
        assert [one.row for one in result.outputs] == [4, 4]
        assert "the same relations, not the same outputs" in str(result)
        assert "first at row 4" in str(result)
    if fault == "top left" and window is None:
        assert (result.differences[0].query, result.differences[0].key) == (4, 1)


def test_the_prompt_of_a_step_function():
    result = compare(Decoder("positions"), vectors(N), decode=step, prompt=6)
    assert [one.row for one in result.outputs] == [6, 6]
    assert compare(Decoder(), vectors(N), decode=step, prompt=N - 1).sides == ("prefill", "decode one by one")
    with pytest.raises(ParameterError, match="between 1 and 7"):
        compare(Decoder(), vectors(N), decode=step, prompt=N)


class Ring(nn.Module):
    """A window kept in a ring buffer: position p is written to slot p modulo the slots."""

    def __init__(self, slots, fault=None):
        super().__init__()
        self.slots, self.fault = slots, fault
        self.mix = nn.Linear(16, 16)

    def forward(self, x):
        q = self.mix(x)
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril().triu(1 - self.slots)
        return F.scaled_dot_product_attention(q, q, q, attn_mask=mask)

    def one(self, x, at, ring):
        q = self.mix(x)
        ring = ring.clone()
        ring[:, at % self.slots] = q[:, 0]
        mask = torch.ones(1, self.slots, dtype=torch.bool)
        mask[:, at + 1 :] = False
        if self.fault == "skips":
            mask[:, (at + 1) % self.slots] = False
        if self.fault == "stale":
            ring[:, at % self.slots] = 0
        return F.scaled_dot_product_attention(q, ring, ring, attn_mask=mask), ring


def ring_step(model, part, state):
    (x,) = part.args
    at, ring = (0, torch.zeros(len(x), model.slots, x.shape[-1])) if state is None else state
    outs = []
    for i in range(x.shape[1]):
        if state is not None and x.shape[1] > 1:
            raise NotImplementedError("one position at a time")
        out, ring = model.one(x[:, i : i + 1], at + i, ring)
        outs.append(out)
    return torch.cat(outs, dim=1), (at + x.shape[1], ring)


@pytest.mark.parametrize("fault", [None, "skips", "stale"])
def test_a_ring_buffer_is_spoken_of_in_positions(fault):
    result = compare(Ring(4, fault), vectors(10), decode=ring_step, prompt=1)
    assert result.same is (fault is None), str(result)
    assert result.sides == ("prefill", "decode one by one")
    assert "decode in one chunk was not tried: ring_step at positions 1..9 failed" in str(result)
    assert not any(one.key > one.query for one in result.differences)  # a slot is no position
    if fault == "skips":
        # Until the ring is full, slots are positions; later rows are told by their numbers of keys.
        (one,) = result.differences
        assert (one.query, one.key, one.reader, one.edges) == (3, 0, "prefill", 2)
        assert "row 4 reads 3 keys behind the cache and 4 at once" in str(result)
        assert "cannot be told" in str(result)
        # The slot that is written next is left out: positions are named, not slots.
        assert "by their key vectors row 3 reads positions 1, 2, 3 behind the cache and 0, 1, 2, 3" in str(
            result
        )


def test_a_cache_that_keeps_the_first_keys_is_not_accused():
    """Sinks and a window: the cache holds keys 0 and the last ones, which their order does not tell."""

    class Sinks(Ring):
        def forward(self, x):
            q = self.mix(x)
            past = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
            mask = past.triu(2 - self.slots)
            mask[:, 0] = True
            return F.scaled_dot_product_attention(q, q, q, attn_mask=mask)

    def sinks_step(model, part, state):
        q = model.mix(part.args[0])
        if q.shape[1] > 1:
            raise NotImplementedError("one position at a time")
        keys = q if state is None else torch.cat([state, q], dim=1)
        first = 0 if model.fault != "slides" else int(keys.shape[1] > model.slots)
        keys = torch.cat([keys[:, first : first + 1], keys[:, first + 1 :][:, 1 - model.slots :]], dim=1)
        return F.scaled_dot_product_attention(q, keys, keys), keys

    right = compare(Sinks(4), vectors(10), decode=sinks_step, prompt=1)
    assert right.same, str(right)
    assert "cannot be told from their order" in str(right)
    assert "by their key vectors they are those read at once" in str(right)
    wrong = compare(Sinks(4, "slides"), vectors(10), decode=sinks_step, prompt=1)
    assert not wrong.same
    assert not wrong.outputs[0].rounding
    assert wrong.outputs[0].row == 4
    said = "by their key vectors row 4 reads positions 1, 2, 3, 4 behind the cache and 0, 2, 3, 4 at once"
    assert said in str(wrong)


def test_slots_that_hold_no_position_are_not_read():
    class Static(nn.Module):
        """A cache of twelve slots; reading all of them reads zeros."""

        def __init__(self, reads_all):
            super().__init__()
            self.reads_all = reads_all

        def forward(self, x):
            return F.scaled_dot_product_attention(x, x, x, is_causal=True)

    def static_step(model, part, state):
        (x,) = part.args
        done, cache = (0, torch.zeros(len(x), 12, x.shape[-1])) if state is None else state
        cache = cache.clone()
        cache[:, done : done + x.shape[1]] = x
        mask = torch.ones(x.shape[1], 12, dtype=torch.bool)
        mask = mask if model.reads_all and done else mask.tril(done)
        return F.scaled_dot_product_attention(x, cache, cache, attn_mask=mask), (done + x.shape[1], cache)

    assert compare(Static(False), vectors(N), decode=static_step).same
    result = compare(Static(True), vectors(N), decode=static_step)
    assert not result.same
    assert "row 4 reads slot 8 of its cache, which holds no position" in str(result)


def test_caches_of_transformers_that_drop_keys():
    transformers = pytest.importorskip("transformers")
    config = transformers.MistralConfig(
        vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=64, sliding_window=4, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    tokens = torch.randint(5, 60, (2, 12), generator=torch.Generator().manual_seed(0))
    mask = torch.ones(2, 12, dtype=torch.long)
    mask[1, :3] = 0
    result = compare(
        transformers.MistralModel(config), {"input_ids": tokens, "attention_mask": mask}, decode=7
    )
    assert result.same, str(result)
    assert all(one.rounding and one.relative < 1e-4 for one in result.outputs)
    assert "which is rounding" in str(result)


def test_the_decoder_of_two_sequences_and_its_weights():
    pytest.importorskip("transformers")
    from erlangen.audit.inputs import Inputs
    from erlangen.audit.targets import transformers_model

    model, inputs = transformers_model("t5", 12)
    with pytest.raises(ParameterError, match=r"several lengths: input_ids \(12\), decoder_input_ids \(9\)"):
        compare(model, inputs, decode=5)
    result = compare(model, Inputs((), inputs, content=["decoder_input_ids"]), decode=5)
    assert result.same, str(result)
    assert result.calls == 6
    bloom, inputs = transformers_model("bloom", 10)
    assert compare(bloom, inputs, decode=5).same


def test_a_recurrent_model_is_held_by_its_outputs():
    class Scan(nn.Module):
        def __init__(self, forgets):
            super().__init__()
            self.scan, self.forgets = nn.GRU(16, 16, batch_first=True), forgets

        def forward(self, x, state=None):
            out, state = self.scan(x, None if self.forgets else state)
            return out, state

    def scan_step(model, part, state):
        return model(*part.args, state=state)

    right = compare(Scan(False), vectors(N), decode=scan_step)
    assert right.same, str(right)
    assert right.calls == 0
    wrong = compare(Scan(True), vectors(N), decode=scan_step)
    assert not wrong.same
    assert [one.row for one in wrong.outputs] == [4, 4]


def test_what_goes_with_the_positions_is_cut_along():
    seen = []

    class Many(nn.Module):
        def forward(self, x, mask, position_ids, bias, scale, cache=None):
            keys = x if cache is None else torch.cat([cache, x], dim=1)
            seen.append(
                (x.shape[1], mask.shape, position_ids.tolist(), tuple(bias.shape), tuple(scale.shape))
            )
            scores = x @ keys.mT + bias
            scores = scores.masked_fill(~mask[:, None], float("-inf"))
            return scores.softmax(-1) @ keys + position_ids[None, :, None], keys

    inputs = {
        "x": vectors(N), "mask": torch.ones(2, N, dtype=torch.bool), "position_ids": torch.arange(N),
        "bias": torch.zeros(N, N).masked_fill(torch.ones(N, N).triu(1).bool(), float("-inf")),
        "scale": torch.ones(3),
    }  # fmt: skip

    def many_step(model, part, state):
        return model(**part.kwargs, cache=state)

    from erlangen.audit.inputs import Inputs

    result = compare(Many(), Inputs((), inputs, content=["x"]), decode=many_step, prompt=5)
    assert result.same, str(result)
    assert (3, (2, 8), [5, 6, 7], (3, 8), (3,)) in seen
    assert (1, (2, 6), [5], (1, 6), (3,)) in seen


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (lambda model, part, state: part.run(model), r"must return \(output, state\).*got Tensor"),
        (lambda model, part, state: (1, 2, 3), "got tuple of 3"),
        (lambda model, part, state: model(None), r"at positions 0\.\.3 failed: \w+Error"),
        (lambda model, part, state: model.no_such_step(part), "has no attribute 'no_such_step'"),
    ],
)
def test_a_step_of_another_protocol_gets_a_sentence(bad, words):
    with pytest.raises(DataError, match=words):
        compare(stack([[CAUSAL]], N), vectors(N), decode=bad)


def test_a_model_of_another_protocol_gets_a_sentence():
    class Refuses(nn.Module):
        def forward(self, x, **options):
            if "past_key_values" in options:
                raise TypeError("past_key_values is not known here")
            return _Output(x, x)

    class NoCache(nn.Module):
        def forward(self, x, past_key_values=None, use_cache=False):
            return x

    with pytest.raises(DataError, match="failed: TypeError: past_key_values is not known here"):
        compare(Refuses(), vectors(N), decode=3)
    with pytest.raises(DataError, match="returns no past_key_values"):
        compare(NoCache(), vectors(N), decode=3)


def test_outputs_without_rows_are_not_called_the_same():
    def pooled(model, part, state):
        out, state = model(*part.args, cache=state)
        return out.mean(1), state

    result = compare(Decoder(), vectors(N), decode=pooled)
    assert not result.same
    assert "its outputs were not compared" in str(result)


# ------------------------------------------------------------------------------------ modes, heads, weights


class Normed(nn.Module):
    """Attention behind a norm: batch norm reads all positions while it trains."""

    def __init__(self, norm):
        super().__init__()
        self.norm = norm

    def forward(self, x):
        x = self.norm(x.mT).mT if isinstance(self.norm, nn.BatchNorm1d) else self.norm(x)
        return F.scaled_dot_product_attention(x, x, x, is_causal=True)


def test_the_flow_is_compared_in_each_mode():
    assert compare(Normed(nn.LayerNorm(16)), vectors(N), modes=["eval", "train"]).same
    model = Normed(nn.BatchNorm1d(16)).eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    result = compare(model, vectors(N), modes=["eval", "train"])
    assert not result.same
    (one,) = result.differences
    assert (one.module, one.reader, one.query, one.key) == ("the flow from x", "train", 0, 1)
    assert not model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    # Attention alone is the same in both modes.
    assert compare(model, vectors(N), modes=["eval", "train"], flow=False).same


def _as_one_head(call, lookback=None):
    from dataclasses import replace

    from erlangen.audit.support import Support

    items = tuple((call.kernel.of_item(item),) for item in range(call.kernel.batch))
    if lookback is not None:
        items = ((er.Window(lookback).on(call.queries),),) * call.kernel.batch
    return replace(call, api="module", whole=True, heads=1, kernel=Support(items))


@pytest.mark.parametrize("lookback", [None, 3])
def test_a_module_probed_as_a_whole_against_four_heads(monkeypatch, lookback):
    from erlangen.audit import comparison

    a, b = (stack([[CAUSAL, er.Window(2), er.Window(1), CAUSAL]], N) for _ in range(2))
    usual = comparison.observe

    def whole(model, *rest):
        seen = usual(model, *rest)
        if model is b:
            seen.calls = [_as_one_head(call, lookback) for call in seen.calls]
        return seen

    monkeypatch.setattr(comparison, "observe", whole)
    result = compare(a, b, vectors(N), flow=False)
    assert result.same is (lookback is None), str(result)
    assert "probed as a whole" in str(result)
    if lookback is not None:
        assert (result.differences[0].query, result.differences[0].key) == (4, 0)


class Weighted(nn.Module):
    def __init__(self, slope, power=1.0):
        super().__init__()
        distance = (torch.arange(N)[:, None] - torch.arange(N)).float()
        bias = -slope * distance.clamp(min=0) ** power
        self.bias = bias.masked_fill(distance < 0, float("-inf"))

    def forward(self, x):
        return F.scaled_dot_product_attention(x, x, x, attn_mask=self.bias)


def test_weights_are_compared():
    plain, alibi = Weighted(0.0), Weighted(0.5)
    assert compare(alibi, Weighted(0.5), vectors(N)).same
    assert compare(plain, Weighted(0.0), vectors(N)).same
    result = compare(plain, alibi, vectors(N))
    assert not result
    assert not result.differences
    assert "the same relations, not the same weights" in str(result)
    assert "first adds no weights, second adds Toeplitz, ALiBi with slopes 0.5" in str(result)
    assert not compare(alibi, Weighted(0.25), vectors(N))
    assert not compare(alibi, Weighted(0.5, power=0.5), vectors(N))
    curved = compare(Weighted(0.5, power=0.5), Weighted(0.5, power=0.5), vectors(N))
    assert curved.same
    assert "weights were compared by their form" in str(curved)


def test_backends_must_give_the_same_outputs(monkeypatch):
    class Config:
        _attn_implementation = "eager"

    class Scaled(nn.Module):
        """Two backends that read the same keys; one of them scales otherwise."""

        def __init__(self, fault):
            super().__init__()
            self.config, self.fault, self.mix = Config(), fault, nn.Linear(16, 16)

        @classmethod
        def _from_config(cls, config, attn_implementation):
            other = cls(fault)
            other.config = Config()
            other.config._attn_implementation = attn_implementation
            return other

        def forward(self, x):
            q = self.mix(x)
            if self.config._attn_implementation == "sdpa":
                return F.scaled_dot_product_attention(
                    q, q, q, is_causal=True, scale=0.3 if self.fault else 0.25
                )
            scores = (q @ q.mT * 0.25).masked_fill(torch.ones(N, N).triu(1).bool(), float("-inf"))
            return scores.softmax(-1) @ q

    for fault in (False, True):
        result = compare(Scaled(fault), vectors(N), backends=["eager", "sdpa"])
        assert result.same is not fault
        assert not result.differences
        (one,) = result.outputs
        assert one.rounding is not fault
        assert one.row == (1 if fault else None)


def test_padding_rows_of_backends_do_not_count():
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=60, n_positions=32)
    mask = torch.ones(2, 10, dtype=torch.long)
    mask[1, :4] = 0
    inputs = {"input_ids": torch.randint(5, 60, (2, 10)), "attention_mask": mask}
    result = compare(transformers.GPT2Model(config), inputs, backends=["eager", "sdpa"], flow=False)
    assert result.same, str(result)
    assert result.outputs[0].rounding


def test_rounding_and_what_is_more():
    from erlangen.audit.comparing.closeness import Rows, difference_of, nudged
    from erlangen.audit.inputs import Inputs

    model, x = stack([[CAUSAL]] * 2, N), vectors(N)
    with torch.no_grad():
        base = model.eval()(x)

    def rows(values):
        return {"": Rows(values, np.arange(N))}

    def noise():
        moved = nudged(model, Inputs.of(x))
        assert moved is not None
        with torch.no_grad():
            return rows(moved[1].run(moved[0]))

    doubled = copy.deepcopy(model).double()(x.double()).float().detach()
    same = difference_of(("a", "b"), rows(base), rows(doubled), noise)
    assert same is not None
    assert same.rounding
    leak = base.clone()
    leak[1, 5] += 1e-4 * base.abs().max()
    found = difference_of(("a", "b"), rows(base), rows(leak), noise)
    assert found is not None
    assert (found.rounding, found.item, found.row) == (False, 1, 5)
    lost = base.clone()
    lost[0, 3, 0] = float("nan")
    broken = difference_of(("a", "b"), rows(base), rows(lost), noise)
    assert broken is not None
    assert (broken.rounding, broken.row) == (False, 3)
    none = difference_of(("a", "b"), rows(lost), rows(lost), noise)
    assert none is not None
    assert (none.rounding, none.size) == (True, 0)

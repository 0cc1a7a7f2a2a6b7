"""T5 against transformers' on copied weights: both kinds of networks, padded sources, and generation."""

from __future__ import annotations

import pytest
import torch
from transformers import T5Config, T5ForConditionalGeneration, T5Model

import erlangen as er
from erlangen.errors import ParameterError, ShapeError
from erlangen.models import T5

SOURCE = torch.randint(2, 31, (3, 40), generator=torch.Generator().manual_seed(1))
TARGET = torch.randint(2, 31, (3, 25), generator=torch.Generator().manual_seed(2))
MASK = torch.tensor([[1] * 40, [1] * 23 + [0] * 17, [1] * 3 + [0] * 37])
TARGET_MASK = torch.tensor([[1] * 25, [1] * 20 + [0] * 5, [1] * 2 + [0] * 23])


def theirs(kind, **options):
    torch.manual_seed(0)
    sizes = {
        "vocab_size": 31, "d_model": 16, "d_kv": 6, "d_ff": 20, "num_layers": 3, "num_decoder_layers": 2,
        "num_heads": 2, "relative_attention_num_buckets": 8, "relative_attention_max_distance": 20,
        "decoder_start_token_id": 0,
    }  # fmt: skip
    model = kind(T5Config(**sizes | options)).eval().double()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model


@pytest.mark.parametrize("kind", ["relu", "gated-gelu"])
@pytest.mark.parametrize("masks", [(None, None), (MASK, None), (MASK, TARGET_MASK)])
def test_encoder_and_decoder_equal_those_of_t5(kind, masks):
    t5 = theirs(T5Model, feed_forward_proj=kind)
    ours = T5.from_transformers(t5)
    expected = t5(SOURCE, masks[0], TARGET, masks[1])
    memory = ours.encode(SOURCE, masks[0])
    # Their normalisation is in single precision even where the weights are double.
    close = {"atol": 1e-5, "rtol": 1e-5}
    torch.testing.assert_close(memory, expected.encoder_last_hidden_state, **close)
    torch.testing.assert_close(ours.decode(TARGET, memory, *masks), expected.last_hidden_state, **close)


def test_all_but_the_precision_of_their_normalisation_is_equal(monkeypatch):
    monkeypatch.setattr(torch, "float32", torch.float64)
    t5 = theirs(T5Model, feed_forward_proj="gated-gelu")
    ours = T5.from_transformers(t5)
    expected = t5(SOURCE, MASK, TARGET)
    memory = ours.encode(SOURCE, MASK)
    close = {"atol": 1e-10, "rtol": 1e-10}
    torch.testing.assert_close(memory, expected.encoder_last_hidden_state, **close)
    torch.testing.assert_close(ours.decode(TARGET, memory, MASK), expected.last_hidden_state, **close)


@pytest.mark.parametrize("options", [{}, {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}])
def test_logits_and_greedy_generation_equal_those_of_t5(options, tmp_path):
    t5 = theirs(T5ForConditionalGeneration, **options)
    t5.tie_weights()
    ours = T5.from_transformers(t5)
    expected = t5(SOURCE, MASK, TARGET).logits
    torch.testing.assert_close(ours(SOURCE, TARGET, MASK), expected, atol=1e-5, rtol=1e-5)
    assert ours.config.scaled == (not options)
    generated = t5.generate(SOURCE, attention_mask=MASK, max_new_tokens=30, do_sample=False, num_beams=1)
    assert torch.equal(ours.generate(SOURCE, 30, MASK), generated[:, 1:])
    t5.save_pretrained(tmp_path)
    again = T5.from_transformers(tmp_path)
    assert torch.equal(again(SOURCE, TARGET, MASK), ours(SOURCE, TARGET, MASK))


def test_a_head_of_its_own_is_kept():
    t5 = theirs(T5ForConditionalGeneration)
    t5.lm_head.weight = torch.nn.Parameter(torch.randn(31, 16, dtype=torch.float64))
    ours = T5.from_transformers(t5)
    assert not ours.config.tied
    torch.testing.assert_close(ours(SOURCE, TARGET), t5(SOURCE, None, TARGET).logits, atol=1e-5, rtol=1e-5)


def test_generation_ends_where_transformers_ends():
    t5 = theirs(T5ForConditionalGeneration)
    free = T5.from_transformers(t5).generate(SOURCE, 12)
    t5.generation_config.eos_token_id = t5.config.eos_token_id = int(free[0, 2])
    expected = t5.generate(SOURCE, max_new_tokens=12, do_sample=False, num_beams=1)
    assert torch.equal(T5.from_transformers(t5).generate(SOURCE, 12), expected[:, 1:])


def test_the_cache_changes_no_token():
    ours = T5.from_transformers(theirs(T5ForConditionalGeneration, eos_token_id=None))
    targets = torch.zeros(3, 1, dtype=torch.long)
    for _ in range(15):
        logits = ours(SOURCE, targets, MASK)
        targets = torch.cat([targets, logits[:, -1:].argmax(-1)], dim=1)
    assert torch.equal(ours.generate(SOURCE, 15, MASK), targets[:, 1:])
    assert torch.equal(ours.generate(SOURCE[0], 15), targets[0, 1:])


def test_gradients_reach_everything():
    model = T5(T5.Config(31, 2, 2, 8, gated=True, tied=False))
    model(SOURCE, TARGET, MASK).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


def test_other_kinds_of_t5_are_refused():
    with pytest.raises(ParameterError, match="feed_forward_proj='gelu'"):
        T5.from_transformers(theirs(T5Model, feed_forward_proj="gelu"))


def test_saved_and_loaded(tmp_path):
    model = T5(T5.Config(31, 2, 2, 8)).eval()
    model.save(tmp_path / "t5.safetensors")
    again = T5.load(tmp_path / "t5.safetensors").eval()
    assert torch.equal(again(SOURCE, TARGET, MASK), model(SOURCE, TARGET, MASK))
    assert again.relation["encoder"].support == er.Full()
    assert again.relation["decoder"].support == er.Causal()


def test_wrong_calls_say_what_is_wrong():
    with pytest.raises(ParameterError, match="give head_dim"):
        T5.Config(31, 2, 3, 8)
    model = T5(T5.Config(31, 1, 2, 8))
    with pytest.raises(ShapeError, match="ids of shape"):
        model(SOURCE[None], TARGET)
    with pytest.raises(ShapeError, match="not as many items"):
        model(SOURCE, TARGET[:2])
    with pytest.raises(ShapeError, match="decoder_attention_mask marks"):
        model(SOURCE, TARGET, MASK, MASK)

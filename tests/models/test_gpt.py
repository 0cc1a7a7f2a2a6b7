"""GPT against GPT-2 on copied weights, and its generation against predicting every token anew."""

from __future__ import annotations

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, GPT2Model

import erlangen as er
from erlangen.errors import ParameterError, ShapeError, SizeError
from erlangen.models import GPT

TINY = GPT.Config(vocab_size=17, context=24, layers=2, heads=2, width=16)


def theirs(**options):
    torch.manual_seed(0)
    sizes = {"vocab_size": 31, "n_positions": 24, "n_embd": 16, "n_layer": 3, "n_head": 4}
    config = GPT2Config(**sizes | {"bos_token_id": 0, "eos_token_id": None} | options)
    model = GPT2LMHeadModel(config).eval()
    for parameter in model.parameters():  # larger than GPT-2 starts: differences would drown otherwise
        torch.nn.init.normal_(parameter, std=0.3)
    return model


def ids(batch=3, n=13, vocab=31):
    return torch.randint(vocab, (batch, n), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    "options", [{}, {"n_inner": 24, "layer_norm_epsilon": 1e-3}, {"activation_function": "gelu_pytorch_tanh"}]
)
def test_logits_equal_gpt2s(options):
    gpt2 = theirs(**options).double()
    ours = GPT.from_transformers(gpt2)
    torch.testing.assert_close(ours(ids()), gpt2(ids()).logits, atol=1e-10, rtol=1e-10)
    assert not ours.training


def test_logits_equal_gpt2s_in_float32_and_without_the_head():
    gpt2 = theirs()
    torch.testing.assert_close(GPT.from_transformers(gpt2)(ids()), gpt2(ids()).logits, atol=1e-5, rtol=1e-5)
    base = gpt2.transformer
    assert isinstance(base, GPT2Model)
    assert torch.equal(GPT.from_transformers(base)(ids()), GPT.from_transformers(gpt2)(ids()))


def test_the_copy_is_apart_from_its_source():
    gpt2 = theirs()
    ours = GPT.from_transformers(gpt2)
    before = ours(ids())
    with torch.no_grad():
        for parameter in gpt2.parameters():
            parameter.zero_()
    assert torch.equal(ours(ids()), before)


def test_gradients_equal_gpt2s():
    gpt2 = theirs(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0).double()
    ours = GPT.from_transformers(gpt2)
    labels = ids()
    for logits in (gpt2(labels).logits, ours(labels)):
        torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()).backward()
    for mine, other in ((ours.tokens, gpt2.transformer.wte), (ours.positions, gpt2.transformer.wpe)):
        torch.testing.assert_close(mine.weight.grad, other.weight.grad, atol=1e-10, rtol=1e-8)
    fused = gpt2.transformer.h[0].attn.c_attn.weight.grad.T
    mine = torch.cat([getattr(ours.blocks[0].attention, name).weight.grad for name in "QKV"])
    torch.testing.assert_close(mine, fused, atol=1e-10, rtol=1e-8)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("activation_function", "relu"),
        ("scale_attn_by_inverse_layer_idx", True),
        ("scale_attn_weights", False),
        ("add_cross_attention", True),
        ("resid_pdrop", 0.3),
    ],
)
def test_other_kinds_of_gpt2_are_refused(option, value):
    with pytest.raises(ParameterError, match=option):
        GPT.from_transformers(theirs(**{option: value}))


def test_a_head_of_its_own_is_refused():
    gpt2 = theirs()
    gpt2.lm_head.weight = torch.nn.Parameter(torch.randn(31, 16))
    with pytest.raises(ParameterError, match=r"'lm_head.weight' apart from the embedding"):
        GPT.from_transformers(gpt2)


def test_the_same_weights_over_another_relation():
    ours = GPT.from_transformers(theirs(), relation=er.Window(2))
    moved = ids()
    moved[:, 0] = (moved[:, 0] + 1) % 31
    assert torch.equal(ours(ids())[:, 7:], ours(moved)[:, 7:])  # three layers reach 6 back


def test_greedy_generation_is_that_of_transformers():
    gpt2 = theirs().double()
    expected = gpt2.generate(
        ids(), attention_mask=torch.ones_like(ids()), max_new_tokens=11, do_sample=False, pad_token_id=0
    )
    assert torch.equal(GPT.from_transformers(gpt2).generate(ids(), 11), expected)


def anew(model, ids, new_tokens):
    """Greedy continuation without a cache."""
    for _ in range(new_tokens):
        logits = model(ids[:, -model.config.context :])[:, -1]
        ids = torch.cat([ids, logits.argmax(-1, keepdim=True)], dim=1)
    return ids


@pytest.mark.parametrize(
    "relation",
    [
        er.Causal(),
        er.Causal() & er.Window(3),
        er.PerHead([er.Window(2), er.Causal() & er.Dilated(2) | er.Identity()]),
    ],
)
def test_the_cache_changes_no_token_even_beyond_the_context(relation):
    torch.manual_seed(0)
    model = GPT(GPT.Config(17, 24, 2, 2, 16, relation=relation)).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    prompt = ids(2, 5, 17)
    assert torch.equal(model.generate(prompt, 30), anew(model, prompt, 30))
    assert torch.equal(model.generate(prompt[0], 30), model.generate(prompt, 30)[0])


def test_steps_of_any_length_give_the_logits_of_one_pass():
    model = GPT(TINY).double().eval()
    caches = [er.KVCache() for _ in model.blocks]
    parts = [model(part, caches) for part in ids(2, 12, 17).split([5, 1, 4, 2], dim=1)]
    torch.testing.assert_close(torch.cat(parts, 1), model(ids(2, 12, 17)), atol=1e-12, rtol=0)


def test_sampling_is_repeatable_and_obeys_top_k():
    model = GPT(TINY)
    draw = [
        model.generate(ids(2, 5, 17), 20, 1.0, generator=torch.Generator().manual_seed(seed))
        for seed in (0, 0, 1)
    ]
    assert torch.equal(draw[0], draw[1])
    assert not torch.equal(draw[0], draw[2])
    assert torch.equal(model.generate(ids(2, 5, 17), 9, 5.0, top_k=1), model.generate(ids(2, 5, 17), 9))
    assert model.training


def test_dropout_acts_in_training_only():
    model = GPT(GPT.Config(17, 24, 2, 2, 16, dropout=0.5))
    assert not torch.equal(model(ids(vocab=17)), model(ids(vocab=17)))
    model.eval()
    assert torch.equal(model(ids(vocab=17)), model(ids(vocab=17)))


def test_wrong_calls_say_what_is_wrong():
    model = GPT(TINY)
    with pytest.raises(SizeError, match="context=24, but 25"):
        model(ids(1, 25, 17))
    with pytest.raises(ShapeError, match="n >= 1"):
        model.generate(torch.zeros(1, 0, dtype=torch.long), 1)
    with pytest.raises(ParameterError, match="temperature"):
        model.generate(ids(1, 2, 17), 1, temperature=-1.0)
    with pytest.raises(ParameterError, match=r"reads the future: position 0 reads 1"):
        GPT.Config(17, 24, 2, 2, 16, relation=er.Window(1, lookahead=1))
    with pytest.raises(ParameterError, match="layers"):
        GPT.Config(17, 24, 0, 2, 16)

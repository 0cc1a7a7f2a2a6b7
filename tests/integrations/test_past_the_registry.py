"""Models that compute attention themselves do not take "erlangen" in silence."""

from __future__ import annotations

import pytest
import torch

from erlangen.errors import ParameterError

transformers = pytest.importorskip("transformers")

from erlangen.integrations.transformers import register  # noqa: E402

IDS = torch.randint(40, (2, 6), generator=torch.Generator().manual_seed(0))


def build(family: str, **options):
    register()
    if family == "bloom":
        config = transformers.BloomConfig(vocab_size=40, hidden_size=16, n_layer=1, n_head=4, **options)
        return transformers.BloomModel(config)
    if family == "mpt":
        config = transformers.MptConfig(
            vocab_size=40, d_model=16, n_layers=1, n_heads=4, max_seq_len=32, **options
        )
        return transformers.MptModel(config)
    sizes = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 4}
    if family == "llama":
        return transformers.LlamaModel(transformers.LlamaConfig(**sizes, intermediate_size=16, **options))
    config = transformers.FalconConfig(**sizes, alibi=family == "falcon with ALiBi", **options)
    return transformers.FalconModel(config)


@pytest.mark.parametrize("family", ["bloom", "mpt"])
def test_a_model_past_the_registry_is_refused_at_its_first_call(family):
    model = build(family, attn_implementation="erlangen")
    with pytest.raises(ParameterError, match=f"'{family}' compute attention themselves"):
        model(IDS)


@pytest.mark.parametrize("family", ["falcon", "falcon with ALiBi"])
def test_falcon_cannot_be_built_with_it(family):
    with pytest.raises(KeyError, match="erlangen"):
        build(family, attn_implementation="erlangen")


@pytest.mark.parametrize("family", ["bloom", "mpt", "falcon", "falcon with ALiBi"])
def test_switching_leaves_the_model_as_it_was_and_says_so(family):
    model = build(family).eval()
    before = model(IDS).last_hidden_state
    model.set_attn_implementation("erlangen")
    assert model.config._attn_implementation != "erlangen"
    assert torch.equal(model(IDS).last_hidden_state, before)


def test_a_model_of_the_registry_is_not_refused():
    model = build("llama", attn_implementation="erlangen")
    assert model(IDS).last_hidden_state.shape == (2, 6, 16)

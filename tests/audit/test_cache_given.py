"""New tokens behind a cache that is given: a mask that the audit adds would have to cover the cached keys."""

from __future__ import annotations

import pytest
import torch

import erlangen as er
from erlangen.audit import audit

transformers = pytest.importorskip("transformers")


def tokens(n, seed):
    return torch.randint(3, 60, (2, n), generator=torch.Generator().manual_seed(seed))


def llama():
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = transformers.LlamaConfig(vocab_size=60, pad_token_id=0, **sizes)
    return transformers.LlamaForCausalLM(config).eval()


def given(model, cached):
    cache = transformers.DynamicCache(config=model.config)
    if cached:
        with torch.no_grad():
            model(tokens(cached, 1), past_key_values=cache, use_cache=True)
    return {"input_ids": tokens(7, 2), "past_key_values": cache}


def test_no_mask_of_the_new_tokens_alone_is_added():
    model = llama()
    inputs = given(model, 5)
    report = audit(model, inputs, er.Causal(), feedings=["padded"])
    assert report.verdict == "holds", report.findings
    assert inputs["past_key_values"].get_seq_length() == 5  # the runs wrote to copies
    assert "padded" not in report.tried["feedings"]


def test_an_empty_cache_is_none():
    model = llama()
    report = audit(model, given(model, 0), er.Causal(), feedings=["padded"])
    assert report.verdict == "holds", report.findings
    assert any("padded" in one for one in report.tried["feedings"])


def test_a_future_read_behind_a_cache_is_found():
    model = llama()
    model.model.layers[0].self_attn.is_causal = False
    inputs = given(model, 5)
    inputs["attention_mask"] = torch.zeros(2, 1, 7, 12)
    assert audit(model, inputs, er.Causal(), feedings=["training"]).verdict == "violated"

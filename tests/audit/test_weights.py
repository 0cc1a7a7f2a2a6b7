"""Finite biases are reported as weights: what they are, up to what a softmax does not see."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention.flex_attention import flex_attention
from transformers import (
    BertConfig,
    BertModel,
    BloomConfig,
    BloomModel,
    MptConfig,
    MptModel,
    T5Config,
    T5Model,
)

import erlangen as er
from erlangen.audit.apis.sdpa import SDPACall
from erlangen.audit.log_weights import Weights, weights_of
from erlangen.nn import RelativeBias

N, HEADS = 7, 4
SLOPES = er.ALiBi.slopes_for(HEADS)
QUERY, KEY = np.indices((N, N))


def ids():
    return torch.arange(2 * N).reshape(2, N) % 40


def quickly(model, inputs, expect=None):
    return er.audit(model.eval(), inputs, expect, variants=False, flow=False)


# ------------------------------------------------------------------------- libraries


@pytest.mark.parametrize("family", ["bloom", "mpt"])
def test_alibi_models(family):
    torch.manual_seed(0)
    if family == "bloom":
        model = BloomModel(BloomConfig(vocab_size=40, hidden_size=16, n_layer=2, n_head=HEADS))
    else:
        model = MptModel(MptConfig(vocab_size=40, d_model=16, n_layers=2, n_heads=HEADS, max_seq_len=32))
    report = quickly(model, {"input_ids": ids()}, er.Causal())
    assert report.verdict == "holds"
    assert len(report.calls) == 2
    for call in report.calls:
        assert str(call.kernel) == "Causal()"
        assert call.weights.form == "ALiBi"
        assert np.allclose(call.weights.slopes, SLOPES, rtol=1e-2)
        assert call.weights.applied is True
        assert call.symmetry == "1, order 1"
    assert "with weights: Toeplitz, ALiBi with slopes 0.25, 0.0625" in str(report)
    told = json.loads(report.dumps())["calls"][0]["weights"]
    assert told["form"] == "ALiBi"
    assert np.allclose(told["slopes"], SLOPES, rtol=1e-2)


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_t5(implementation):
    torch.manual_seed(0)
    config = T5Config(
        vocab_size=40, d_model=16, d_kv=4, d_ff=16, num_layers=2, num_heads=HEADS,
        relative_attention_num_buckets=8, relative_attention_max_distance=12,
        attn_implementation=implementation,
    )  # fmt: skip
    model = T5Model(config)
    for name, parameter in model.named_parameters():
        if "relative_attention_bias" in name:
            nn.init.normal_(parameter)
    report = quickly(model, {"input_ids": ids(), "decoder_input_ids": ids()[:, :5]})
    assert report.verdict == "measured"
    for call in report.calls:
        if call.kind == "cross":
            assert call.weights is None
        else:
            assert call.weights.form == "Toeplitz"
            assert call.weights.applied is True
            assert call.weights.slopes is None
    encoder = report.calls[0]
    assert encoder.symmetry == f"within S{N}, order 5040"
    assert encoder.bias == "full"


def test_models_without_biases_have_none():
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    for implementation in ("sdpa", "eager"):
        config._attn_implementation = implementation
        padded = torch.ones(2, N, dtype=torch.long)
        padded[1, 4:] = 0
        report = quickly(BertModel(config), {"input_ids": ids(), "attention_mask": padded})
        assert report.calls[0].weights is None
        assert "weights" not in report.to_json()["calls"][0]
        assert "with weights" not in str(report)
        assert report.calls[0].symmetry.startswith("S")


# ------------------------------------------------------------------- every kind of call


class Biased(nn.Module):
    """One layer of attention whose bias comes in through `how`."""

    def __init__(self, bias, how, causal=True):
        super().__init__()
        self.qkv = nn.Linear(8, 24)
        heads = bias.shape[0]
        mask = torch.ones(N, N, dtype=torch.bool).tril() if causal else torch.ones(N, N, dtype=torch.bool)
        self.register_buffer(
            "bias", torch.where(mask, torch.as_tensor(bias, dtype=torch.float32), -torch.inf)
        )
        self.heads, self.how = heads, how
        self.mha = nn.MultiheadAttention(8, heads, batch_first=True)

    def forward(self, x):
        if self.how == "mha":
            each = self.bias.repeat(len(x), 1, 1)
            return self.mha(x, x, x, attn_mask=each, need_weights=False)[0]
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1)
        )
        if self.how == "sdpa":
            out = F.scaled_dot_product_attention(q, k, v, attn_mask=self.bias)
        else:
            scores = q @ k.transpose(-1, -2) / 2 + self.bias
            out = scores.softmax(-1) @ v
        return out.transpose(1, 2).flatten(-2)


BIASES = {
    "ALiBi": np.stack([-0.5 * np.abs(QUERY - KEY), -0.125 * np.abs(QUERY - KEY)]),
    "Toeplitz": np.stack([np.sin(QUERY - KEY), np.cos(2.0 * (QUERY - KEY))]),
    "by key": np.stack([np.sin(3.0 * KEY) + QUERY, np.cos(KEY**2) - 2 * QUERY]),
    "by pair": np.random.default_rng(0).normal(size=(2, N, N)),
}


@pytest.mark.parametrize("form", BIASES)
@pytest.mark.parametrize("how", ["sdpa", "eager", "mha"])
def test_the_form_is_found_however_the_bias_comes_in(form, how):
    torch.manual_seed(0)
    [call] = quickly(Biased(BIASES[form], how), torch.randn(2, N, 8)).calls
    assert call.api == how
    assert str(call.kernel) == "Causal()"
    assert call.weights.form == form
    assert call.weights.applied is (None if how == "mha" else True)
    if form == "ALiBi":
        assert np.allclose(call.weights.slopes, [0.5, 0.125], atol=1e-3)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_a_score_mod_of_flex_attention():
    class Flex(nn.Module):
        def forward(self, x):
            def alibi(score, b, h, i, j):
                return torch.where(i >= j, score - (i - j) * (h + 1) * 0.25, -float("inf"))

            q = x.unflatten(-1, (2, 4)).transpose(1, 2)
            return flex_attention(q, q, q, score_mod=alibi).transpose(1, 2).flatten(2)

    [call] = quickly(Flex(), torch.randn(2, N, 8)).calls
    assert call.api == "flex"
    assert np.allclose(call.weights.slopes, [0.25, 0.5])
    assert call.weights.applied is True


@pytest.mark.parametrize("how", ["sdpa", "eager"])
def test_a_bias_that_is_constant_in_each_row_is_none(how):
    torch.manual_seed(0)
    gauge = np.stack([3.0 * QUERY, -1.0 * QUERY])
    assert quickly(Biased(gauge, how), torch.randn(1, N, 8)).calls[0].weights is None


def test_layers_of_erlangen():
    torch.manual_seed(0)
    x = torch.randn(2, N, 8)
    [call] = quickly(er.Attention(8, 2, er.ALiBi([0.5, 2])), x).calls
    assert call.weights == Weights("ALiBi", 2, call.weights.low, (0.5, 2.0), True, True)
    graph = er.Graph([(i, j) for i in range(N) for j in range(0, i + 1, 2)], nodes=N)
    numbers = np.random.default_rng(0).normal(size=graph.on(N).num_edges)
    [call] = quickly(er.Attention(8, 2, er.Weighted(graph, edges=numbers)), x).calls
    assert call.weights.form == "by pair"
    assert call.weights.applied is True

    class Learned(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.bias = er.Attention(8, 2), RelativeBias(2, buckets=8, max_distance=9)
            nn.init.normal_(self.bias.table)

        def forward(self, x):
            return self.layer(x, relation=self.bias())

    [call] = quickly(Learned(), x).calls
    assert call.weights.form == "Toeplitz"
    assert [c.weights for c in quickly(er.Attention(8, 2, er.Causal()), x).calls] == [None]


def test_the_page_shows_them():
    from erlangen.audit.page import render

    torch.manual_seed(0)
    page = render(quickly(er.Attention(8, 2, er.ALiBi([0.5, 2])), torch.randn(1, N, 8)))
    assert "ALiBi with slopes 0.5, 2" in page
    assert "<dt>weights</dt>" not in render(quickly(er.Attention(8, 2), torch.randn(1, N, 8)))


# ----------------------------------------------------------------------- the recogniser


CAUSAL, FULL = KEY <= QUERY, np.ones((N, N), bool)


def form_of(bias, read=CAUSAL, alpha=None):
    stacked = np.broadcast_to(bias, (1, 1, N, N)) if np.ndim(bias) == 2 else bias
    return weights_of(stacked, np.broadcast_to(read, stacked.shape), alpha)


@pytest.mark.parametrize(
    ("bias", "read", "form"),
    [
        (0.3 * KEY, CAUSAL, "ALiBi"),  # up to the gauge
        (0.3 * KEY, FULL, "Toeplitz"),  # a row plus a key, and a function of j - i
        (-0.3 * np.abs(QUERY - KEY), FULL, "ALiBi"),
        (-0.3 * np.abs(QUERY - KEY) + 5 * QUERY, FULL, "ALiBi"),
        (0.3 * np.abs(QUERY - KEY), FULL, "ALiBi"),  # a negative slope
        (-0.3 * (QUERY - KEY) ** 2, CAUSAL, "Toeplitz"),
        (-0.3 * np.abs(QUERY - KEY) * (KEY > 0), CAUSAL, "by pair"),
        (np.minimum(QUERY - KEY, 3) * -1.0, CAUSAL, "Toeplitz"),
        (np.sin(KEY**2 * 1.0), CAUSAL, "by key"),
        (np.where(QUERY == 5, KEY, 0) * 1.0, CAUSAL, "by pair"),
    ],
)
def test_forms(bias, read, form):
    assert form_of(bias, read).form == form


def test_half_precision_is_still_recognised():
    bias = torch.tensor(-0.0625 * np.abs(QUERY - KEY)).to(torch.bfloat16).double().numpy()
    assert form_of(bias).form == "ALiBi"


def test_every_single_change_is_seen():
    """ALiBi with one number changed is ALiBi no longer."""
    bias = -0.5 * np.abs(QUERY - KEY)
    for i, j in np.argwhere(CAUSAL & (QUERY > 1)):
        changed = bias.copy()
        changed[i, j] += 0.1
        assert form_of(changed).form != "ALiBi"


def test_a_kernel_that_does_not_apply_the_bias_is_told():
    uniform = np.broadcast_to(CAUSAL / CAUSAL.sum(1, keepdims=True), (1, 1, N, N))
    told = form_of(0.5 * KEY, alpha=uniform)
    assert told.applied is False
    assert "NOT APPLIED" in str(told)
    exact = np.where(CAUSAL, np.exp(0.5 * KEY), 0)
    assert form_of(0.5 * KEY, alpha=(exact / exact.sum(1, keepdims=True))[None, None]).applied is True


def test_a_kernel_that_drops_the_bias_is_a_contradiction(monkeypatch):
    monkeypatch.setattr(
        SDPACall, "alpha", lambda call: torch.full((call.batch, call.heads, N, N), 1 / N, dtype=torch.float64)
    )
    torch.manual_seed(0)
    report = quickly(Biased(BIASES["ALiBi"], "sdpa"), torch.randn(2, N, 8))
    assert report.verdict == "contradictory"
    assert any("not what its kernel adds" in text for text in report.contradictions)


@pytest.mark.parametrize("expect", [er.ALiBi(1), {"*": er.ALiBi(1)}])
def test_weights_are_not_expected(expect):
    with pytest.raises(er.errors.ParameterError, match=r"expect Causal\(\) in place of ALiBi"):
        quickly(er.Attention(8, 2), torch.randn(1, N, 8), expect)


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_does_not_hide_the_slopes(side):
    torch.manual_seed(0)
    model = BloomModel(BloomConfig(vocab_size=40, hidden_size=16, n_layer=1, n_head=HEADS))
    mask = torch.ones(2, N, dtype=torch.long)
    mask[1, slice(0, 3) if side == "left" else slice(4, None)] = 0
    [call] = quickly(model, {"input_ids": ids(), "attention_mask": mask}).calls
    assert call.weights.same_items
    assert np.allclose(call.weights.slopes, SLOPES, rtol=1e-2)


def test_heads_of_little_weight_are_judged_by_their_own_measure():
    """Beside a head a thousand times as strong, a head is not ALiBi for being small."""
    strong = -4.0 * np.abs(QUERY - KEY)
    for weak, form in ((-0.004 * np.abs(QUERY - KEY), "ALiBi"), (-0.004 * (QUERY - KEY) ** 2, "Toeplitz")):
        assert form_of(np.stack([strong, weak])[None]).form == form


def test_items_may_differ_and_nothing_read_is_nothing():
    per_item = np.stack([-0.5 * np.abs(QUERY - KEY), -0.25 * np.abs(QUERY - KEY)])[:, None]
    told = form_of(per_item)
    assert not told.same_items
    assert told.slopes is None
    assert "another in each batch item" in str(told)
    assert weights_of(np.ones((1, 1, 3, 3)), np.zeros((1, 1, 3, 3), bool)) is None

"""Classes of models that the sweep over all transformers types showed, each right and with a fault."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import erlangen as er
from erlangen.audit import AtMost, audit

ANY, EARLIER = AtMost(er.Full()), AtMost(er.Causal())


def ids(n=8, seed=0):
    return torch.randint(5, 60, (2, n), generator=torch.Generator().manual_seed(seed))


def vectors(n=8, seed=0):
    return torch.randn(2, n, 16, generator=torch.Generator().manual_seed(seed))


class Encoder(nn.Module):
    def __init__(self, causal=False, dim=16):
        super().__init__()
        self.qkv, self.causal = nn.Linear(dim, 3 * dim), causal

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        return x + F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)


class Contrastive(nn.Module):
    """CLIP: every text against every image of the batch."""

    def __init__(self, fault=None):
        super().__init__()
        self.embed, self.text, self.image, self.fault = nn.Embedding(60, 16), Encoder(), Encoder(), fault

    def forward(self, input_ids, patches):
        texts, images = self.text(self.embed(input_ids)), self.image(patches)
        a, b = texts.mean(1), images.mean(1)
        if self.fault == "centred":
            a = a - a.mean(0)
        scores = F.normalize(a, dim=-1) @ F.normalize(b, dim=-1).mT
        if self.fault == "softmax":
            scores = scores - scores.exp().sum().log()
        return {"scores": scores, "texts": texts, "images": images}


@pytest.mark.parametrize("rows", [8, 5])
def test_scores_of_pairs_belong_to_both_items(rows):
    inputs = {"input_ids": ids(), "patches": vectors(rows)}
    torch.manual_seed(0)
    assert audit(Contrastive().eval(), inputs, ANY).verdict == "holds"


@pytest.mark.parametrize("fault", ["centred", "softmax"])
def test_scores_that_read_a_third_item_are_found(fault):
    torch.manual_seed(0)
    inputs = {"input_ids": ids(), "patches": vectors(5)}
    report = audit(Contrastive(fault).eval(), inputs, ANY)
    assert {one.kind for one in report.findings} == {"batch"}


class Retrieval(nn.Module):
    """Texts with a padding mask against images; with the fault, the mean counts padding."""

    def __init__(self, fault):
        super().__init__()
        self.embed, self.image, self.fault = nn.Embedding(60, 16), nn.Linear(16, 16), fault

    def forward(self, input_ids, attention_mask, patches):
        real = torch.ones_like(attention_mask) if self.fault else attention_mask
        texts = (self.embed(input_ids) * attention_mask[..., None]).sum(1) / real.sum(1, keepdim=True)
        return {"scores": texts @ self.image(patches).mean(1).mT}


@pytest.mark.parametrize("fault", [False, True])
def test_padding_leaves_the_own_score_of_an_item(fault):
    torch.manual_seed(0)
    inputs = {"input_ids": ids(), "attention_mask": torch.ones_like(ids()), "patches": vectors(5)}
    report = audit(Retrieval(fault).eval(), inputs, ANY)
    assert [one.kind for one in report.findings] == (["invariance"] if fault else [])


class Refusing(nn.Module):
    """A configuration whose attributes raise when they are looked at."""

    @dataclasses.dataclass
    class Config:
        width: int = 16

        def __getattribute__(self, name):
            if name == "width":
                raise RuntimeError("width differs between layers")
            return object.__getattribute__(self, name)

    def __init__(self):
        super().__init__()
        self.body = Encoder(causal=True)
        self.config = Refusing.Config.__new__(Refusing.Config)

    def forward(self, x, config=None):
        return self.body(x)


def test_attributes_that_raise_are_passed_over():
    torch.manual_seed(0)
    model = Refusing().eval()
    assert audit(model, {"x": vectors(8), "config": model.config}, er.Causal()).verdict == "holds"


class Classifier(nn.Module):
    """As many classes as the batch has items: no pairs."""

    def __init__(self):
        super().__init__()
        self.body, self.head = Encoder(), nn.Linear(16, 2)

    def forward(self, x):
        logits = self.head(self.body(x).mean(1))
        return torch.cat([logits[:, :1] + logits[:, :1].flip(0), logits[:, 1:]], -1)


def test_as_many_classes_as_items_excuse_nothing():
    torch.manual_seed(0)
    report = audit(Classifier().eval(), vectors(), ANY)
    assert "batch" in {one.kind for one in report.findings}


class OneForEach(nn.Module):
    """A list with the rows of each item, of which there are as many as items by chance."""

    def __init__(self, swapped=False):
        super().__init__()
        self.body, self.swapped = Encoder(), swapped

    def forward(self, x):
        rows = self.body(x)
        return {"rows": rows, "each": list(rows.flip(0) if self.swapped else rows)}


def test_a_list_with_one_tensor_for_each_item_is_no_leak():
    torch.manual_seed(0)
    assert audit(OneForEach().eval(), vectors(), ANY).verdict == "holds"
    report = audit(OneForEach(swapped=True).eval(), vectors(), ANY)
    assert {one.kind for one in report.findings} == {"batch"}


class TwoStreams(nn.Module):
    """Two sequences of one length, each with an output of its own."""

    def __init__(self, causal=True):
        super().__init__()
        self.a, self.b = Encoder(True), Encoder(causal)

    def forward(self, x, y):
        return {"x_rows": self.a(x), "y_rows": self.b(y)}


def test_an_input_that_does_not_move_an_output_is_no_rival_for_its_rows():
    torch.manual_seed(0)
    inputs = {"x": vectors(), "y": vectors(seed=1)}
    assert audit(TwoStreams().eval(), inputs, EARLIER).verdict == "holds"
    report = audit(TwoStreams(causal=False).eval(), inputs, EARLIER)
    assert report.verdict == "violated"
    assert {one.content for one in report.counterexamples} <= {None, "y"}


class Registers(nn.Module):
    """Seven more rows than there are positions come first."""

    def __init__(self, mixes=True):
        super().__init__()
        self.more = nn.Parameter(torch.randn(1, 7, 16))
        self.body = Encoder() if mixes else nn.Linear(16, 16)

    def forward(self, x):
        return self.body(torch.cat([self.more.expand(len(x), -1, -1), x], 1))


def test_rows_of_any_number_may_read_everything():
    torch.manual_seed(0)
    assert audit(Registers().eval(), vectors(), ANY).verdict == "holds"
    assert audit(Registers().eval(), vectors(), er.Full()).verdict == "holds"
    assert audit(Registers(mixes=False).eval(), vectors(), er.Full()).verdict != "holds"
    assert audit(Registers().eval(), vectors(), er.Causal()).verdict != "holds"


class Experts(nn.Module):
    """A causal layer, then experts by grouped products: they round by group, and exist in single precision
    only."""

    def __init__(self, leak=0.0):
        super().__init__()
        self.body, self.router, self.leak = Encoder(True, 32), nn.Linear(32, 4), leak
        self.up = nn.Parameter(torch.randn(4, 32, 64) / 6)
        self.down = nn.Parameter(torch.randn(4, 64, 32) / 6)

    def forward(self, x):
        x = self.body(x)
        flat = x.flatten(0, 1)
        chosen = self.router(flat).argmax(-1)
        order = chosen.argsort(stable=True)
        ends = torch.bincount(chosen, minlength=4).cumsum(0).to(torch.int32)
        y = torch.empty_like(flat)
        y[order] = F.grouped_mm(F.silu(F.grouped_mm(flat[order], self.up, offs=ends)), self.down, offs=ends)
        return x + y.view_as(x) + self.leak * x.roll(-1, 1)


@pytest.mark.parametrize("leak", [0.0, 1e-2, 1e-6])
def test_rounding_of_grouped_products_is_told_from_a_leak(leak):
    verdicts = []
    for seed in range(3):
        torch.manual_seed(seed)
        report = audit(Experts(leak).eval(), torch.randn(2, 12, 32), EARLIER, feedings=[])
        verdicts.append(report.verdict)
    assert set(verdicts) == {"violated" if leak else "holds"}


def test_the_mask_of_an_encoder_of_sound_is_not_the_decoders():
    transformers = pytest.importorskip("transformers")
    layers = {"encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    lengths = {"max_source_positions": 48, "max_target_positions": 16, "num_mel_bins": 8}
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 3}
    config = transformers.WhisperConfig(vocab_size=60, d_model=16, **layers, **heads, **lengths, **special)
    torch.manual_seed(0)
    sound = torch.randn(2, 8, 96, generator=torch.Generator().manual_seed(0))
    inputs = {"input_features": sound, "decoder_input_ids": ids()}
    feedings = ["padded", "shorter"]
    model = transformers.WhisperModel(config)
    assert audit(model, inputs, ANY, feedings=feedings).verdict == "holds"

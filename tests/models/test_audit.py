"""What the audit measures in our own models is what they say of themselves."""

from __future__ import annotations

import pytest
import torch

import erlangen as er
from erlangen.models import BERT, GPT, T5, Transformer, ViT
from erlangen.models.vit import with_class_token

IDS = torch.randint(1, 13, (2, 9), generator=torch.Generator().manual_seed(0))
TARGETS = torch.randint(1, 13, (2, 6), generator=torch.Generator().manual_seed(1))
SMALL = {"layers": 2, "heads": 2, "width": 8}


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def kernels(report):
    """Module name -> the relation that the kernel witness found, every call explained and unchanged."""
    assert report.verdict in ("holds", "measured"), str(report)
    assert not report.coverage.unexplained
    assert report.unchanged
    return {call.module: call.kernel for call in report.calls}


@pytest.mark.parametrize("relation", [er.Causal(), er.Window(lookback=2)])
def test_gpt(relation):
    model = GPT(GPT.Config(13, 12, **SMALL, relation=relation))
    report = er.audit(model, IDS, relation)
    assert set(kernels(report).values()) == {relation}
    assert report.verdict == "holds"
    assert report.flow.relation == relation.reach(2)


def test_gpt_reports_a_leak():
    model = GPT(GPT.Config(13, 12, **SMALL))
    model.blocks[1].attention.relation = er.Full()
    report = er.audit(model, IDS, er.Causal())
    assert report.verdict == "violated"
    assert {call.module: call.kernel for call in report.calls}["blocks.1.attention"] == er.Full()


def test_bert_also_tries_padding():
    report = er.audit(BERT(BERT.Config(13, 12, **SMALL, head=False)), IDS, er.Full())
    assert set(kernels(report).values()) == {er.Full()}
    assert "padded" in [trial.label for trial in report.trials if trial.skipped is None]


def test_t5_is_three_relations():
    report = er.audit(T5(T5.Config(13, **SMALL)), {"input_ids": IDS, "decoder_input_ids": TARGETS})
    for module, relation in kernels(report).items():
        causal = module.startswith("decoder") and "cross" not in module
        assert relation == (er.Causal() if causal else er.Full()), module
    assert [(call.queries, call.keys) for call in report.calls] == [(9, 9)] * 2 + [(6, 6), (6, 9)] * 2


def test_transformer_is_three_relations():
    report = er.audit(Transformer(Transformer.Config(13, 13, **SMALL)), {"src": IDS, "tgt": TARGETS})
    for module, relation in kernels(report).items():
        causal = module.startswith("decoder") and "cross" not in module
        assert relation == (er.Causal() if causal else er.Full()), module
    assert len(report.calls) == 6


@pytest.mark.parametrize("relation", [er.Full(), er.Window(lookback=3), er.Grid((3, 3), 1)])
def test_vit(relation):
    model = ViT(ViT.Config(6, 2, 1, **SMALL, classes=3, relation=relation))
    report = er.audit(model, torch.randn(2, 1, 6, 6), {"*attention": with_class_token(relation, 9)})
    assert report.verdict == "holds", str(report)
    found = set(kernels(report).values())
    assert [bound.on(10) for bound in found] == [with_class_token(relation, 9).on(10)]


def test_a_leak_behind_a_vits_attention_is_found():
    class Leak(torch.nn.Module):
        def __init__(self, block):
            super().__init__()
            self.block = block

        def forward(self, x, *args, **kwargs):
            y = self.block(x, *args, **kwargs)
            return y + 0.3 * y.mean(1, keepdim=True)

    window = er.Window(lookback=1)
    model = ViT(ViT.Config(6, 2, 1, **{**SMALL, "layers": 1}, classes=3, relation=window))
    model.blocks[0] = Leak(model.blocks[0])
    report = er.audit(model, torch.randn(2, 1, 6, 6), {"*attention": with_class_token(window, 9)})
    assert report.verdict == "violated", str(report)

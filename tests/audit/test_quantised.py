"""A dynamically quantised module rounds by the range of the whole tensor: what it reads is told as such."""

import warnings

import torch
from torch import nn
from torch.nn import functional as F

import erlangen as er


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(16, 48)

    def forward(self, x):
        return x + F.scaled_dot_product_attention(*self.qkv(x).chunk(3, -1), is_causal=True)


def test_where_it_enters_says_how_it_is_quantised():
    torch.manual_seed(0)
    model, x = nn.Sequential(Attention(), Attention()).eval(), torch.randn(2, 8, 16)
    assert er.audit(model, x, er.Causal(), feedings=["other content"]).verdict == "holds"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that quantised tensors are deprecated
        quantised = torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)
        report = er.audit(quantised, x, er.Causal(), feedings=["other content"])
    texts = {one.kind: one.explained() for one in report.findings}
    assert "enters in 0.qkv (Linear, quantised by the range of the whole tensor)" in texts["edge"]
    assert "0.qkv is quantised by the range of the whole tensor, over all items" in texts["batch"]


def test_of_a_module_that_is_not_quantised_nothing_is_said():
    class Ahead(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(16, 16)

        def forward(self, x):
            return self.layer(x + x.mean((0, 1)))

    report = er.audit(Ahead(), torch.randn(2, 8, 16), er.Causal(), feedings=["other content"])
    assert {one.kind for one in report.findings} == {"edge", "batch"}
    assert "range of the whole" not in str(report)

"""Faults that show in training with some random numbers only."""

import random

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import erlangen as er
from erlangen.audit import audit

DIM = 16


class Drawn(nn.Module):
    def __init__(self, bad, draw):
        super().__init__()
        self.qkv, self.bad, self.draw = nn.Linear(DIM, 3 * DIM), bad, draw
        self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        n = x.shape[1]
        drawn = self.training and self.draw()
        mask = torch.ones(n, n).tril(n if drawn and self.bad else 0).bool()
        q, k, v = self.qkv(self.dropout(x)).chunk(3, -1)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return x if drawn and not self.bad else x + y  # the correct one leaves the layer out


DRAWS = {
    "torch": lambda: bool(torch.rand(()) < 0.15),
    "python": lambda: random.random() < 0.15,
    "bernoulli": lambda: torch.bernoulli(torch.tensor(0.15)).bool().item(),
}


@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("bad", [True, False])
def test_a_mask_that_is_dropped_now_and_then(name, bad):
    torch.manual_seed(0)
    random.seed(0)
    report = audit(
        Drawn(bad, DRAWS[name]).eval(), torch.randn(2, 12, DIM), er.Causal(), feedings=["training"]
    )
    assert report.verdict == ("violated" if bad else "holds")
    assert any(one.startswith("training (draw") for one in report.tried["feedings"])


def test_where_nothing_but_dropout_is_drawn_there_is_one_draw():
    model = Drawn(False, lambda: False).eval()
    report = audit(model, torch.randn(2, 12, DIM), er.Causal(), feedings=["training"])
    assert report.tried["feedings"] == ["given", "training"]


def test_a_choice_by_where_is_a_draw_as_well():
    class Chosen(Drawn):
        def forward(self, x):
            y = self.qkv(x).chunk(3, -1)[0].cumsum(1)
            full = torch.rand(()) < 0.15 if self.training else torch.tensor(False)
            return torch.where(full, y + x.mean(1, keepdim=True), y)

    report = audit(Chosen(True, None).eval(), torch.randn(2, 12, DIM), er.Causal(), feedings=["training"])
    assert report.verdict == "violated"

"""Keys dropped at random in training: they are no missing edges, and what is read beyond is extra."""

import pytest
import torch
from torch import nn

import erlangen as er

FAULTS = ["", "lifted", "seldom lifted"]


class DropKey(nn.Module):
    """Causal attention that forgets a fifth of its scores in training; the faulty ones also lift the mask now
    and then."""

    def __init__(self, fault: str = "", hidden: bool = False) -> None:
        super().__init__()
        self.qkv, self.fault, self.hidden = nn.Linear(16, 48), fault, hidden

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        n, scores = x.shape[1], q @ k.mT / 4
        ahead = torch.ones(n, n, dtype=torch.bool).triu(1)
        if self.training:
            itself = torch.eye(n, dtype=torch.bool)
            drawn = torch.rand(scores.shape)
            scores = scores.masked_fill((drawn < 0.2) & ~itself, -1e12)
            chance = {"": 0.0, "lifted": 0.3, "seldom lifted": 0.01}[self.fault]
            ahead = ahead & (drawn < 1 - chance)
        scores = scores.masked_fill(ahead, float("-inf"))
        if not self.hidden:
            return x + scores.softmax(-1) @ v
        weights = (scores - scores.amax(-1, keepdim=True)).exp()  # a softmax by hand, in rows
        return x + torch.einsum("bij,bjd->bid", weights / weights.sum(-1, keepdim=True), v)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("expect", [er.Causal(), er.audit.AtMost(er.Causal())])
def test_keys_that_are_dropped_in_training(fault, expect):
    torch.manual_seed(0)
    x = torch.randn(2, 12, 16)
    report = er.audit(DropKey(fault), x, expect, feedings=["training", "autocast"])
    assert report.verdict == ("violated" if fault else "holds"), report
    assert all(one.extra for one in report.findings)
    if not fault:
        assert not report.serious(), report.serious()
        assert any("random numbers in training" in text for text in report.all_warnings())


@pytest.mark.parametrize("fault", ["", "lifted"])
def test_the_same_where_attention_is_not_seen(fault):
    torch.manual_seed(0)
    report = er.audit(DropKey(fault, hidden=True), torch.randn(2, 12, 16), er.Causal(), feedings=["training"])
    assert report.verdict == ("violated" if fault else "holds"), report


def test_nothing_is_wrong_where_nothing_is_expected():
    torch.manual_seed(0)
    assert er.audit(DropKey(), torch.randn(2, 12, 16), feedings=["training"]).verdict == "measured"


class Narrow(DropKey):
    """Reads a window in training, at every draw."""

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        n, scores = x.shape[1], q @ k.mT / 4
        kept = torch.ones(n, n, dtype=torch.bool).tril()
        if self.training:
            kept = kept.triu(-3)
        return x + scores.masked_fill(~kept, float("-inf")).softmax(-1) @ v


def test_what_is_missing_at_every_draw_is_missing_also_beside_random_masks():
    torch.manual_seed(0)
    model = nn.Sequential(DropKey(), Narrow())
    report = er.audit(model, torch.randn(2, 12, 16), er.Causal(), feedings=["training"])
    assert report.verdict == "violated", report
    assert {one.module for one in report.findings} == {"1"}

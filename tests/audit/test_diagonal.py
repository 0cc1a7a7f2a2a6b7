"""Expectations without the diagonal, as of density models: a row may not read its own position."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import erlangen as er
from erlangen.audit import AtMost, audit

STRICT = er.Causal() - er.Identity()


def vectors():
    return torch.randn(2, 12, 16, generator=torch.Generator().manual_seed(1))


class Sum(nn.Module):
    """A running sum of all positions before, or with its own; with a residual path or without."""

    def __init__(self, bad: bool, residual: bool = False) -> None:
        super().__init__()
        self.linear, self.head, self.bad, self.residual = nn.Linear(16, 16), nn.Linear(16, 16), bad, residual

    def forward(self, x):
        y = self.linear(x).cumsum(1)
        y = y if self.bad else F.pad(y, (0, 0, 1, 0))[:, :-1]
        return self.head(x + y if self.residual else y)


class Recurrent(nn.Module):
    """A scan that is fed one step late, or not."""

    def __init__(self, bad: bool) -> None:
        super().__init__()
        self.scan, self.bad = nn.GRU(16, 16, batch_first=True), bad

    def forward(self, x):
        return self.scan(x if self.bad else F.pad(x, (0, 0, 1, 0))[:, :-1])[0]


class ByPlace(nn.Module):
    """Queries are places alone and one key of zeros comes first, so that no row depends on itself."""

    def __init__(self, bad: bool, hidden: bool = False) -> None:
        super().__init__()
        self.kv, self.places = nn.Linear(16, 32), nn.Parameter(torch.randn(64, 16))
        self.bad, self.hidden = bad, hidden

    def forward(self, x):
        n, zero = x.shape[1], torch.zeros(x.shape[0], 1, 16)
        k, v = (torch.cat([zero, part], 1) for part in self.kv(x).chunk(2, -1))
        mask = torch.ones(n, n + 1).tril(1 if self.bad else 0).bool()
        q = self.places[:n].expand_as(x)
        if not self.hidden:
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        e = (q @ k.mT / 4).exp() * mask
        return e / e.sum(-1, keepdim=True) @ v


class Attention(nn.Module):
    """Attention that may not read its own key, or may; its query is its own row, and there is a residual."""

    def __init__(self, bad: bool, hidden: bool = False) -> None:
        super().__init__()
        self.qkv, self.bad, self.hidden = nn.Linear(16, 48), bad, hidden

    def forward(self, x):
        n = x.shape[1]
        q, k, v = self.qkv(x).chunk(3, -1)
        mask = torch.ones(n, n).tril(0 if self.bad else -1).bool()
        mask[0, 0] = True
        if not self.hidden:
            return x + F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        e = (q @ k.mT / 4).exp() * mask
        return x + e / e.sum(-1, keepdim=True) @ v


def verdict(model, expect, **options):
    torch.manual_seed(0)
    return audit(model.eval(), vectors(), expect, **options)


@pytest.mark.parametrize("expect", [STRICT, AtMost(STRICT)], ids=str)
@pytest.mark.parametrize("build", [Sum, Recurrent, ByPlace])
def test_a_row_that_reads_itself_breaks_a_strict_expectation(build, expect):
    torch.manual_seed(0)
    faulty = verdict(build(True), expect, feedings=["training"])
    assert faulty.verdict == "violated"
    assert faulty.findings[0].query == faulty.findings[0].key
    assert verdict(build(False), expect, feedings=["training"]).verdict == "holds"


def test_a_residual_path_excuses_it():
    torch.manual_seed(0)
    assert verdict(Sum(False, residual=True), AtMost(STRICT), variants=False).verdict == "holds"


def test_calls_are_judged_by_what_they_read_and_their_query_excuses_the_row():
    torch.manual_seed(0)
    first = er.Global(keys=[0], queries=[0]) & er.Identity()
    assert verdict(Attention(False), STRICT | first, variants=False).verdict == "holds"
    assert verdict(Attention(True), STRICT | first, variants=False).verdict == "violated"


@pytest.mark.parametrize("bad", [False, True])
def test_hidden_attention_leaves_it_open_and_says_what_settles_it(bad):
    torch.manual_seed(0)
    report = verdict(Attention(bad, hidden=True), AtMost(STRICT), variants=False)
    assert report.verdict == "undecided"
    assert any("| Identity()" in str(one.reason) for one in report.obligations)
    assert verdict(Attention(bad, hidden=True), AtMost(er.Causal()), variants=False).verdict == "holds"


def test_rows_of_a_loss_may_read_what_they_are_compared_with():
    class Loss(Sum):
        def forward(self, x):
            return (super().forward(x) - x).square().mean((1, 2))

    torch.manual_seed(0)
    report = verdict(Loss(False), AtMost(STRICT), variants=False)
    assert report.verdict == "undecided"
    assert any("return what is predicted" in str(one.reason) for one in report.obligations)

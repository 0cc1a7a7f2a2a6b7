"""Pooled outputs of models that must read every position: what they read decides, rows or no rows."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import erlangen as er
from erlangen.audit import AtMost, audit

N = 12


class Bag(nn.Module):
    """Tokens, pooled without attention; the faulty one drops the last token, or reads nothing at all."""

    def __init__(self, pool: str, fault: str = "") -> None:
        super().__init__()
        torch.manual_seed(0)
        self.bag, self.embed, self.head = nn.EmbeddingBag(20, 16), nn.Embedding(20, 16), nn.Linear(16, 3)
        self.pool, self.fault = pool, fault

    def forward(self, ids):
        ids = ids[:, :-1] if self.fault == "truncates" else torch.zeros_like(ids) if self.fault else ids
        x = self.embed(ids)
        return {
            "bag": lambda: self.head(self.bag(ids)),
            "mean": lambda: self.head(x.relu().mean(1)),
            "loss": lambda: x.square().mean(),
            "two": lambda: (self.head(x[:, 0]), self.head(x.mean(1))),
            "max": lambda: self.head(x.amax(1)),
        }[self.pool]()


def tokens(n=N):
    return torch.randint(20, (2, n), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("pool", ["bag", "mean", "loss", "two"])
def test_everything_must_be_read(pool):
    assert audit(Bag(pool), tokens(), er.Full()).verdict == "holds"
    found = audit(Bag(pool, "truncates"), tokens(), er.Full())
    assert found.verdict == "violated"
    assert found.findings[0].pair == (0, N - 1)
    assert not found.findings[0].extra
    silent = audit(Bag(pool, "silent"), tokens(), er.Full())
    assert silent.verdict == "undecided"
    assert any("no output moves" in str(one.reason) for one in silent.open)


@pytest.mark.parametrize("n", [N, 60, 300])
def test_a_maximum_picks_what_it_reads_by_value(n):
    assert audit(Bag("max"), tokens(n), er.Full(), variants=False).verdict == (
        "holds" if n == N else "undecided"
    )
    assert audit(Bag("max", "truncates"), tokens(n), er.Full()).verdict != "holds"


def test_an_upper_bound_misses_nothing():
    assert audit(Bag("bag", "truncates"), tokens(), AtMost(er.Full())).verdict == "holds"


def test_rows_that_read_less_are_not_excused_by_what_is_pooled():
    class Hidden(nn.Module):
        """Causal attention, hidden from view, where everything is expected to be read, then a mean."""

        def __init__(self, causal):
            super().__init__()
            torch.manual_seed(0)
            self.causal, self.embed = causal, nn.Embedding(20, 16)

        def forward(self, ids):
            x = self.embed(ids)
            e = (x @ x.mT / 4).exp()
            e = e.tril() if self.causal else e
            return (x + (e / e.sum(-1, keepdim=True)) @ x).mean(1)

    assert audit(Hidden(False), tokens(), er.Full()).verdict == "holds"
    assert audit(Hidden(True), tokens(), er.Full()).verdict != "holds"


class Ranker(nn.Module):
    """Scores the documents of a query, each pair by itself; `fault`: attention is causal, or documents of one
    batch read each other."""

    def __init__(self, fault: str = "", vectors: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Linear(8, 16) if vectors else nn.Embedding(20, 16)
        self.qkv, self.head, self.fault = nn.Linear(16, 48), nn.Linear(16, 1), fault

    def forward(self, query, docs, docs_mask=None):
        batch, choices, n = docs.shape[:3]
        q = self.embed(query)[:, None].expand(-1, choices, -1, -1)
        x = torch.cat([q, self.embed(docs)], 2).flatten(0, 1)
        real = torch.ones(batch * choices, 1, x.shape[1], dtype=torch.bool)
        if docs_mask is not None:
            real[:, :, -n:] = docs_mask.flatten(0, 1)[:, None].bool()
        if self.fault == "causal":
            real = real & torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
        x = x + F.scaled_dot_product_attention(*self.qkv(x).chunk(3, -1), attn_mask=real)
        x = x[:, : query.shape[1]].mean(1)
        x = x - x.mean(0) if self.fault == "batch" else x
        return self.head(x).view(batch, choices)


@pytest.mark.parametrize("vectors", [False, True])
@pytest.mark.parametrize(("length", "choices", "n"), [(5, 3, 7), (3, 3, 7), (7, 3, 7), (5, 5, 7), (5, 7, 7)])
def test_choices_beside_a_query_are_no_positions(length, choices, n, vectors):
    torch.manual_seed(0)
    inputs = {"query": torch.randint(20, (2, length)), "docs": torch.randint(20, (2, choices, n))}
    if vectors:
        inputs = {"query": torch.randn(2, length, 8), "docs": torch.randn(2, choices, n, 8)}
    for given in (inputs, dict(reversed(inputs.items()))):
        report = audit(Ranker(vectors=vectors), given, er.Full())
        assert report.verdict == "holds", report
        assert audit(Ranker("causal", vectors), given, er.Full()).verdict == "violated"
        assert audit(Ranker("batch", vectors), given, er.Full()).verdict == "violated"

"""Padding that the model finds in its tokens: it stays padding while it is changed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import erlangen as er
from erlangen.audit import audit

N, DIM = 10, 8


def tokens(padded: int = 3) -> torch.Tensor:
    ids = torch.randint(1, 20, (2, N), generator=torch.Generator().manual_seed(2))
    ids[1, N - padded :] = 0
    return ids


class Encoder(nn.Module):
    """Two layers over the tokens that are not 0; a fault in the second one."""

    def __init__(self, fault: str = "", declared: bool = False, causal: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(20, DIM, padding_idx=0 if declared else None)
        self.layers = nn.ModuleList([nn.Linear(DIM, 3 * DIM) for _ in range(2)])
        self.fault, self.causal = fault, causal

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x, n = self.embed(ids), ids.shape[1]
        keep = (ids != 0)[:, None, :].expand(-1, n, n)
        if self.causal:
            keep = keep & torch.ones(n, n, dtype=torch.bool).tril()
        for number, layer in enumerate(self.layers):
            q, k, v = layer(x).chunk(3, -1)
            reads = torch.ones_like(keep) if self.fault == "reads padding" and number else keep
            reads = reads | torch.eye(n, dtype=torch.bool) if number else reads
            x = x + F.scaled_dot_product_attention(q, k, v, attn_mask=reads)
        if self.fault == "counts":  # of the tokens themselves, which no embedding shows
            x = x + (ids == 7).sum(1)[:, None, None]
        return x


def verdict(model: nn.Module, ids: torch.Tensor, expect: Any, **options: Any) -> str:
    return audit(model.eval(), ids, expect, **options).verdict


@pytest.mark.parametrize("declared", [False, True])
@pytest.mark.parametrize("expect", [er.Full(), er.Batch([er.Full(), er.Padding(7)])], ids=["full", "by item"])
def test_padding_in_the_tokens(declared, expect):
    options = {"feedings": ["padded", "other content"]}
    assert verdict(Encoder(declared=declared), tokens(), expect, **options) == "holds"
    assert verdict(Encoder("reads padding", declared), tokens(), expect, **options) == "violated"


def test_tokens_that_are_read_beside_the_embedding_are_still_seen():
    assert verdict(Encoder("counts", causal=True), tokens(), er.Causal(), feedings=[]) == "violated"
    assert verdict(Encoder(causal=True), tokens(), er.Causal(), feedings=[]) == "holds"


def test_a_declared_token_that_is_not_given():
    ids = tokens(padded=0)
    report = audit(Encoder(declared=True).eval(), ids, er.Full(), feedings=["padded"])
    assert report.verdict == "holds"
    assert "padded" in report.tried["feedings"]


def test_a_token_that_nobody_hides_is_content():
    class Open(Encoder):
        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            x = self.embed(ids)
            return x + F.scaled_dot_product_attention(x, x, x, is_causal=self.causal)

    assert verdict(Open(declared=True, causal=True), tokens(), er.Causal(), feedings=[]) == "holds"
    assert verdict(Open(declared=True), tokens(), er.Causal(), feedings=[]) == "violated"

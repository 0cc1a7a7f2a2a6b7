"""Outputs with few rows, which belong to the last positions, or to none of the given ones."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import erlangen as er
from erlangen.audit import audit


def tokens():
    return torch.randint(0, 50, (2, 12), generator=torch.Generator().manual_seed(1))


class Last(nn.Module):
    """The last rows read all positions up to their own, or one more (as the latents of Perceiver AR)."""

    def __init__(self, bad: bool, rows: int) -> None:
        super().__init__()
        self.embed, self.qkv, self.head = nn.Embedding(50, 16), nn.Linear(16, 48), nn.Linear(16, 50)
        self.bad, self.rows = bad, rows

    def forward(self, ids):
        x = self.embed(ids)
        n, m, (q, k, v) = ids.shape[1], self.rows, self.qkv(x).chunk(3, -1)
        mask = torch.ones(m, n).tril(n - m + self.bad).bool()
        return self.head(x[:, -m:] + F.scaled_dot_product_attention(q[:, -m:], k, v, attn_mask=mask))


class Loop(nn.Module):
    """Three tokens are decoded in forward, each with what was decoded before."""

    def __init__(self, bad: bool) -> None:
        super().__init__()
        self.embed, self.qkv, self.head = nn.Embedding(50, 16), nn.Linear(16, 48), nn.Linear(16, 50)
        self.bad = bad

    def forward(self, ids):
        rows = []
        for _ in range(3):
            x = self.embed(ids)
            q, k, v = self.qkv(x).chunk(3, -1)
            y = x + F.scaled_dot_product_attention(q, k, v, is_causal=not self.bad)
            q, k, v = self.qkv(y).chunk(3, -1)
            rows.append(self.head(y + F.scaled_dot_product_attention(q, k, v, is_causal=True))[:, -1])
            ids = torch.cat([ids, rows[-1].argmax(-1, keepdim=True)], 1)
        return torch.stack(rows, 1)


@pytest.mark.parametrize("rows", [3, 4, 5])
def test_rows_of_the_last_positions_are_held_against_these(rows):
    for bad, right in ((True, "violated"), (False, "holds")):
        torch.manual_seed(0)
        report = audit(Last(bad, rows).eval(), tokens(), er.Causal(), feedings=["shorter", "other sizes"])
        assert report.verdict == right, (bad, [one.reason for one in report.obligations if one.reason])


def test_rows_beyond_the_positions_are_not_taken_for_another_rate():
    for bad, right in ((True, "violated"), (False, "holds")):
        torch.manual_seed(0)
        report = audit(Loop(bad).eval(), tokens(), er.Causal(), feedings=["shorter"])
        assert report.verdict == right, (bad, [one.reason for one in report.obligations if one.reason])

"""Outputs with rows that are taken before attention, beside a loss: the loss alone shows what is read."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import erlangen as er
from erlangen.audit import audit


def tokens(seed):
    return torch.randint(0, 50, (2, 12), generator=torch.Generator().manual_seed(seed))


class Decoder(nn.Module):
    """(loss, embeddings); attention reads the future always, in training, or never, or is thrown away."""

    def __init__(self, fault: str, hidden: bool) -> None:
        super().__init__()
        self.embed, self.qkv, self.head = nn.Embedding(50, 16), nn.Linear(16, 48), nn.Linear(16, 50)
        self.fault, self.hidden = fault, hidden

    def forward(self, input_ids, labels):
        x = self.embed(input_ids)
        n, (q, k, v) = x.shape[1], self.qkv(x).chunk(3, -1)
        leaks = self.fault == "leak" or (self.fault == "training" and self.training)
        mask = torch.ones(n, n).tril(1 if leaks else 0).bool()
        if self.hidden:
            e = (q @ k.mT / 4).exp() * mask
            y = e / e.sum(-1, keepdim=True) @ v
        else:
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        y = self.head(x if self.fault == "thrown away" else x + y)
        return F.cross_entropy(y[:, :-1].flatten(0, 1), labels[:, 1:].flatten()), x


@pytest.mark.parametrize("hidden", [False, True], ids=["seen", "hidden"])
@pytest.mark.parametrize(
    ("fault", "right"),
    [
        ("none", {"holds"}),
        ("leak", {"violated"}),
        ("training", {"violated"}),
        ("thrown away", {"violated", "undecided"}),
    ],
)
def test_rows_before_attention_neither_accuse_nor_acquit_it(fault, right, hidden):
    torch.manual_seed(0)
    given = {"input_ids": tokens(1), "labels": tokens(2)}
    report = audit(Decoder(fault, hidden).eval(), given, er.Causal(), feedings=["training"])
    assert report.verdict in right, (
        report.findings,
        [one.reason for one in report.obligations if one.reason],
    )

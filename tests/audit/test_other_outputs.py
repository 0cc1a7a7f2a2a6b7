"""Outputs that are something else in another mode: a loss in training, rows in eval mode, without a name."""

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
    """Hidden attention; a leak or none in one mode, and a loss in one mode."""

    def __init__(self, leaks_in: bool | None, loss_in: bool) -> None:
        super().__init__()
        self.embed, self.qkv, self.head = nn.Embedding(50, 16), nn.Linear(16, 48), nn.Linear(16, 50)
        self.leaks_in, self.loss_in = leaks_in, loss_in

    def forward(self, ids, labels):
        n, x = ids.shape[1], self.embed(ids)
        q, k, v = self.qkv(x).chunk(3, -1)
        e = (q @ k.mT / 4).exp() * torch.ones(n, n).tril(int(self.leaks_in is self.training))
        y = self.head(x + e / e.sum(-1, keepdim=True) @ v)
        if self.training is self.loss_in:
            return F.cross_entropy(y[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        return y


@pytest.mark.parametrize("loss_in", [True, False], ids=["loss in training", "loss in eval mode"])
def test_a_loss_in_one_mode_is_no_row_of_the_other(loss_in):
    given = {"ids": tokens(1), "labels": tokens(2)}
    for leaks_in, right in ((None, "holds"), (True, "violated"), (False, "violated")):
        torch.manual_seed(0)
        report = audit(Decoder(leaks_in, loss_in).eval(), given, er.Causal(), feedings=["training", "alone"])
        assert report.verdict == right, (leaks_in, report.findings, report.obligations)

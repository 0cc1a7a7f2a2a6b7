"""Labels that a decoder is fed with one step late, beside its loss: the usual training call."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import erlangen as er
from erlangen.audit import audit

DIM, VOCABULARY = 16, 30


class Translator(nn.Module):
    """An encoder and a decoder; the decoder is fed the labels, moved on by one unless it is bad."""

    def __init__(self, bad: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.head = nn.Embedding(VOCABULARY, DIM), nn.Linear(DIM, VOCABULARY)
        self.model = nn.Transformer(DIM, 2, 1, 1, 32, batch_first=True)
        self.bad = bad

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        fed = labels if self.bad else F.pad(labels, (1, 0))[:, :-1]
        mask = nn.Transformer.generate_square_subsequent_mask(labels.shape[1])
        logits = self.head(self.model(self.embed(input_ids), self.embed(fed), tgt_mask=mask))
        return {"loss": F.cross_entropy(logits.flatten(0, 1), labels.flatten()), "logits": logits}


def tokens(n: int, seed: int) -> torch.Tensor:
    return torch.randint(3, VOCABULARY, (2, n), generator=torch.Generator().manual_seed(seed))


EXPECT = {"*encoder.*": er.Full(), "*multihead_attn": er.Full(), "*decoder.*": er.Causal()}


@pytest.mark.parametrize("n", [6, 9], ids=["shorter", "as long"])
def test_labels_are_fed_to_a_decoder(n):
    inputs = {"input_ids": tokens(9, 1), "labels": tokens(n, 2)}
    assert audit(Translator(False).eval(), inputs, EXPECT, feedings=["training"]).verdict == "holds"
    assert audit(Translator(True).eval(), inputs, EXPECT, feedings=["training"]).verdict != "holds"

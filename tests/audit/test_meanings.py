"""A mask used upside down is judged by what it means, not by what the model makes of it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import erlangen as er
from erlangen.audit import audit

N, DIM = 10, 8
IDS = torch.randint(0, 20, (2, N), generator=torch.Generator().manual_seed(2))


class Encoder(nn.Module):
    """Attention over the keys that a mask keeps: those with the value `kept`."""

    def __init__(self, kept: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.qkv, self.kept = nn.Embedding(20, DIM), nn.Linear(DIM, 3 * DIM), kept

    def attend(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        q, k, v = self.qkv(x)[:, None].chunk(3, -1)
        keep = (mask.bool() == bool(self.kept))[:, None, None, :]
        return x + F.scaled_dot_product_attention(q, k, v, attn_mask=keep)[:, 0]


class Named(Encoder):
    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        return self.attend(input_ids, attention_mask)


class Plain(Encoder):
    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.attend(ids, mask)


class Torch(Encoder):
    def forward(self, ids: torch.Tensor, key_padding_mask: torch.Tensor) -> torch.Tensor:
        return self.attend(ids, key_padding_mask)


def real(*kept: int) -> torch.Tensor:
    return torch.arange(N)[None, :] < torch.tensor(kept)[:, None]


def verdict(model: nn.Module, inputs: dict[str, Any]) -> str:
    return audit(model.eval(), inputs, er.Full(), feedings=[]).verdict


@pytest.mark.parametrize("mask", [real(N, 7), real(8, 7), real(N, N)], ids=["one", "both", "none"])
@pytest.mark.parametrize("dtype", [torch.long, torch.bool])
def test_attention_mask_is_one_where_a_position_is_real(mask, dtype):
    inputs = {"input_ids": IDS, "attention_mask": mask.to(dtype)}
    assert verdict(Named(kept=0), inputs) == "violated"
    assert verdict(Named(kept=1), inputs) == "holds"


def test_a_mask_of_ones_hides_nothing():
    inputs = {"ids": IDS, "mask": real(N, N)}
    assert verdict(Plain(kept=0), inputs) == "violated"
    assert verdict(Plain(kept=1), inputs) == "holds"


def test_a_padding_mask_of_zeros_hides_nothing():
    inputs = {"ids": IDS, "key_padding_mask": ~real(N, N)}
    assert verdict(Torch(kept=1), inputs) == "violated"
    assert verdict(Torch(kept=0), inputs) == "holds"


def test_a_mask_without_such_a_name_means_what_it_does():
    assert verdict(Plain(kept=0), {"ids": IDS, "mask": ~real(8, 7)}) == "holds"
    assert verdict(Torch(kept=1), {"ids": IDS, "key_padding_mask": real(8, 7)}) == "holds"


def test_padding_throughout_leaves_nothing_to_compare():
    report = audit(
        Named(kept=1).eval(), {"input_ids": IDS, "attention_mask": real(0, 0)}, er.Full(), feedings=[]
    )
    assert report.verdict != "holds"
    report = audit(Summed().eval(), {"input_ids": IDS, "attention_mask": real(0, 0)}, er.Full(), feedings=[])
    assert report.verdict == "undecided"
    assert "give some that are real" in repr(report)


class Summed(Encoder):
    """Attention without a softmax: finite where no key is left."""

    def __init__(self) -> None:
        super().__init__(1)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        x = self.embed(input_ids)
        return x + (x @ x.mT * attention_mask[:, None, :]) @ x

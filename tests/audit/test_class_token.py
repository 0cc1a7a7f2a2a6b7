"""Images with as many patches as the model has features: a class token makes one row more of them."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

import erlangen as er
from erlangen.audit import audit

DIM = 16


class Vision(nn.Module):
    """Patches and a class token; the class is told by its row. The layers are hidden."""

    def __init__(self, bad: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.patches, self.head = nn.Conv2d(3, DIM, 4, 4), nn.Linear(DIM, 10)
        self.token, self.places = nn.Parameter(torch.randn(1, 1, DIM)), nn.Parameter(torch.randn(1, 17, DIM))
        self.bad = bad

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        x = self.patches(pixels).flatten(2).mT
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.places
        for late in (False, True):
            x = x + F.scaled_dot_product_attention(x, x, x, is_causal=self.bad and late)
        return self.head(x[:, 0])


def test_as_many_patches_as_features():
    pixels = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    assert audit(Vision(False).eval(), pixels, er.Full(), feedings=[]).verdict == "holds"
    assert audit(Vision(True).eval(), pixels, er.Full(), feedings=[]).verdict == "violated"

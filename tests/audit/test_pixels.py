"""Images read in raster order: what is read within a row of pixels counts, too."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import erlangen as er
from erlangen.audit import AtMost, audit


class Masked(nn.Conv2d):
    """Reads the pixels above and to the left, and its own; a bad one the right one or the row below."""

    def __init__(self, taken: int, given: int, fault: str) -> None:
        super().__init__(taken, given, 3)
        self.fault = fault

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = torch.ones_like(self.weight)
        mask[:, :, 1, 2:] = float(self.fault == "right")
        mask[:, :, 2:] = float(self.fault == "below")
        return F.conv2d(x, self.weight * mask, self.bias, padding=1)


def verdict(fault: str, *shape: int) -> str:
    torch.manual_seed(0)
    model = nn.Sequential(Masked(shape[1], 4, fault), nn.ReLU(), Masked(4, 4, fault))
    image = torch.randn(*shape, generator=torch.Generator().manual_seed(1))
    return audit(model.eval(), image, AtMost(er.Causal()), feedings=["alone"]).verdict


@pytest.mark.parametrize("shape", [(2, 1, 4, 5), (1, 3, 5, 4), (2, 1, 8, 8)])
def test_raster_order(shape):
    assert verdict("", *shape) == "holds"
    assert verdict("right", *shape) == "violated"
    assert verdict("below", *shape) == "violated"


def test_too_many_pixels_are_said():
    assert verdict("right", 1, 1, 40, 40) != "holds"

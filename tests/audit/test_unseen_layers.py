"""Stacks with layers that cannot be seen: right ones hold at few positions, too, and wrong ones are found."""

import pytest
import torch
from torch import nn

import erlangen as er
from erlangen.audit import audit

N, DIM = 12, 16


class Layer(nn.Module):
    """A window of four keys; written with `exp` it is no attention that an audit could see."""

    def __init__(self, seen: bool, ahead: int = 0, longer: int = 10**9):
        super().__init__()
        self.qkv, self.seen, self.ahead, self.longer = nn.Linear(DIM, 3 * DIM), seen, ahead, longer

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        n = x.shape[1]
        i, j = torch.arange(n)[:, None], torch.arange(n)
        ahead = self.ahead if n >= self.longer else 0
        scores = (q @ k.mT / 4).masked_fill((j > i + ahead) | (j < i - 3), -torch.inf)
        if self.seen:
            return scores.softmax(-1) @ v
        weights = scores.exp()
        return weights / weights.sum(-1, keepdim=True) @ v


def stack(**wrong):
    torch.manual_seed(0)
    return nn.Sequential(
        Layer(True), nn.LayerNorm(DIM), Layer(False, **wrong), nn.LayerNorm(DIM), Layer(True)
    )


@pytest.mark.parametrize("n", [N, 40])
def test_a_right_layer_that_is_not_seen_holds(n):
    """Some feedings change few positions, and many at once: rows then move with what is two windows away."""
    report = audit(stack(), torch.randn(2, n, DIM), er.Window(3))
    assert report.verdict == "holds", report


@pytest.mark.parametrize("longer", [0, N + 1])
def test_a_wrong_layer_that_is_not_seen_is_found(longer):
    """Also where only another feeding, a longer input, shows it."""
    model = stack(ahead=1, longer=longer)
    model.context = 2 * N  # a size that the audit crosses
    report = audit(model, torch.randn(2, N, DIM), er.Window(3))
    assert report.verdict == "violated", report
    assert any(one.origin is not None and one.origin.startswith("2 ") for one in report.findings)

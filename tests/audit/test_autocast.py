"""Under autocast: edges missing there alone are found, and rounding to bfloat16 is no edge."""

import pytest
import torch
from torch import nn

import erlangen as er
from erlangen.audit import audit

DIM = 16


class Model(nn.Module):
    def __init__(self, fault=None):
        super().__init__()
        self.qkv, self.fault = nn.Linear(DIM, 3 * DIM), fault

    def weights(self, scores):
        i = torch.arange(scores.shape[-1])
        apart = i[:, None] - i
        low = torch.is_autocast_enabled("cpu")
        allowed = apart >= 0
        if low and self.fault == "window":
            allowed &= apart <= 3
        e = scores.exp() * allowed
        if low and self.fault == "small leak":
            e = e + 1e-3 * (apart == -1)
        return e / e.sum(-1, keepdim=True)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        return x + self.weights(q @ k.mT / 4) @ v


class Renormalised(Model):
    """Equal to the masked softmax but for rounding."""

    def weights(self, scores):
        w = scores.softmax(-1) * torch.ones_like(scores).tril()
        return w if self.fault else w / w.sum(-1, keepdim=True)


def verdict(model):
    torch.manual_seed(0)
    return audit(model.eval(), torch.randn(2, 12, DIM), er.Causal(), feedings=["autocast"]).verdict


@pytest.mark.parametrize("fault", [None, "window", "small leak"])
def test_faults_under_autocast_alone(fault):
    assert verdict(Model(fault)) == ("holds" if fault is None else "violated")


@pytest.mark.parametrize("layers", [1, 3])
def test_rounding_to_bfloat16_is_no_edge(layers):
    assert verdict(nn.Sequential(*(Renormalised() for _ in range(layers)))) == "holds"
    assert verdict(nn.Sequential(*(Renormalised("not normalised") for _ in range(layers)))) == "violated"

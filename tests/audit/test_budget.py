"""An audit of a slow model: within its budget, with what did not fit said; on a clock that only runs move."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import erlangen as er
from erlangen.audit import audit
from erlangen.audit.flow_rules.beside import separating
from erlangen.audit.witnesses import runs
from erlangen.audit.witnesses.rounding import spread

N = 300


CLOCK = {"time": 0.0}
"""Time that passes where a model says so; not held by the model, for an audit would put it back."""


@pytest.fixture
def clock(monkeypatch):
    CLOCK["time"] = 0.0
    monkeypatch.setattr(runs, "now", lambda: CLOCK["time"])
    return CLOCK


class Decoder(nn.Module):
    """Two causal layers; a run of n positions takes `seconds` x n / N on the clock."""

    def __init__(self, seconds: float, fault: str = "", style: str = "sdpa") -> None:
        super().__init__()
        torch.manual_seed(0)
        self.seconds, self.fault, self.style = seconds, fault, style
        self.embed = nn.Embedding(50, 8)
        self.layers = nn.ModuleList(nn.Linear(8, 24) for _ in range(2))
        self.mha = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, ids):
        n = ids.shape[1]
        CLOCK["time"] += self.seconds * n / N
        x = self.embed(ids)
        mask = torch.ones(n, n, dtype=torch.bool).tril()
        if self.fault == "edge":  # a convolution that looks ahead at one place
            x = x + (torch.arange(n) == 51)[:, None] * x.roll(-1, 1)
        if self.fault == "training" and self.training:
            x = x + x.roll(-1, 1)
        if self.fault == "far" and n > 200:
            x = x + x[:, -1:] * 0.1
        if self.fault == "causal convolution":
            x = x + F.pad(x, (0, 0, 1, 0))[:, :-1]
        for number, layer in enumerate(self.layers):
            q, k, v = layer(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
            own = mask.clone()
            if self.fault == "window" and number == 1:
                own = torch.ones(n, n, dtype=torch.bool).tril(1)
            if self.fault == "head" and number == 1:
                own = own.repeat(2, 1, 1)
                own[1, 10, min(200, n - 1)] = True
            if self.style == "sdpa":
                y = F.scaled_dot_product_attention(q, k, v, attn_mask=own)
            else:
                y = (q @ k.mT / 2).masked_fill(~own, float("-inf")).softmax(-1) @ v
            x = x + y.transpose(1, 2).flatten(2)
        if self.style == "mha":
            x = x + self.mha(x, x, x, attn_mask=~mask, need_weights=False)[0]
        return x


def ids(batch: int) -> torch.Tensor:
    return torch.randint(0, 50, (batch, N), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("seconds", [1.0, 3.0, 6.0])
@pytest.mark.parametrize("batch", [1, 2])
def test_the_budget_bounds_the_clock(clock, seconds, batch):
    steps = []
    report = audit(Decoder(seconds), ids(batch), er.Causal(), progress=steps.append)
    assert clock["time"] <= 1.2 * 120
    assert report.verdict == "holds"
    count, of = report.tried["sampled"]["given"]
    assert count < of == N
    assert f"{count} of {N} positions changed one by one" in report.verdict_line()
    assert any(" s left" in step for step in steps)
    assert "training (n = 128)" in {*report.tried["feedings"], *report.not_tried}


@pytest.mark.parametrize("seconds", [1.0, 3.0])
@pytest.mark.parametrize("fault", ["training", "far", "window", "head"])
def test_a_fault_is_found_within_the_budget(clock, fault, seconds):
    report = audit(Decoder(seconds, fault), ids(1), er.Causal())
    assert report.verdict == "violated"
    assert clock["time"] <= 1.2 * 120


@pytest.mark.parametrize("style", ["sdpa", "eager", "mha"])
def test_one_edge_beside_attention_is_found_although_positions_are_sampled(clock, style):
    faulty = audit(Decoder(1.0, "edge", style), ids(1), er.Causal())
    assert faulty.verdict == "violated"
    assert (faulty.findings[0].query, faulty.findings[0].key) == (51, 52)
    right = audit(Decoder(1.0, "", style), ids(1), er.Causal())
    assert right.verdict == "holds"
    assert "beside attention" in right.verdict_line()


def test_a_convolution_that_looks_back_is_no_fault(clock):
    report = audit(Decoder(1.0, "causal convolution"), ids(1), er.Causal())
    assert report.verdict == "holds"
    assert "beside attention" not in report.verdict_line()


def test_a_feeding_without_time_stands_in_the_verdict_line(clock):
    report = audit(Decoder(12.0), ids(1), er.Causal())
    late = [name for name, why in report.not_tried.items() if "no time left" in why]
    assert "training" in late
    assert f"no time for {', '.join(late)}" in report.verdict_line()


@pytest.mark.parametrize("n", [2, 3, 7, 50])
def test_sets_separate_every_pair_of_positions(n):
    sets = [set(one) for one in separating(n)]
    assert all(any(i in one and j not in one for one in sets) for i in range(n) for j in range(n) if i != j)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 10, 33])
def test_spread_positions_are_all_there(n):
    assert sorted(spread(list(range(n)))) == list(range(n))

"""Items of a batch that read each other a little: found in every precision, never mistaken for rounding."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import erlangen as er
from erlangen.audit import audit
from erlangen.audit.arguments.reading import read
from erlangen.audit.inputs import Inputs
from erlangen.audit.state import untouched
from erlangen.audit.witnesses.flow import batch_leaks
from erlangen.audit.witnesses.runs import Mode, Runner

FORMS = {
    "rows": lambda y: y,
    "flattened": lambda y: y.flatten(0, 1),
    "a tensor for each item": lambda y: list(y.unbind(0)),
    "pooled": lambda y: y.mean(1),
}


class Batch(nn.Module):
    """A scan that reads `leak` of the next item; `rounds` sums items far away and takes them off again."""

    def __init__(self, leak: float, form: str = "rows", rounds: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.scan, self.leak, self.form, self.rounds = nn.Linear(8, 8), leak, form, rounds

    def forward(self, x: torch.Tensor) -> object:
        y = self.scan(x).cumsum(1)
        if self.leak:
            y = y + self.leak * x.roll(1, 0)
        if self.rounds:
            far = self.rounds * x.sum(0, keepdim=True)
            y = y + far - far
        return FORMS[self.form](y)


def leaks(model: nn.Module, x: torch.Tensor) -> bool:
    inputs = Inputs.of(x)
    reading = read(model, inputs)
    with untouched(model) as snapshot:
        runner = Runner(model, inputs, reading, snapshot, Mode("eval"))
        return any(batch_leaks(runner, reading.contents[0], runner.places(), runner.base()))


LEAKS = [(torch.bfloat16, 0.1), (torch.float16, 0.01), (torch.float32, 1e-6), (torch.float64, 1e-14)]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("dtype", "leak"), LEAKS)
def test_a_small_leak_between_items_is_found_in_every_precision(
    dtype: torch.dtype, leak: float, form: str
) -> None:
    x = torch.randn(3, 6, 8).to(dtype)
    assert leaks(Batch(leak, form).to(dtype).eval(), x)
    assert not leaks(Batch(0.0, form).to(dtype).eval(), x)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_rounding_between_items_is_none(dtype: torch.dtype) -> None:
    x = torch.randn(3, 6, 8).to(dtype)
    model = Batch(0.0, rounds=3.0).to(dtype).eval()
    other = x.clone()
    other[0] += 1
    assert not torch.equal(model(other)[1:], model(x)[1:])
    assert not leaks(model, x)


@pytest.mark.parametrize("leak", [0.0, 0.1])
def test_the_verdict_in_half_precision(leak: float) -> None:
    x = torch.randn(3, 6, 8).bfloat16()
    report = audit(Batch(leak).bfloat16().eval(), x, er.Causal(), feedings=["training"])
    assert report.verdict == ("violated" if leak else "holds"), report
    assert {one.kind for one in report.findings} == ({"batch"} if leak else set())


class OfBatch(nn.Module):
    """Takes the mean of the batch away."""

    def forward(self, x):
        return x - x.mean(0, keepdim=True)


class Mixing(nn.Module):
    def __init__(self, pooled):
        super().__init__()
        self.embed, self.qkv, self.pooled = nn.Embedding(20, 16), nn.Linear(16, 48), pooled
        self.mix, self.head = OfBatch(), nn.Linear(16, 3)

    def forward(self, idx):
        x = self.embed(idx)
        x = x + nn.functional.scaled_dot_product_attention(*self.qkv(x).chunk(3, -1), is_causal=True)
        x = self.head(self.mix(x))
        return x[:, -1] if self.pooled else x


@pytest.mark.parametrize("pooled", [False, True])
def test_the_module_is_named_in_which_items_begin_to_read_each_other(pooled):
    torch.manual_seed(0)
    report = audit(Mixing(pooled), torch.randint(20, (3, 10)), er.Causal())
    (finding,) = [one for one in report.findings if one.kind == "batch"]
    assert finding.origin == "mix (OfBatch)"
    assert "test_batch_items.py" in str(finding.source)

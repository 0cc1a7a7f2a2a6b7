"""`report.to_json()` has the keys that docs/audit.md lists, and every finding, whatever is wrong."""

import json
import re
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import erlangen as er
from audit_models import stack, vectors
from erlangen.audit import audit
from erlangen.audit.findings import KINDS

N = 8
DOCS = Path(__file__).parents[2] / "docs" / "audit.md"


class Model(nn.Module):
    """A model that is one function."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(self, x)


def attended(x, causal=True):
    return x + F.scaled_dot_product_attention(x, x, x, is_causal=causal)


FAULTS = {
    "a call": stack([[er.Full()]], N),
    "outside attention": Model(lambda self, x: attended(x) + x.roll(-1, 1)),
    "in training alone": Model(lambda self, x: attended(x, not self.training)),
    "with gradients alone": Model(lambda self, x: attended(x, not torch.is_grad_enabled())),
    "one sequence alone": Model(lambda self, x: attended(x, len(x) > 1)),
    "a second output": Model(lambda self, x: {"hidden": attended(x), "logits": x.flip(1)}),
    "before pooling": Model(lambda self, x: attended(x, causal=False).mean(1)),
    "not finite": Model(lambda self, x: attended(x) / (torch.arange(x.shape[1])[:, None] != 3)),
    "items mixed": Model(lambda self, x: attended(x) + x.cumsum(0)),
    "nothing read": Model(lambda self, x: torch.ones_like(x)),
    "missing edges": Model(lambda self, x: x + x.roll(1, 1)),
}


def documented(title):
    """The keys in the first column of the table under a title."""
    table = DOCS.read_text(encoding="utf-8").partition(f"| {title} | is |")[2].partition("\n\n")[0]
    rows = [line.split("|")[1] for line in table.splitlines()[2:]]
    return {name for row in rows for name in re.findall(r"`(\w+)`", row)}


@pytest.mark.parametrize("fault", FAULTS)
def test_whatever_is_violated_has_a_finding_that_says_where(fault):
    report = audit(FAULTS[fault], vectors(N), er.Causal(), feedings=["training", "with gradients", "alone"])
    told = json.loads(report.dumps())
    assert told["verdict"] == "violated"
    assert set(told) == documented("key")
    assert told["findings"]
    for one in told["findings"]:
        assert set(one) == documented("key of a finding")
        assert one["kind"] in KINDS
        assert one["text"]
        assert one["module"] is not None
        assert one["feeding"] in told["tried"]["feedings"]
        if one["kind"] == "edge":
            assert None not in (one["query"], one["key"], one["edge"], one["expected"], one["measured"])
    broken = [one for one in told["obligations"] if one["state"] == "broken"]
    assert broken
    for one in told["obligations"]:
        assert (one["finding"] is not None) == (one["state"] == "broken")
        assert (one["reason"] is not None) == (one["state"] == "open")


def test_the_correct_twin_has_none():
    told = audit(stack([[er.Causal()]], N), vectors(N), er.Causal(), feedings=["training"]).to_json()
    assert (told["verdict"], told["findings"]) == ("holds", [])
    assert {one["state"] for one in told["obligations"]} == {"held"}

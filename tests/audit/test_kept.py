"""What a report keeps: no tensors that hang on a graph, no model; it can be copied, pickled and sent on."""

from __future__ import annotations

import ast
import copy
import gc
import pickle
import weakref
from pathlib import Path

import pytest
import torch
from torch import nn

import erlangen as er

X = torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(0))
SLOPES = nn.Parameter(torch.tensor([1.0, 0.5]))
AUDITS = {
    "attention": lambda x: (er.Attention(16, num_heads=2, relation=er.Causal()), x, er.Causal()),
    "violated": lambda x: (er.Attention(16, num_heads=2), x, er.Causal()),
    "recurrent": lambda x: (nn.GRU(16, 16, batch_first=True), x, None),
    "learned weights": lambda x: (er.Attention(16, num_heads=2, relation=er.ALiBi(SLOPES)), x, None),
    "torch": lambda x: (nn.TransformerEncoderLayer(16, 2, batch_first=True), x, None),
}


@pytest.mark.parametrize("given", [X, X.clone().requires_grad_(), X @ torch.eye(16, requires_grad=True)])
@pytest.mark.parametrize("name", AUDITS)
def test_a_report_is_copied_and_keeps_neither_graph_nor_model(name, given):
    model, x, expected = AUDITS[name](given)
    report = er.audit(model, x, expected)
    for again in (copy.deepcopy(report), copy.copy(report), pickle.loads(pickle.dumps(report))):
        assert str(again) == str(report)
        assert again.to_json() == report.to_json()
    graphs = [one for one in _held(report) if isinstance(one, torch.Tensor) and one.requires_grad]
    assert all(one is SLOPES for one in graphs)
    alive = weakref.ref(model)
    del model
    gc.collect()
    assert alive() is None


def _held(value):
    """Everything reachable from a value but classes, functions and modules."""
    seen, found = {}, [value]
    for one in found:
        for part in gc.get_referents(one):
            if id(part) not in seen and not isinstance(part, type) and not callable(part):
                seen[id(part)] = part
                found.append(part)
    return found


AUDIT = Path(er.__file__).parent / "audit"
MAKERS = {
    "arange", "as_tensor", "empty", "eye", "full", "linspace", "logspace", "normal", "ones", "rand",
    "randint", "randn", "randperm", "tensor", "tril_indices", "triu_indices", "zeros",
}  # fmt: skip


def test_no_tensor_of_the_audit_is_made_on_the_default_device():
    """It meets tensors of the model, or numbers drawn on the CPU, whatever a user's default is."""
    found = []
    for path in sorted(AUDIT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and ast.unparse(node.func) in {f"torch.{name}" for name in MAKERS}
                and not {"device", None} & {keyword.arg for keyword in node.keywords}
            ):
                found.append(f"{path.relative_to(AUDIT)}:{node.lineno} {ast.unparse(node)[:60]}")
    assert not found


def _on(device, *given):
    with torch.device(device):
        return er.audit(*given)


@pytest.mark.parametrize("name", [*AUDITS, "gpt"])
def test_the_verdict_does_not_depend_on_the_default_device(name):
    ids = torch.tensor([[1, 5, 2, 7, 3, 9], [4, 4, 8, 1, 0, 6]])
    gpt = er.models.GPT(er.models.GPT.Config(11, 8, 1, 2, 8)).eval()
    model, x, expected = (gpt, ids, er.Causal()) if name == "gpt" else AUDITS[name](X)
    # A finding names the line that called the model: one line for both.
    before, after = (_on(device, model, x, expected) for device in ("cpu", "meta"))
    assert after.verdict == before.verdict
    assert after.to_json()["calls"] == before.to_json()["calls"]
    assert after.to_json()["findings"] == before.to_json()["findings"]
    assert not after.coverage.unexplained

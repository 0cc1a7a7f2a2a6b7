"""Correct models that are easily accused hold, and their faulty twins do not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import erlangen as er
from audit.accusable import CASES, Case
from erlangen.audit import audit
from erlangen.audit.report import Report
from erlangen.audit.targets import transformers_model

FEEDINGS = ["shorter", "padded", "training"]
ASKED = {"condition-of-12-rows-returns-own", "condition-of-12-rows-returns-before"}
"""As many rows of a condition as of the sequence: whether they are another sequence must be said."""


def verdict_of(build: Callable[[bool], Case], bad: bool) -> Report:
    torch.manual_seed(0)
    model, inputs, expect = build(bad)
    return audit(model.eval(), inputs, expect, feedings=FEEDINGS)


@pytest.mark.parametrize("name", CASES)
def test_correct_models_are_not_accused(name: str) -> None:
    report = verdict_of(CASES[name], False)
    if name in ASKED:
        assert report.verdict == "undecided"
        assert all("content=[...]" in (one.reason or "") for one in report.obligations if one.state == "open")
    else:
        assert report.verdict == "holds", report


@pytest.mark.parametrize("name", CASES)
def test_their_faulty_twins_do_not_hold(name: str) -> None:
    assert verdict_of(CASES[name], True).verdict in ("violated", "undecided")


def test_one_side_of_padding_can_be_asked_for() -> None:
    model, inputs = transformers_model("gpt2", 12)
    inputs = {name: value for name, value in inputs.items() if name != "attention_mask"}
    report = audit(model, inputs, feedings=["padded right"], flow=False)
    assert report.tried["feedings"] == ["given", "padded"]
    assert report.not_tried["padded left"] == "not asked for"
    assert "with attention_mask added by the audit" in report.verdict_line()
    report = audit(model, inputs, feedings=["padded left"], flow=False)
    assert report.tried["feedings"] == ["given", "padded left"]


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("module", [nn.GRU, nn.LSTM])
def test_states_of_layers_are_no_rows(module: type[nn.RNNBase], batch: int) -> None:
    """(layers, batch, features): two layers are as many as the positions of a shorter input, by chance."""
    model = module(3, 3, num_layers=2, batch_first=True)
    assert audit(model, torch.randn(batch, 4, 3), er.Causal()).verdict == "holds"
    both = module(3, 3, num_layers=2, batch_first=True, bidirectional=True)
    assert audit(both, torch.randn(batch, 4, 3), er.Causal()).verdict == "violated"

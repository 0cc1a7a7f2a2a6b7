"""Every exhibit is caught, located and explained; its correct twin passes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch

import erlangen as er
from audit.museum import models as museum
from audit_models import vectors
from erlangen.audit import audit

N, CAUSAL = museum.N, museum.CAUSAL


def padded(**more: Any) -> dict[str, Any]:
    mask = torch.ones(2, N, dtype=torch.long)
    mask[1, 5:] = 0
    tokens = torch.randint(0, 20, (2, N), generator=torch.Generator().manual_seed(0))
    return {"input_ids": tokens, "attention_mask": mask, **more}


@dataclass
class Exhibit:
    """A fault, what to expect of the model, and what the audit must say about it."""

    name: str
    inputs: Any
    expect: Any
    module: str
    edge: tuple[int, int] | None
    says: str
    head: int | None = None

    def __str__(self) -> str:
        return self.name


CROSS = {"encoder*": er.Full(), "decoder*": CAUSAL, "read": er.Padding(6)}
EXHIBITS = [
    Exhibit("future_leak", vectors(N), CAUSAL, "layers.1.attention", (2, 5), "head 1: expected Causal()", 1),
    Exhibit(
        "wide_window",
        vectors(N),
        er.Window(3),
        "layers.1.attention",
        (4, 0),
        "measured Window(lookback=4); extra",
    ),
    Exhibit(
        "narrow_window", vectors(N), er.Window(3), "layers.1.attention", (3, 0), "Window(lookback=2); missing"
    ),
    Exhibit(
        "documents_crossed",
        vectors(N),
        CAUSAL & er.Documents([3, 5]),
        "layers.0.attention",
        (3, 0),
        "extra edge",
    ),
    Exhibit("inverted", vectors(N), CAUSAL, "layers.0.attention", (0, 1), "extra edge (0, 1)"),
    Exhibit("padding_read", padded(), er.Full(), "", (0, 5), "extra edge (0, 5)"),
    Exhibit("dropped_in_training", padded(), er.Full(), "", (0, 5), "(training): expected Full()"),
    Exhibit(
        "dropped_with_weights", padded(output_attentions=True), er.Full(), "", (0, 5), "extra edge (0, 5)"
    ),
    Exhibit(
        "top_left",
        {"x": vectors(3), "past_key_values": vectors(5)},
        CAUSAL,
        "",
        (0, 1),
        "missing edge (0, 1)",
    ),
    Exhibit("empty_row", vectors(N), CAUSAL & ~er.Identity(), "", (0, 0), "extra edge (0, 0)"),
    Exhibit(
        "cross_unmasked",
        (vectors(N), vectors(N) + 1),
        CROSS,
        "read",
        (0, 6),
        "expected Padding(6), measured Full()",
    ),
    Exhibit("convolution", vectors(N), CAUSAL, "the whole model", (0, 1), "extra edge (0, 1)"),
    Exhibit("batch_statistics", vectors(N), CAUSAL, "the whole model", (0, 1), "extra edge (0, 1)"),
]


@pytest.mark.parametrize("exhibit", EXHIBITS, ids=str)
def test_the_fault_is_caught_located_and_explained(exhibit):
    report = audit(getattr(museum, exhibit.name)(True), exhibit.inputs, exhibit.expect)
    assert report.verdict == "violated"
    first = report.counterexamples[0]
    assert first.module == exhibit.module
    assert (first.query, first.key) == exhibit.edge
    assert first.head == exhibit.head
    assert exhibit.says in str(first)
    assert report.unchanged


@pytest.mark.parametrize("exhibit", EXHIBITS, ids=str)
def test_the_correct_twin_passes(exhibit):
    report = audit(getattr(museum, exhibit.name)(False), exhibit.inputs, exhibit.expect)
    assert report.verdict == "holds", str(report)
    assert report.contradictions == []


def test_outside_attention_is_told_from_attention():
    report = audit(museum.convolution(True), vectors(N), CAUSAL)
    assert all(call.counterexample is None for call in report.calls)
    assert any("outside attention" in text for text in report.all_warnings())


def test_sequences_that_read_each_other_are_named():
    report = audit(museum.batch_statistics(True), vectors(N), CAUSAL)
    assert any("sequences of one batch read each other" in text for text in report.contradictions)


def test_an_empty_row_is_explained_without_an_expectation():
    report = audit(museum.empty_row(True), vectors(N))
    assert report.verdict == "contradictory"
    assert any("fully masked rows read keys all the same" in text for text in report.contradictions)

"""Ordinary models hold: a tool that shrugs, or accuses, is as useless as one that lies.

A third of them runs by default; ERLANGEN_LONG=1 runs all.
"""

import os

import pytest
import torch

from audit.ordinary import ORDINARY
from erlangen.audit import audit

CHOSEN = [one for one in ORDINARY if one.quick or os.environ.get("ERLANGEN_LONG")]


@pytest.mark.parametrize("one", CHOSEN, ids=[one.name for one in CHOSEN])
def test_an_ordinary_model_holds(one):
    if one.needs:
        pytest.importorskip(one.needs)
    model, inputs, expect = one.build()
    report = audit(model, inputs, expect)
    assert report.verdict == "holds", f"{one.name}\n{report}"


@pytest.mark.parametrize("one", CHOSEN, ids=[one.name for one in CHOSEN])
def test_the_models_run(one):
    if one.needs:
        pytest.importorskip(one.needs)
    model, inputs, _ = one.build()
    with torch.no_grad():
        assert model(**inputs) is not None if isinstance(inputs, dict) else model(inputs) is not None


def test_there_are_forty():
    assert len(ORDINARY) >= 40
    assert len({one.name for one in ORDINARY}) == len(ORDINARY)

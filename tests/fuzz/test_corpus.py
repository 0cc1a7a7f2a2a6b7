"""Every kept input is tried again, and some that are made of them; `make fuzz` does it for longer."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

HERE = Path(__file__).parent


def load(name):
    spec = importlib.util.spec_from_file_location(f"fuzz_{name}", HERE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


targets, mutations = load("targets"), load("mutations")
KEPT = [(name, path) for name in targets.TARGETS for path in sorted((targets.CORPUS / name).glob("[!.]*"))]


@pytest.mark.parametrize(("name", "path"), KEPT, ids=[f"{name}/{path.name}" for name, path in KEPT])
def test_kept_inputs_are_answered_or_refused(name, path):
    targets.try_one(name, path.read_bytes())


@pytest.mark.parametrize("name", targets.TARGETS)
def test_changed_inputs_are_answered_or_refused(name):
    inputs = targets.seeds(name)
    answered = [targets.try_one(name, data) for data in inputs]
    assert any(answered), "a corpus of refusals alone does not reach what it is for"

    @given(mutations.changed(inputs))
    @settings(max_examples=30, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    def attempt(data):
        targets.try_one(name, data)

    attempt()


def test_a_target_that_fails_otherwise_is_a_fault(monkeypatch):
    monkeypatch.setitem(targets.TARGETS, "parser", lambda data: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        targets.try_one("parser", b"Full()")

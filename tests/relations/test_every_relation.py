"""Every relation of the list answers every question, is exported, and stands in the documents."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import erlangen as er
from erlangen.relations.catalogue import WRITTEN
from erlangen.relations.parse import parse
from relation_questions import QUESTIONS, drawn

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def lists():
    """The program that writes the lists."""
    spec = importlib.util.spec_from_file_location("list_relations", ROOT / "docs" / "list_relations.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("name", sorted(WRITTEN))
def test_every_relation_answers_every_question(name, question):
    @given(st.data(), st.integers(1, 4))
    @settings(max_examples=4, deadline=None)
    def ask(data, n):
        QUESTIONS[question](*drawn(data, name, n))

    ask()


def test_a_wrong_answer_is_noticed(monkeypatch):
    monkeypatch.setattr(er.Causal, "_holds", lambda self, i, j, keys: j < i)
    monkeypatch.setattr(er.Causal, "_laws", frozenset({"symmetric"}))
    for question in ("binding", "laws", "mask"):
        with pytest.raises(AssertionError):
            QUESTIONS[question](er.Causal(), 3)


@pytest.mark.parametrize("name", sorted(WRITTEN))
def test_every_relation_is_public_and_in_the_documents(name, lists):
    assert name in er.relations.__all__
    assert getattr(er, name) is getattr(er.relations, name) is WRITTEN[name]
    command = "run: python docs/list_relations.py"
    assert f"{lists.row(name)}\n" in (ROOT / "README.md").read_text(), command
    assert f"import {name} as {name}\n" in lists.STUB.read_text(), command


def test_the_written_lists_are_current(lists):
    command = "run: python docs/list_relations.py"
    page = lists.README.read_text()
    assert lists.with_table(page) == page, command
    assert lists.stub() == lists.STUB.read_text(), command
    stale = page.replace(lists.row("Causal"), "| `Causal()` | everything |")
    assert stale != page == lists.with_table(stale)


@pytest.mark.parametrize("name", sorted(WRITTEN))
def test_every_relation_has_its_row_in_the_gallery(name):
    gallery = (ROOT / "docs" / "relations.md").read_text().split("## Gallery")[1].split("\n## ")[0]
    rows = [line for line in gallery.splitlines() if re.match(rf"\| `{name}\(", line)]
    assert len(rows) == 1, f"docs/relations.md, section Gallery: one row that begins with | `{name}("
    written = re.match(r"\| `([^`]+)`", rows[0])[1]
    kind = WRITTEN[name]
    if isinstance(kind, type) and kind.__module__ == "erlangen.relations.geometries" and name != "Lines":
        assert isinstance(eval(written, vars(er.relations)), kind)
    else:
        assert isinstance(parse(written), kind if isinstance(kind, type) else er.TernaryRelation)


def test_finding_all_relations_stays_light():
    code = "import erlangen.relations, sys; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.split()
    assert "erlangen.relations.weighted.distance" in loaded
    assert not {"torch", "hypothesis", "pybliss", "matplotlib", "scipy", "networkx"} & set(loaded)


def test_the_former_name_of_ternary_relations_says_the_new_one():
    for package in (er, er.relations):
        vars(package).pop("HyperRelation", None)
        with pytest.warns(DeprecationWarning, match=r"HyperRelation is now erlangen\..*TernaryRelation"):
            assert package.HyperRelation is er.TernaryRelation

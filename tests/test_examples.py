"""The examples run: each script of examples/ at its quick size, as a user would start it."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))


def test_there_are_examples():
    assert len(EXAMPLES) >= 6


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda script: script.stem)
def test_an_example_says_what_it_shows_and_has_a_quick_size(script):
    tree = ast.parse(script.read_text(encoding="utf-8"))
    assert len(ast.get_docstring(tree) or "") > 40
    assert any(isinstance(node, ast.Constant) and node.value == "--quick" for node in ast.walk(tree))


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda script: script.stem)
def test_an_example_runs_and_tells_something(script, tmp_path):
    result = subprocess.run(
        [sys.executable, "-W", "error", str(script), "--quick"],
        cwd=tmp_path,  # whatever it writes must not land in the project
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip()

"""Factories in files and packages: they find their neighbours, and what is missing is named."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from erlangen.audit.small.building import built
from erlangen.audit.targets import resolve
from erlangen.errors import DataError, ParameterError

MODEL = """
import torch
from torch import nn

class Twice(nn.Module):
    def forward(self, x):
        return 2 * x
"""
BUILD = """
import torch
from {neighbour} import Twice

def build(n=4):
    return Twice(), torch.zeros(1, n, 2)
"""


@pytest.fixture(autouse=True)
def _same_process_afterwards():
    """Modules and path as they were: tests do not see one another's neighbours."""
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if not name.startswith(("torch", "numpy", "transformers", "erlangen")):
            del sys.modules[name]


def written(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    return folder


def test_a_file_finds_its_neighbours(tmp_path):
    written(tmp_path, layers_beside=MODEL, mine=BUILD.format(neighbour="layers_beside"))
    model, x = resolve(f"{tmp_path / 'mine.py'}:build", 6)
    assert type(model).__name__ == "Twice"
    assert x.shape == (1, 6, 2)


def test_a_relative_path_is_found_from_the_current_directory(tmp_path, monkeypatch):
    written(tmp_path / "deep", layers_deep=MODEL, deeper=BUILD.format(neighbour="layers_deep"))
    monkeypatch.chdir(tmp_path)
    assert resolve("deep/deeper.py:build")[1].shape == (1, 4, 2)


def test_neighbours_imported_by_the_factory_and_by_the_forward_pass(tmp_path):
    written(
        tmp_path,
        when_built="WIDTH = 3\n",
        when_run="FACTOR = 5\n",
        lazy="""
import torch
from torch import nn

class Late(nn.Module):
    def forward(self, x):
        from when_run import FACTOR
        return FACTOR * x

def build():
    from when_built import WIDTH
    return Late(), torch.ones(1, 2, WIDTH)
""",
    )
    model, x = resolve(f"{tmp_path / 'lazy.py'}:build")
    assert torch.equal(model(x), torch.full((1, 2, 3), 5.0))


def test_the_neighbour_comes_before_what_is_installed_and_later_hides_nothing(tmp_path, monkeypatch):
    # `tabnanny` is in the standard library; whoever imported it keeps it.
    monkeypatch.delitem(sys.modules, "tabnanny", raising=False)
    written(tmp_path, tabnanny=MODEL, shadow=BUILD.format(neighbour="tabnanny"))
    first = sys.path[0]
    assert type(resolve(f"{tmp_path / 'shadow.py'}:build")[0]).__module__ == "tabnanny"
    assert sys.path[0] == first
    assert sys.path.count(str(tmp_path)) == 1
    del sys.modules["tabnanny"]
    import tabnanny

    assert hasattr(tabnanny, "process_tokens")


def test_a_package_in_the_current_directory(tmp_path, monkeypatch):
    written(tmp_path / "my_package_here", __init__="", layers=MODEL, model=BUILD.format(neighbour=".layers"))
    monkeypatch.chdir(tmp_path)
    assert type(resolve("my_package_here.model:build")[0]).__module__ == "my_package_here.layers"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import no_such_neighbour", "there is no module 'no_such_neighbour' in .*, nor is it installed"),
        ("def build():\n    import no_such_late_one", "there is no module 'no_such_late_one' in"),
        ("import torch.no_such_part", "there is no module 'torch.no_such_part' in the package torch"),
        ("import colorsys.part", "'colorsys.part': colorsys is a module, no package"),
        ("from torch import no_such_name", "ImportError: cannot import name 'no_such_name'"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("def build(:", "SyntaxError"),
        ("raise SystemExit(0)", r"ended the program, sys\.exit\(0\)"),
        ("def build():\n    raise SystemExit", r"ended the program, sys\.exit\(None\)"),
        ("from .layers import Twice", r"audit \S+\.broken:FACTORY from the folder that holds"),
        ("other = 1", "has no function 'build'"),
        ("def build():\n    return 1", r"must return \(model, inputs\)"),
    ],
)
def test_what_is_missing_is_named(tmp_path, source, message):
    written(tmp_path, broken=source + "\n")
    with pytest.raises(DataError, match=message):
        resolve(f"{tmp_path / 'broken.py'}:build")
    if "def build" not in source and source != "other = 1":
        assert "broken" not in sys.modules  # half a module is not left behind


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"importing no_such\.package failed: there is no module 'no_such'"):
        resolve("no_such.package:build")
    with pytest.raises(DataError, match=r"there is no file 'nothing\.py'"):
        resolve("nothing.py:build")
    written(tmp_path, short="def build():\n    return 1\n")
    with pytest.raises(ParameterError, match="takes no argument n"):
        resolve("short.py:build", 5)


def test_the_command_line_finds_neighbours(tmp_path):
    written(tmp_path, layers_of_command=MODEL, mine=BUILD.format(neighbour="layers_of_command"))
    told = subprocess.run(
        [sys.executable, "-m", "erlangen", "audit", str(tmp_path / "mine.py") + ":build", "--json"],
        capture_output=True, text=True, cwd=tmp_path.parent, check=False,
    )  # fmt: skip
    assert told.returncode != 2, told.stderr
    assert "Twice" in told.stdout


def test_a_message_that_begins_with_an_empty_line_is_told():
    def recipe(_):
        raise ImportError("\nNeeds another package.\nInstall it.")

    with pytest.raises(DataError, match=r"ImportError: Needs another package\.\)"):
        built(object, 4, [recipe])

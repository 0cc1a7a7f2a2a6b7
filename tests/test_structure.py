"""What the package promises of itself: light imports, layers that import downwards only, documented names."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import erlangen

SOURCE = Path(erlangen.__file__).parent


def fresh(code: str) -> str:
    """Run code in a new interpreter; gives what it prints."""
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_importing_erlangen_imports_neither_torch_nor_matplotlib():
    loaded = fresh("import erlangen, sys; print(*sys.modules)").split()
    assert "erlangen.relations" in loaded
    for heavy in ("torch", "matplotlib", "scipy", "networkx", "typer", "rich", "pybliss"):
        assert heavy not in loaded


@pytest.mark.parametrize("package", ["relations", "symmetry", "taxonomy"])
def test_torch_free_packages(package):
    assert "torch" not in fresh(f"import erlangen.{package}, sys; print(*sys.modules)").split()


def test_every_public_name_is_there_and_documented():
    for name in erlangen.__all__:
        value = getattr(erlangen, name)
        assert inspect.getdoc(value), name
    assert set(erlangen.__all__) <= set(dir(erlangen))
    with pytest.raises(AttributeError, match="nothing_here"):
        erlangen.nothing_here  # noqa: B018


# package -> packages it may import besides itself; `errors` is free to all.
ALLOWED = {
    "relations": set(),
    "symmetry": {"relations"},
    "taxonomy": {"symmetry", "relations"},
    "attention": {"relations"},
    "nn": {"attention", "relations"},
    "models": {"nn", "attention", "relations", "integrations"},
    "training": {"models", "nn", "attention", "relations", "integrations"},
    "equivariance": {"symmetry", "relations"},
    "audit": {"show", "taxonomy", "symmetry", "relations"},
    "integrations": {"attention", "relations", "nn"},
    "show": {"taxonomy", "symmetry", "relations"},
    "testing": {"audit", "equivariance", "symmetry", "relations"},
    # The reproduction stands on everything and, but for the commands, under nothing.
    "paper": {
        "relations",
        "symmetry",
        "taxonomy",
        "attention",
        "nn",
        "models",
        "equivariance",
        "audit",
        "show",
    },
}


def imported_packages(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        found |= {
            parts[1] for name in names if (parts := name.split("."))[0] == "erlangen" and len(parts) > 1
        }
    return found


def violations(package: str, path: Path) -> set[str]:
    packages = {p.name for p in SOURCE.iterdir() if p.is_dir()}
    return (imported_packages(path) & packages) - ALLOWED[package] - {package}


@pytest.mark.parametrize("package", sorted(ALLOWED))
def test_packages_import_downwards_only(package):
    for path in (SOURCE / package).rglob("*.py"):
        assert not violations(package, path), path


def test_backends_do_not_import_each_other():
    folder = SOURCE / "attention" / "backends"
    names = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    for path in folder.glob("*.py"):
        text = path.read_text()
        assert not any(f"backends.{other}" in text for other in names - {path.stem}), path


def test_the_import_check_rejects(tmp_path):
    bad = tmp_path / "bad.py"
    bad.write_text("from erlangen.attention import attend\n")
    assert violations("relations", bad) == {"attention"}

"""What the package promises of itself: light imports, layers that import downwards only, documented names."""

from __future__ import annotations

import importlib.util
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import erlangen

SOURCE = Path(erlangen.__file__).parent

_spec = importlib.util.spec_from_file_location(
    "draw_packages", Path(__file__).parents[1] / "docs" / "draw_packages.py"
)
assert _spec is not None
assert _spec.loader is not None
draw_packages = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(draw_packages)


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


# package -> the packages right below it: it may import these, and what they may import. No exceptions.
BELOW = {
    "relations": (),
    "symmetry": ("relations",),
    "taxonomy": ("symmetry",),
    "equivariance": ("symmetry",),
    "attention": ("relations",),
    "nn": ("attention",),
    "integrations": ("nn",),
    "models": ("nn",),
    "training": ("models",),
    "show": ("taxonomy",),
    "audit": ("show",),
    "testing": ("audit", "equivariance"),
    # The reproduction stands on everything and, but for the commands, under nothing.
    "paper": ("training", "integrations", "testing"),
    "commands": ("paper",),
}


def violations(package: str, source: str) -> set[str]:
    """The packages that a module of this package imports, and must not."""
    names = {name.split(".")[1] for name in draw_packages.imports_of(source) if "." in name}
    return names & set(BELOW) - draw_packages.reachable(BELOW, package) - {package}


def test_every_package_has_its_place():
    assert set(BELOW) == set(draw_packages.packages()) == set(draw_packages.ABOUT)


@pytest.mark.parametrize("package", sorted(BELOW))
def test_packages_import_downwards_only(package):
    for path in (SOURCE / package).rglob("*.py"):
        assert not violations(package, path.read_text("utf-8")), path


@pytest.mark.parametrize(
    "source",
    [
        "from erlangen.attention import attend",
        "import erlangen.attention._attend",
        "from erlangen import attention",
        "def lazily():\n    from erlangen.attention import attend",
        "if TYPE_CHECKING:\n    from erlangen.attention import attend",
        "import_module('erlangen.attention')",
        "importlib.import_module('erlangen.attention.call')",
    ],
)
def test_the_import_check_rejects(source):
    assert violations("relations", source) == {"attention"}
    assert violations("nn", source) == set()


def test_the_picture_of_the_packages_is_current():
    drawn = draw_packages.svg(draw_packages.arrows())
    assert draw_packages.PICTURE.read_text("utf-8") == drawn, "run: python docs/draw_packages.py"


def test_backends_do_not_import_each_other():
    folder = SOURCE / "attention" / "backends"
    names = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    for path in folder.glob("*.py"):
        text = path.read_text()
        assert not any(f"backends.{other}" in text for other in names - {path.stem}), path

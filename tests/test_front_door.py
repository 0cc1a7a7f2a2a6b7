"""What `import erlangen` gives: names that load when they are used, and two packages that are functions."""

from __future__ import annotations

import inspect
import pickle
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import torch

import erlangen as er
from erlangen.errors import ParameterError

LAZY = ["erlangen", "erlangen.audit", "erlangen.models", "erlangen.testing", "erlangen.training"]

USES = """
assert er.symmetry(er.Causal(), 4).order == 1
assert isinstance(er.symmetry(er.Causal(), 4), er.symmetry.Group)
assert er.symmetry.symmetry(er.Causal(), 4).order == er.symmetry(er.Causal(), 4).order
assert callable(er.audit) and er.audit.Report.__name__ == "Report"
"""


@pytest.mark.parametrize(
    "first",
    [
        "import erlangen as er",
        "import erlangen.symmetry, erlangen as er",
        "from erlangen.symmetry import Group; import erlangen as er",
        "from erlangen import symmetry, audit; import erlangen as er",
        "import erlangen.symmetry.group as group; import erlangen as er",
        "from erlangen.taxonomy import classify; import erlangen as er",
        "import erlangen as er; er.symmetry; import erlangen.symmetry.group, erlangen.audit.expect",
    ],
)
def test_a_package_is_its_function_whatever_was_imported_before(first):
    subprocess.run([sys.executable, "-c", f"{first}\n{USES}"], check=True)


def test_former_names_are_there_still():
    assert "bias" in dir(er)
    assert not {"hierarchy", "HyperRelation"} & set(dir(er))  # nobody who walks the package is to be warned
    with pytest.warns(DeprecationWarning, match=r"HyperRelation is now erlangen\.TernaryRelation"):
        exec("from erlangen import HyperRelation", {})  # code without a name of its own
    with pytest.warns(DeprecationWarning, match="erlangen.bias is now erlangen.taxonomy"):
        assert er.bias.classify is er.classify


def test_a_package_that_is_a_function_is_pickled_and_described_as_one():
    for package in (er.symmetry, er.audit):
        assert pickle.loads(pickle.dumps(package)) is package
    assert next(iter(inspect.signature(er.symmetry).parameters)) == "relation"
    assert next(iter(inspect.signature(er.audit).parameters)) == "model"


@pytest.mark.parametrize("package", LAZY)
def test_lazy_names_are_there_and_listed_and_no_others(package):
    module = import_module(package)
    assert set(module.__all__) <= set(dir(module))
    for name in module.__all__:
        assert getattr(module, name) is not None
        assert getattr(module, name) is vars(module)[name]  # found directly from then on
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'nothing_here'"):
        module.nothing_here  # noqa: B018


def test_an_old_and_a_new_name_of_one_argument_are_not_both_taken():
    fano, x = er.Fano(), torch.randn(1, 7, 4)
    with pytest.raises(ParameterError, match="hyperrelation= is now relation=: give one of them"):
        er.attend_triples(x, x, x, x, x, relation=fano, hyperrelation=fano)
    with pytest.warns(DeprecationWarning, match="hyperrelation= is now relation=") as said:
        er.nn.TripleAttention(4, 1, fano)(x, hyperrelation=fano)
    assert said[0].filename == __file__


@pytest.mark.parametrize("name", ["Attention", "plan", "audit", "reach", "Relation"])
def test_a_relation_may_not_take_the_name_of_something_else(name, tmp_path):
    package = tmp_path / "erlangen"
    shutil.copytree(Path(er.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "relations" / "taken.py").write_text(
        "from dataclasses import dataclass\nfrom erlangen.relations.catalogue import written\n"
        "from erlangen.relations.relation import Relation as Base\n"
        f"@written\n@dataclass(frozen=True)\nclass {name}(Base):\n"
        "    def _bind(self, site): ...\n    def _holds(self, i, j, keys): ...\n"
    )
    code = (
        "import sys; from importlib.machinery import PathFinder; sys.meta_path.insert(0, PathFinder); "
        f"sys.path.insert(0, {str(tmp_path)!r}); import erlangen"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.returncode
    assert f"{name}" in ended.stderr.splitlines()[-1]
    assert "ParameterError" in ended.stderr

"""What `import erlangen` gives: names that load when they are used, and two packages that are functions."""

from __future__ import annotations

import inspect
import pickle
import subprocess
import sys
from importlib import import_module

import pytest

import erlangen as er

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
    assert {"bias", "hierarchy"} <= set(dir(er))
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

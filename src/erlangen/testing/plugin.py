"""The pytest plugin: the assertions as fixtures, and the pages of their failures.

def test_decoder(assert_causal):
    assert_causal(model, inputs)

With `pytest --erlangen-report DIR` the page of every audit that fails a test is saved as DIR/<test>.html, and
the failure says where. The plugin imports torch only when a test asks for one of the assertions.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

LONGEST = 120
"""Characters of a page's name; longer names of tests are cut, and told apart by a digest."""
_PAGES = pytest.StashKey[dict[str, str]]()
"""name of a page -> the test it is about"""


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--erlangen-report DIR`."""
    parser.getgroup("erlangen").addoption(
        "--erlangen-report",
        metavar="DIR",
        default=None,
        help="save the page of every audit that fails a test as DIR/<test>.html",
    )


# First of all wrappers, so that it sees the outcome after expected failures were sorted out.
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Save the page of an audit that failed this test, if that was asked for."""
    result = yield
    folder = item.config.getoption("erlangen_report", None)
    if folder and call.excinfo is not None and result.failed:
        report = _report_of(call.excinfo.value)
        if report is not None:
            # A teardown may fail after its test did.
            test = item.nodeid if call.when == "call" else f"{item.nodeid}-{call.when}"
            result.sections.append(("erlangen", _saved(report, Path(folder), test, item.config)))
    return result


def _saved(report: Any, folder: Path, test: str, config: pytest.Config) -> str:
    """Save a page and say where it is; a page that cannot be written does not hide the failure itself."""
    path = folder / page_name(test)
    used = config.stash.setdefault(_PAGES, {})
    if used.setdefault(path.name, test) != test:
        path = path.with_name(f"{path.stem}-{_digest(test)}.html")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        report.save(path)
    except Exception as error:
        return f"the page of this audit could not be saved as {path}: {type(error).__name__}: {error}"
    return f"the page of this audit: {path}"


def page_name(test: str) -> str:
    """The name of the page of a test: what no file name may hold becomes an underscore.

    >>> page_name("tests/test_model.py::test_decoder[gpt2-8]")
    'tests_test_model.py_test_decoder_gpt2-8.html'
    """
    name = re.sub(r"[^\w.-]+", "_", test, flags=re.ASCII).strip("_.")
    return (name if 0 < len(name) <= LONGEST else f"{name[:LONGEST]}-{_digest(test)}") + ".html"


def _digest(test: str) -> str:
    return hashlib.sha256(test.encode()).hexdigest()[:8]


def _report_of(error: BaseException) -> Any:
    """The report that an exception carries, or one that led to it, or one of a group."""
    waiting, seen = [error], set[int]()
    while waiting:
        one = waiting.pop(0)
        if id(one) in seen:
            continue
        seen.add(id(one))
        report = getattr(one, "report", None)
        if callable(getattr(report, "save", None)):
            return report
        waiting += [next_one for next_one in (one.__cause__, one.__context__) if next_one is not None]
        waiting += list(getattr(one, "exceptions", ()))
    return None


def _fixture(name: str) -> Any:
    """An assertion as a fixture; its module is imported when a test asks for it."""

    @pytest.fixture(name=name)
    def assertion() -> Callable[..., Any]:
        from erlangen import testing

        return getattr(testing, name)

    assertion.__doc__ = f"`erlangen.testing.{name}`."
    return assertion


assert_relation = _fixture("assert_relation")
assert_causal = _fixture("assert_causal")
assert_no_padding_leak = _fixture("assert_no_padding_leak")
assert_same_relation = _fixture("assert_same_relation")
assert_equivariant = _fixture("assert_equivariant")

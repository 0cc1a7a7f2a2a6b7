"""`--erlangen-report DIR`: the page of a failed audit is saved, and nothing else changes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from erlangen.testing.plugin import page_name

pytest_plugins = ["pytester"]

FAILURES = """
import pytest

class Report:
    def __init__(self, text): self.text = text
    def save(self, path):
        with open(path, "w") as file: file.write(self.text)

def failed(text):
    error = AssertionError("an expectation is violated")
    error.report = Report(text)
    return error

@pytest.mark.parametrize("n", [1, 2])
def test_fails(n):
    raise failed(f"page {n}")

def test_the_cause_carries_it():
    try:
        raise failed("the cause")
    except AssertionError as error:
        raise RuntimeError("wrapped") from error

def test_in_a_group():
    raise ExceptionGroup("several", [ValueError("other"), failed("of a group")])

@pytest.fixture
def broken():
    raise failed("of a fixture")

def test_setup(broken):
    pass

def test_passes():
    with pytest.raises(AssertionError):
        raise failed("expected")

@pytest.mark.xfail(strict=True)
def test_expected_to_fail():
    raise failed("expected")

def test_fails_otherwise():
    error = AssertionError("no page")
    error.report = "a string is no report"
    raise error
"""
# An installed erlangen brings the plugin by itself; naming it once works either way.
PLUGIN = ("-p", "no:erlangen", "-p", "erlangen.testing.plugin", "-p", "no:cacheprovider")


def test_pages_of_failures(pytester):
    pytester.makepyfile(test_it=FAILURES)
    result = pytester.runpytest(*PLUGIN, "--erlangen-report", "pages/of/audits")
    result.assert_outcomes(failed=5, passed=1, errors=1, xfailed=1)
    pages = {page.name: page.read_text() for page in (pytester.path / "pages/of/audits").iterdir()}
    assert pages == {
        "test_it.py_test_fails_1.html": "page 1",
        "test_it.py_test_fails_2.html": "page 2",
        "test_it.py_test_the_cause_carries_it.html": "the cause",
        "test_it.py_test_in_a_group.html": "of a group",
        "test_it.py_test_setup-setup.html": "of a fixture",
    }
    said = "the page of this audit: pages/of/audits/test_it.py_test_fails_1.html"
    result.stdout.fnmatch_lines(["*- erlangen -*", said])


def test_without_the_option_nothing_changes(pytester):
    pytester.makepyfile(test_it=FAILURES)
    result = pytester.runpytest(*PLUGIN)
    result.assert_outcomes(failed=5, passed=1, errors=1, xfailed=1)
    result.stdout.no_fnmatch_line("*the page of this audit*")
    assert not list(pytester.path.glob("**/*.html"))


def test_a_page_that_cannot_be_saved_does_not_hide_the_failure(pytester):
    pytester.makepyfile(test_it=FAILURES)
    (pytester.path / "taken").write_text("a file")
    result = pytester.runpytest(*PLUGIN, "--erlangen-report", "taken", "-k", "test_fails")
    result.assert_outcomes(failed=3)
    result.stdout.fnmatch_lines(["*could not be saved as taken/test_it.py_test_fails_1.html*"])


def test_names_of_pages():
    assert page_name("tests/a b.py::T::test[x/y:z]") == "tests_a_b.py_T_test_x_y_z.html"
    long = [page_name(f"t.py::test[{'x' * 500}{end}]") for end in "ab"]
    assert len(set(long)) == 2
    assert all(len(name) < 150 for name in long)
    assert page_name("é").endswith(".html")
    assert "/" not in page_name("../../etc/passwd")


def test_two_tests_of_one_name_get_two_pages(pytester):
    same = FAILURES.replace("[1, 2]", '["a:b", "a/b"]')
    pytester.makepyfile(test_it=same)
    pytester.runpytest(*PLUGIN, "--erlangen-report", "pages", "-k", "test_fails and not otherwise")
    pages = sorted(page.read_text() for page in (pytester.path / "pages").iterdir())
    assert pages == ["page a/b", "page a:b"]


def test_a_failed_audit_is_saved_as_its_page(pytester):
    pytester.makepyfile(
        test_model="""
        import torch
        from torch import nn

        def test_encoder(assert_causal):
            assert_causal(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), torch.randn(2, 5, 8))
        """
    )
    result = pytester.runpytest(*PLUGIN, "--erlangen-report", "pages")
    result.assert_outcomes(failed=1)
    (page,) = (pytester.path / "pages").iterdir()
    assert "<html" in page.read_text()


COMPARED = """
import torch
import warnings
from torch import nn
from torch.nn import functional as F

class Reader(nn.Module):
    def __init__(self, lookback):
        super().__init__()
        self.attention = Attention(lookback)
    def forward(self, x):
        return self.attention(x)

class Attention(nn.Module):
    def __init__(self, lookback):
        super().__init__()
        self.lookback = lookback
    def forward(self, x):
        mask = torch.ones(len(x[0]), len(x[0]), dtype=torch.bool).tril().triu(-self.lookback)
        return x + F.scaled_dot_product_attention(x, x, x, attn_mask=mask)

X = torch.randn(2, 6, 4)

def test_another(assert_same_relation):
    assert_same_relation(Reader(2), Reader(3), X)

def test_the_same(assert_same_relation):
    assert_same_relation(Reader(2), Reader(2), X)

def test_window(assert_relation):
    import erlangen as er
    assert_relation(Reader(3), X, er.Window(2), feedings=["training"])

def test_causal(assert_causal):
    assert_causal(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), X, feedings=["training"])

def test_padding(assert_no_padding_leak):
    class Careless(nn.Module):
        def forward(self, x, mask):
            return x + F.scaled_dot_product_attention(x, x, x)
    mask = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
    assert_no_padding_leak(Careless(), {"x": X, "mask": mask}, feedings=["training"])
"""


def test_failures_of_all_assertions_as_a_user_sees_them(pytester):
    """Module and edge stand in the first line, no line of erlangen's own code is shown, and each has a
    page."""
    pytester.makepyfile(test_models=COMPARED)
    result = pytester.runpytest(*PLUGIN, "--erlangen-report", "pages")
    result.assert_outcomes(failed=4, passed=1)
    told = [line for line in result.outlines if line.startswith("E       AssertionError:")]
    assert len(told) == 4
    another, window, causal, padding = (line.partition("AssertionError: ")[2] for line in told)
    assert another.startswith(
        "first / second: not the same relations (1 attention call): attention, item 0: "
    )
    assert "edge (3, 0) is read by second, not by first" in another
    assert window.startswith("Reader: an expectation is violated: attention: expected Window(lookback=2)")
    assert "extra edge (3, 0)" in window
    assert "a position reads the future: self_attn, item 0, head 0: query 0 reads key 1" in causal
    assert padding.startswith("Careless: padding is read: ")
    assert "padding key" in padding
    shown = [line for line in result.outlines if "erlangen/testing" in line or "erlangen/audit" in line]
    assert shown == []
    pages = {path.name: path.read_text() for path in (pytester.path / "pages").iterdir()}
    assert sorted(pages) == [
        f"test_models.py_test_{name}.html" for name in ("another", "causal", "padding", "window")
    ]
    page = pages["test_models.py_test_another.html"]
    assert "not the same relations" in page
    assert page.count('<circle cx="0.5" cy="3.5"') == 2  # ringed on the side that reads it
    assert page.count('<figure class="matrix"') == 4  # the call and the flow, on both sides
    assert "http" not in page.replace("http-equiv", "")


@pytest.mark.parametrize("option", [[], ["--erlangen-report", "pages"]])
def test_torch_is_not_imported_for_it(tmp_path, option):
    (tmp_path / "test_light.py").write_text("def test_light():\n    assert False\n")
    code = (
        "import pytest, sys\n"
        f"code = pytest.main(['-q', *{[*PLUGIN, *option]!r}])\n"
        "print('failed', int(code), 'torch', 'torch' in sys.modules)\n"
    )
    command = [sys.executable, "-c", code]
    told = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True)
    assert "failed 1 torch False" in told.stdout
    assert not (tmp_path / "pages").exists()

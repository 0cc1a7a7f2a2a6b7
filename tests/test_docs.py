"""The documentation is true: its Python runs, its commands print what it says, its links lead somewhere."""

import doctest
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from erlangen.cli import app

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def failures(text: str, name: str) -> list[str]:
    """What goes wrong in the Python blocks of a page, which share one namespace from top to bottom."""
    names: dict[str, object] = {"__name__": "__main__"}
    told: list[str] = []
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    for match in BLOCK.finditer(text):
        language, block = match.groups()
        line = text[: match.start()].count("\n") + 1
        if language != "python":
            continue
        if ">>>" in block:
            test = doctest.DocTestParser().get_doctest(block, names, name, name, line)
            runner.run(test, out=told.append, clear_globs=False)
            names = test.globs
        else:
            exec(compile(block, f"{name}:{line}", "exec"), names)
    return told


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_the_python_of_every_page_runs(page):
    assert failures(page.read_text(encoding="utf-8"), named(page)) == []


def test_a_wrong_page_is_noticed():
    assert failures("```python\n>>> 1 + 1\n3\n\n```", "wrong.md")
    with pytest.raises(ZeroDivisionError):
        failures("```python\n1 / 0\n```", "wrong.md")


def test_blocks_of_a_page_share_their_names():
    assert failures("```python\n>>> a = 1\n\n```\n\n```python\n>>> a\n1\n\n```", "right.md") == []


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_printed_command_lines_print_what_the_page_says(page):
    for _, block in BLOCK.findall(page.read_text(encoding="utf-8")):
        if not block.startswith("$ erlangen"):
            continue
        command, *expected = block.rstrip("\n").split("\n")
        result = CliRunner().invoke(app, shlex.split(command)[2:])
        printed = result.output.rstrip("\n").split("\n")
        if expected[-1] == "...":
            expected = expected[:-1]
            printed = printed[: len(expected)]
        assert printed == expected


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"], ids=named)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        if not target.startswith("https://"):
            assert (page.parent / target).exists(), target


def test_the_readme_shows_what_the_command_prints():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    command = re.search(r"^erlangen show (.*--n 16)$", readme, re.MULTILINE)
    assert command is not None
    result = CliRunner().invoke(app, ["show", *shlex.split(command.group(1))])
    assert f"```text\n{result.stdout}```" in readme

"""The command line: what it prints, what it writes, what it refuses."""

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from erlangen.cli import app
from erlangen.paper import demo

PARTS = {"relation", "queries", "keys", "edges", "density", "empty_queries"}


def run(*arguments):
    return CliRunner().invoke(app, list(arguments), prog_name="erlangen")


def refused(*arguments):
    """The message of a run that must be refused: exit code 2, standard error only, no traceback."""
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    return result.stderr


def test_show_draws_in_the_terminal():
    result = run("show", "Causal() & Window(lookback=1, lookahead=3)", "--n", "3")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "Window(lookback=1) on 3 queries x 3 keys",
        "edges 5 of 9, density 0.5556, empty rows none",
        "     key j (read)",
        "     0 1 2",
        "  0  ■ · ·",
        "  1  ■ ■ ·",
        "  2  · ■ ■",
    ]


def test_show_names_the_empty_rows():
    assert "empty rows 3 (queries 0, 1, 2)" in run("show", "Bipartite(encoder=3, decoder=4)").stdout
    assert "empty rows 20\n" in run("show", "Empty()", "--n", "20").stdout


def test_show_binds_queries_and_keys():
    told = json.loads(run("show", "Causal()", "--n", "2", "--keys", "5", "--json").stdout)
    assert told == {
        "relation": "Causal()",
        "queries": 2,
        "keys": 5,
        "edges": 9,
        "density": 0.9,
        "empty_queries": [],
    }


def test_json_is_one_object_and_for_families_a_list():
    told = json.loads(run("show", "Bipartite(2, 1)", "--json").stdout)
    assert set(told) == PARTS
    assert told["empty_queries"] == [0, 1]
    heads = json.loads(run("show", "PerHead([Causal(), Full()])", "--n", "3", "--json").stdout)
    assert [head["edges"] for head in heads] == [6, 9]
    assert all(set(head) == PARTS for head in heads)
    assert isinstance(json.loads(run("show", "PerHead([Causal()])", "--n", "3", "--json").stdout), list)


def test_show_writes_pictures(tmp_path):
    for name in ("a.png", "b.svg"):
        result = run("show", "Causal()", "--n", "5", "--out", str(tmp_path / name))
        assert result.exit_code == 0
        assert result.stdout.endswith(f"wrote {tmp_path / name}\n")
        assert (tmp_path / name).stat().st_size > 1000


def test_json_stays_json_beside_a_picture(tmp_path):
    result = run("show", "Causal()", "--n", "5", "--json", "--out", str(tmp_path / "a.png"))
    assert json.loads(result.stdout)["edges"] == 15
    assert "wrote" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["Causl()", "--n", "3"], "did you mean Causal?\n  Causl()\n  ^"),
        (["Causal()"], "say how many positions, --n N"),
        (["Window(-1)", "--n", "3"], "must be an integer >= 0, got -1"),
        (["Causal()", "--n", "-3"], "got -3"),
        (["Causal()", "--n", "three"], "--n"),
        (["Causal()", "--n", "99999999999999"], "beyond the largest size"),
        (["Bipartite(3, 4)", "--n", "5"], "7 joint positions"),
        (["Nearest(2)", "--n", "5"], "depends on the data"),
        (["Dilated(1)", "--n", "1000000"], "choose smaller sizes"),
        (["Causal()", "--n", "3", "--out", "a.gif"], ".png or .svg"),
        (["Causal()", "--n", "3", "--out", "no/such/directory/a.png"], "does not exist"),
        (["Causal()", "--n", "0", "--out", "a.png"], "no pairs to draw"),
        (["Causal()", "--n", "3", "--colour"], "No such option"),
        ([], "EXPRESSION"),
    ],
)
def test_show_refuses(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if "no pairs" in message:  # the numbers are printed before the picture is tried
        result = run("show", *arguments)
        assert result.exit_code == 2
        assert message in result.stderr
    else:
        assert message in refused("show", *arguments)
    assert list(tmp_path.iterdir()) == []


def test_a_picture_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "a.png").mkdir()
    result = run("show", "Causal()", "--n", "3", "--out", str(tmp_path / "a.png"))
    assert result.exit_code == 2
    assert "a.png" in result.stderr
    assert "Traceback" not in result.stderr


def test_unknown_commands_are_refused():
    assert "No such command" in refused("shwo")


@pytest.mark.parametrize("command", [[], ["show"], ["demo"]])
def test_help_everywhere(command):
    result = run(*command, "--help")
    assert result.exit_code == 0
    assert "Usage: erlangen" in result.stdout
    assert "erlangen show" in result.stdout or "erlangen demo" in result.stdout


def test_the_examples_of_the_help_run(tmp_path, monkeypatch):
    import shlex

    monkeypatch.chdir(tmp_path)
    examples = [
        line.strip()
        for line in run("show", "--help").stdout.splitlines()
        if line.startswith("    erlangen show")
    ]
    assert len(examples) == 7
    for example in examples:
        assert run(*shlex.split(example)[1:]).exit_code == 0, example


def test_demo_writes_its_figures_and_says_where(tmp_path):
    result = run("demo", "--out", str(tmp_path / "tour"))
    assert result.exit_code == 0
    for number in (1, 2, 3, 4):
        for ending in ("png", "svg"):
            assert (tmp_path / "tour" / f"figure{number}.{ending}").stat().st_size > 1000
    assert f"The output lies in {tmp_path / 'tour'}" in result.stdout
    assert "Try next:" in result.stdout


def test_demo_refuses_a_file_as_directory(tmp_path):
    (tmp_path / "taken").write_text("")
    assert "taken" in refused("demo", "--out", str(tmp_path / "taken"))


def test_every_chapter_is_listed():
    from pathlib import Path

    modules = {path.stem for path in Path(demo.__file__).parent.glob("*.py")} - {"__init__"}
    assert {chapter.__module__.rpartition(".")[2] for _, chapter in demo.CHAPTERS} == modules
    for _, chapter in demo.CHAPTERS:
        assert callable(chapter)


def test_show_starts_without_the_heavy_libraries():
    program = (
        "import sys; from erlangen.cli import app\n"
        "try: app(['show', 'Causal()', '--n', '3'])\n"
        "except SystemExit as end: assert not end.code\n"
        "heavy = {'torch', 'matplotlib', 'rich', 'pydantic', 'jinja2', 'numpy.ma'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    assert "■ ■ ■" in finished.stdout


def test_the_module_runs_as_a_program_and_a_closed_pipe_is_no_traceback():
    finished = subprocess.run(
        f'"{sys.executable}" -m erlangen show "Causal()" --n 30 | head -n 1',
        shell=True,
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.stdout == "Causal() on 30 queries x 30 keys\n"
    assert "Traceback" not in finished.stderr


def test_a_terminal_without_unicode_gets_ascii():
    finished = subprocess.run(
        [sys.executable, "-m", "erlangen", "show", "Causal()", "--n", "3"],
        capture_output=True,
        check=True,
        env={**__import__("os").environ, "PYTHONIOENCODING": "ascii"},
    )
    assert finished.stdout.endswith(b"  2  # # #\n")

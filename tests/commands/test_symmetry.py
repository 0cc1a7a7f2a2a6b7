"""`erlangen symmetry` as a user calls it."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from erlangen.commands import symmetry as command

app = typer.Typer()
app.command(help=command.HELP)(command.symmetry)
app.callback()(lambda: None)


def run(*arguments: str):
    return CliRunner().invoke(app, ["symmetry", *arguments])


def test_text():
    result = run("Ring(lookback=1, lookahead=1)", "--n", "8")
    assert result.exit_code == 0
    assert "D8, order 16 (symbolic)" in result.output
    assert "(0 1 2 3 4 5 6 7)" in result.output
    assert "1 orbit of size 8" in result.output


def test_json():
    told = json.loads(run("Bipartite(encoder=3, decoder=4)", "--json").output)
    assert (told["name"], told["order"], told["evidence"], told["exact"]) == (
        "S3 x S4",
        144,
        "symbolic",
        True,
    )
    assert told["orbits"] == [[0, 1, 2], [3, 4, 5, 6]]
    assert all(sorted(generator) == list(range(7)) for generator in told["generators"])
    apart = json.loads(run("Full()", "--n", "2", "--keys", "3", "--apart", "--json").output)
    assert (apart["name"], apart["sides"]) == ("S2 x S3", [2, 3])


def test_a_budget_of_nothing_is_honest():
    side = 8
    cells = np.arange(side * side)
    a, b = np.divmod(cells, side)
    edges = [
        (int(i), int(j))
        for i in cells
        for j in cells
        if a[i] == a[j] or b[i] == b[j] or (a ^ b)[i] == (a ^ b)[j]
    ]
    told = json.loads(run(f"Graph({edges}, nodes=64)", "--budget", "0", "--json").output)
    assert told["exact"] is False
    assert told["name"].startswith("order at least")


def test_files(tmp_path):
    np.save(tmp_path / "mask.npy", np.tril(np.ones((5, 5), bool)))
    assert "1, order 1" in run(str(tmp_path / "mask.npy")).output
    (tmp_path / "cycle.edges").write_text("0 1\n1 2\n2 0\n")
    assert "C3, order 3" in run(str(tmp_path / "cycle.edges"), "--n", "3").output
    (tmp_path / "bad.csv").write_text("1,0\n1\n")
    result = run(str(tmp_path / "bad.csv"))
    assert result.exit_code == 2
    assert "line 2" in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["Causal()"], "no size of its own"),
        (["Causl()", "--n", "3"], "Causl"),
        (["Causal()", "--n", "3", "--keys", "4"], "joint=False"),
        (["missing.npy"], "no such file"),
        (["Causal()", "--n", "3", "--budget", "-1"], "seconds"),
    ],
)
def test_bad_usage(arguments, message):
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in result.output
    assert "Traceback" not in result.output


def test_a_closed_pipe_is_no_answer():
    """Exit code 1 means that something is not verified, or violated: a reader that left is neither."""
    code = (
        "import sys; from erlangen.commands.exit_codes import reports_errors\n"
        "import typer\n"
        "@reports_errors\n"
        "def command() -> None:\n"
        "    for _ in range(10**6): print('line', flush=True)\n"
        "app = typer.Typer(); app.command()(command); app()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141

"""`erlangen train` as a user calls it: what it leaves, how it is interrupted and resumed, what it refuses."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from erlangen.cli import app
from erlangen.commands import train as command
from erlangen.training import load_gpt, sample

TEXT = "To be, or not to be: that is the question.\nWhether 'tis nobler in the mind to suffer\n" * 12
SMALL = ["--context", "8", "--layers", "1", "--heads", "2", "--width", "8", "--batch", "2"]


@pytest.fixture
def text(tmp_path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


def run(*arguments: object):
    return CliRunner().invoke(app, ["train", *map(str, arguments)])


def history(out: Path) -> dict:
    return json.loads((out / "history.json").read_text())


def test_gpt_leaves_a_model_that_loads_and_speaks(text, tmp_path):
    out = tmp_path / "out"
    result = run("gpt", "--text", text, "--out", out, "--steps", 20, *SMALL)
    assert result.exit_code == 0, result.output
    assert "validation loss" in result.stdout
    assert "each predicted once" in result.stdout
    assert "gpt step 20/20" in result.stderr
    names = {
        "checkpoint.safetensors",
        "history.json",
        "loss.png",
        "model.safetensors",
        "samples.txt",
        "summary.json",
    }
    assert {path.name for path in out.iterdir()} == names
    assert (out / "loss.png").read_bytes().startswith(b"\x89PNG")
    model, vocabulary = load_gpt(out / "model.safetensors")
    assert len(sample(model, vocabulary, "To be", 20)) == 25
    written = (out / "samples.txt").read_text()
    assert len(written) > 1000
    assert set(written) <= set(TEXT) | {"-", "\n"}


def test_json_is_the_summary_and_nothing_else(text, tmp_path):
    result = run("gpt", "--text", text, "--out", tmp_path / "out", "--steps", 3, *SMALL, "--json")
    summary = json.loads(result.stdout)
    assert summary == json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["validation_loss"] == history(tmp_path / "out")["evaluations"][-1]["validation"]
    assert summary["training_characters"] + summary["validation_characters"] + 1 == len(TEXT)
    assert all(Path(path).is_file() for path in summary["files"].values())


def test_the_same_seed_is_the_same_run_and_another_is_not(text, tmp_path):
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        run("gpt", "--text", text, "--out", tmp_path / name, "--steps", 5, "--seed", seed, *SMALL)
    a, b, c = (history(tmp_path / name) for name in "abc")
    assert a == b
    assert a["losses"] != c["losses"]


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_says_how_to_go_on_and_the_curve_is_the_same(text, tmp_path, sent, code):
    steps = 1500
    options = ["--text", str(text), "--steps", str(steps), "--dropout", "0.1", *SMALL]
    out = tmp_path / "interrupted run"  # a name that a shell must be given in quotes
    arguments = [sys.executable, "-m", "erlangen", "train", "gpt", *options, "--out", str(out)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stderr is not None
    first = process.stderr.readline()
    process.send_signal(sent)
    rest = process.stderr.read()
    assert "gpt step 150/1500" in first
    assert process.wait(60) == code, rest
    assert "interrupted after" in rest
    assert not (out / "model.safetensors").exists()
    command_line = shlex.split(rest.rpartition("to go on: ")[2].strip())
    assert command_line[:3] == ["erlangen", "train", "gpt"]
    assert command_line[-1] == "--resume"
    result = CliRunner().invoke(app, command_line[1:])
    assert result.exit_code == 0, result.output
    if sent == signal.SIGINT:
        script = [
            sys.executable,
            "-m",
            "erlangen",
            "train",
            "gpt",
            *options,
            "--out",
            str(tmp_path / "whole"),
        ]
        subprocess.run(script, check=True, capture_output=True, env=environment)
        assert history(out) == history(tmp_path / "whole")


def test_a_finished_run_resumed_says_the_same_again(text, tmp_path):
    arguments = ("gpt", "--text", text, "--out", tmp_path / "out", "--steps", 3, *SMALL, "--json")
    first, second = run(*arguments), run(*arguments, "--resume")
    assert json.loads(first.stdout) == json.loads(second.stdout)


def refused(*arguments: object) -> str:
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    assert result.stdout == ""
    return result.stderr


def test_gpt_refuses_bad_input_before_any_work(text, tmp_path):
    out = tmp_path / "out"
    empty = tmp_path / "empty.txt"
    empty.touch()
    assert "there is no file" in refused("gpt", "--text", tmp_path / "none.txt", "--out", out)
    assert "https://" in refused("gpt", "--text", empty, "--out", out)
    assert "is empty" in refused("gpt", "--text", empty, "--out", out)
    assert "smaller context" in refused("gpt", "--text", text, "--out", out, "--context", 128)
    assert "num_heads" in refused("gpt", "--text", text, "--out", out, "--context", 8, "--width", 10)
    assert "no checkpoint in" in refused("gpt", "--text", text, "--out", out, "--resume", *SMALL)
    assert "--steps" in refused("gpt", "--text", text, "--out", out, "--steps", 0)
    assert "peak > 0" in refused("gpt", "--text", text, "--out", out, "--rate", 0, *SMALL)
    assert not out.exists()


def test_gpt_refuses_the_checkpoint_of_another_run(text, tmp_path):
    out = tmp_path / "out"
    arguments = ("gpt", "--text", text, "--out", out, "--steps", 2, *SMALL)
    assert run(*arguments).exit_code == 0
    assert "add --resume" in refused(*arguments)
    assert "width is 8 there and 16 here" in refused(*arguments, "--width", 16, "--resume")
    text.write_text(TEXT + "!")
    assert "text is" in refused(*arguments, "--resume")
    text.write_text(TEXT)
    (out / "checkpoint.safetensors").write_bytes(b"broken")
    assert "is not a checkpoint" in refused(*arguments, "--resume")


def test_vit_reads_digits(tmp_path):
    out = tmp_path / "out"
    sizes = [*SMALL[2:], "--width", "16", "--batch", "32", "--steps", "60", "--rate", "0.005"]
    result = run("vit", "--out", out, *sizes, "--json")
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    assert summary["test_accuracy"] > 0.3  # 60 steps of a tiny model; a guess is right once in ten
    assert summary["training_images"] + summary["test_images"] == 1797
    assert "test accuracy" in run("vit", "--out", out, *sizes, "--resume").stdout
    assert "patch" in refused("vit", "--out", tmp_path / "b", "--patch", 3)


def test_help_shows_an_example_for_every_model():
    assert "--resume" in run("--help").stdout
    for name in ("gpt", "vit"):
        assert f"  erlangen train {name}" in run(name, "--help").stdout


def test_how_to_go_on_names_the_processes():
    import typer

    from erlangen.training import Processes

    told = []
    inner = typer.Typer()

    @inner.command("gpt")
    def gpt(context: typer.Context, text: str = "", steps: int = 3, loud: bool = False, resume: bool = False):
        told.append(command.resuming(context, Processes(0, 2)))

    @inner.callback()
    def group():
        pass

    CliRunner().invoke(inner, ["gpt", "--text", "a b", "--loud", "--resume"])
    assert told == ["torchrun --nproc-per-node 2 -m erlangen gpt --text 'a b' --loud --resume"]

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
import torch
import typer
from typer.testing import CliRunner

from erlangen.cli import app
from erlangen.commands import train as command
from erlangen.training import Processes, load_gpt, planetoid, sample
from erlangen.training.gat import example

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
    assert len(sample(model, vocabulary, "To be", 20)[0]) == 25
    written = (out / "samples.txt").read_text()
    assert len(written) > 1000
    assert set(written) <= set(TEXT) | {"-", "\n"}


def test_json_is_the_summary_and_a_finished_run_resumed_says_it_again(text, tmp_path):
    arguments = ("gpt", "--text", text, "--out", tmp_path / "out", "--steps", 3, *SMALL, "--json")
    result = run(*arguments)
    assert run(*arguments, "--resume").stdout == result.stdout
    summary = json.loads(result.stdout)
    assert summary == json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["validation_loss"] == history(tmp_path / "out")["evaluations"][-1]["validation"]
    assert summary["training_characters"] + summary["validation_characters"] + 1 == len(TEXT)
    assert all(Path(path).is_file() for path in summary["files"].values())


def test_another_seed_is_another_run(text, tmp_path):
    for name, seed in (("a", 0), ("b", 1)):
        run("gpt", "--text", text, "--out", tmp_path / name, "--steps", 3, "--seed", seed, *SMALL)
    assert history(tmp_path / "a")["losses"] != history(tmp_path / "b")["losses"]


def interrupted(arguments: list[str], sent: signal.Signals) -> tuple[int, str]:
    """Send a signal to the command once it has told of a step; its exit code and what it says after that."""
    threads = str(torch.get_num_threads())  # PyTorch's sums depend on it
    environment = {**os.environ, "OMP_NUM_THREADS": threads}
    with subprocess.Popen(
        [sys.executable, "-m", "erlangen", *arguments], stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stderr is not None
        first = process.stderr.readline()
        process.send_signal(sent)
        told = process.stderr.read()
    assert "step" in first
    return process.returncode, told


def test_ctrl_c_saves_and_the_resumed_run_is_the_whole_run_to_the_last_bit(text, tmp_path):
    options = ["--text", str(text), "--steps", "400", "--dropout", "0.1", *SMALL]
    out = tmp_path / "interrupted run"  # a name that a shell must be given in quotes
    code, told = interrupted(["train", "gpt", *options, "--out", str(out)], signal.SIGINT)
    assert code == 130, told
    assert "interrupted after" in told
    assert not (out / "model.safetensors").exists()
    command_line = shlex.split(told.rpartition("to go on: ")[2].strip())
    assert command_line[:3] == ["erlangen", "train", "gpt"]
    assert command_line[-1] == "--resume"
    result = CliRunner().invoke(app, command_line[1:])
    assert result.exit_code == 0, result.output
    run("gpt", *options, "--out", tmp_path / "whole")
    assert history(out) == history(tmp_path / "whole")


def test_sigterm_saves_too(text, tmp_path):
    arguments = ["train", "gpt", "--text", str(text), "--steps", "1000", "--out", str(tmp_path), *SMALL]
    code, told = interrupted(arguments, signal.SIGTERM)
    assert code == 143, told
    assert "to go on: erlangen train gpt" in told
    assert (tmp_path / "checkpoint.safetensors").is_file()


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
    assert "--rate" in refused("gpt", "--text", text, "--out", out, "--rate", 0, *SMALL)
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
    sizes = ["--layers", "2", "--width", "32", "--steps", "80"]
    result = run("vit", "--out", out, *sizes, "--json")
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    assert summary["test_accuracy"] > 0.3  # a guess is right once in ten
    assert summary["training_images"] + summary["test_images"] == 1797
    assert "test accuracy" in run("vit", "--out", out, *sizes, "--resume").stdout
    assert "patch" in refused("vit", "--out", tmp_path / "b", "--patch", 3)


@pytest.fixture
def small_citations(monkeypatch):
    monkeypatch.setattr(planetoid, "load", lambda dataset, data: example())


@pytest.mark.usefixtures("small_citations")
def test_gat_trains_once_per_seed_and_goes_on_where_it_was(tmp_path):
    arguments = ("gat", "--data", tmp_path, "--steps", 5, "--json")
    first = run(*arguments, "--out", tmp_path / "a", "--seeds", 2, "--seed", 3)
    assert first.exit_code == 0, first.output
    summary = json.loads(first.stdout)
    values = summary["test_accuracy_by_seed"]
    assert summary["seeds"] == [3, 4]
    assert summary["test_accuracy"] == pytest.approx(sum(values) / 2)
    assert "gat, seed 4 step 5/5" in first.stderr
    assert (tmp_path / "a" / "seed-4" / "loss.png").is_file()
    assert history(tmp_path / "a" / "seed-3")["losses"] != history(tmp_path / "a" / "seed-4")["losses"]

    run(*arguments, "--out", tmp_path / "b", "--seeds", 1, "--seed", 3)
    run(*arguments, "--out", tmp_path / "b", "--seeds", 2, "--seed", 3, "--resume")
    for seed in (3, 4):
        assert history(tmp_path / "a" / f"seed-{seed}") == history(tmp_path / "b" / f"seed-{seed}")
    assert "add --resume" in refused(*arguments, "--out", tmp_path / "b")


def test_gat_refuses_bad_data(tmp_path, monkeypatch):
    out = tmp_path / "out"
    assert "Cora, Citeseer, PubMed" in refused("gat", "--data", tmp_path, "--dataset", "Korea", "--out", out)
    (tmp_path / "ind.cora.x").write_bytes(b"not a pickle")
    told = refused("gat", "--data", tmp_path, "--out", out)
    assert "ind.cora.graph" in told
    assert "https://" in told
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert "one process" in refused("gat", "--data", tmp_path, "--out", out)
    assert not out.exists()


def test_help_shows_an_example_for_every_model():
    assert "--resume" in run("--help").stdout
    for name in ("gpt", "gat", "vit"):
        assert f"  erlangen train {name}" in run(name, "--help").stdout


def test_how_to_go_on_names_the_processes():
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

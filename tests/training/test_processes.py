"""Two processes on gloo, started by torchrun: the same numbers as one process with the doubled batch."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from erlangen.training import Corpus, GPTRecipe, gpt_run, train

TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
TEXT = "to be or not to be, " * 20


def launch(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [*TORCHRUN, *arguments], capture_output=True, text=True, env=environment, check=False, timeout=240
    )


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    out = tmp_path_factory.mktemp("two")
    result = launch(str(Path(__file__).with_name("two_processes.py")), str(out))
    assert result.returncode == 0, result.stderr
    return [json.loads((out / f"{rank}.json").read_text()) for rank in (0, 1)]


def one_process(**changes) -> list[float]:
    recipe = GPTRecipe(**{"context": 8, "layers": 1, "heads": 2, "width": 8, "steps": 12, **changes})
    return train(gpt_run(Corpus.of(TEXT, context=8), recipe)).losses


def test_two_processes_have_the_losses_of_one_with_the_doubled_batch(told):
    assert told[0]["whole"] == told[1]["whole"]
    np.testing.assert_allclose(told[0]["whole"], one_process(batch=6), rtol=0, atol=1e-5)
    # The comparison can fail: half the batch is another curve.
    assert np.abs(np.array(told[0]["whole"]) - one_process(batch=3)).max() > 1e-2


def test_a_signal_in_one_process_stops_both_at_the_same_step_and_both_resume(told):
    assert [each["steps"] for each in told] == [6, 6]
    assert told[0]["resumed"] == told[0]["whole"]
    assert told[1]["resumed"] == told[0]["whole"]


def test_the_command_under_torchrun(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text(TEXT)
    sizes = shlex.split("--context 8 --layers 1 --heads 2 --width 8 --batch 3 --steps 12")
    result = launch(
        "-m", "erlangen", "train", "gpt", "--text", str(text), "--out", str(tmp_path), *sizes, "--json"
    )
    assert result.returncode == 0, result.stderr
    summary = json.loads(result.stdout)  # one process speaks
    assert summary["steps"] == 12
    assert result.stderr.count("gpt step 12/12") == 1
    losses = json.loads((tmp_path / "history.json").read_text())["losses"]
    np.testing.assert_allclose(losses, one_process(batch=6), rtol=0, atol=1e-5)

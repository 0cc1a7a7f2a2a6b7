"""Started twice by torchrun: a whole run, and the same run interrupted in the second process and resumed."""

import json
import signal
import sys
from pathlib import Path

from erlangen.training import Corpus, GPTRecipe, Interrupted, gpt_run, joined, train


def main(out: Path) -> None:
    recipe = GPTRecipe(context=8, layers=1, heads=2, width=8, batch=3, steps=12)
    corpus = Corpus.of("to be or not to be, " * 20, context=8)
    with joined() as processes:
        assert processes.count == 2

        def interrupt(history):
            if history.step == 5 and processes.rank == 1:
                signal.raise_signal(signal.SIGTERM)

        whole = train(gpt_run(corpus, recipe, processes), out / "whole.safetensors")
        steps = None
        try:
            train(gpt_run(corpus, recipe, processes), out / "part.safetensors", report=interrupt)
        except Interrupted as interrupted:
            steps = interrupted.history.step
        resumed = train(gpt_run(corpus, recipe, processes), out / "part.safetensors", resume=True)
        told = {"whole": whole.losses, "steps": steps, "resumed": resumed.losses}
        (out / f"{processes.rank}.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

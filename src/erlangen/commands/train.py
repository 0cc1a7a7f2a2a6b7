"""`erlangen train`: train a model of the paper; Ctrl-C saves, `--resume` goes on."""

from __future__ import annotations

import json
import os
import shlex
import signal
from collections.abc import Callable
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from erlangen.commands.exit_codes import reports_errors
from erlangen.commands.progress import Bar, training_bar
from erlangen.errors import DataError
from erlangen.training.recipes import GATRecipe, GPTRecipe, ViTRecipe

if TYPE_CHECKING:
    from erlangen.training.processes import Processes

HELP = """Train a model of the paper on data of your own, or on the usual ones.

Ctrl-C saves after the step being taken; the same command with --resume goes on from there and takes the
very steps that the uninterrupted run would have taken.
"""

GPT_HELP = """Train a GPT to continue a text, character by character.

The first nine tenths of the text train, the last tenth validates. The folder OUT gets the model, samples, the
loss curve (PNG and JSON), a summary, and the checkpoint.

\b
Examples:
  erlangen train gpt --text tinyshakespeare.txt
  erlangen train gpt --text tinyshakespeare.txt --out runs/small --layers 2 --steps 500
  erlangen train gpt --text tinyshakespeare.txt --out runs/small --layers 2 --steps 500 --resume
  torchrun --nproc-per-node 2 -m erlangen train gpt --text tinyshakespeare.txt --batch 16
"""

GAT_HELP = """Train a graph attention network to tell the subjects of papers from words and citations.

DATA holds Planetoid's raw files (ind.cora.x and so on), itself or in DATASET/raw; if it has none, PyG
downloads them there. The split is the standard one; the weights of the lowest validation loss are kept, and
the test nodes are measured once, at the end. OUT gets a folder per seed, with model and loss curve, and a
summary.

\b
Examples:
  erlangen train gat --data planetoid --dataset Cora
  erlangen train gat --data planetoid --dataset Citeseer --seeds 1 --out runs/citeseer --json
"""

VIT_HELP = """Train a vision transformer to read scikit-learn's handwritten digits (8 x 8 pixels).

Three quarters of the 1,797 images train, the rest tests. The folder OUT gets the model, the loss curve (PNG
and JSON), a summary, and the checkpoint.

\b
Examples:
  erlangen train vit
  erlangen train vit --seed 1 --out runs/vit-1 --json
"""


def _positive(value: float) -> float:
    if not (value > 0 and isfinite(value)):
        raise typer.BadParameter(f"{value} is no finite number above 0")
    return value


Out = Annotated[Path, typer.Option("--out", help="Folder for all that is written; made if it is not there.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint in the folder.")]
Steps = Annotated[int, typer.Option("--steps", min=1, help="How many steps to take.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Determines every random choice.")]
Batch = Annotated[int, typer.Option("--batch", min=1, help="Examples per step, in each process.")]
Rate = Annotated[float, typer.Option("--rate", callback=_positive, help="The highest learning rate.")]
Layers = Annotated[int, typer.Option("--layers", min=1, help="How many layers.")]
Heads = Annotated[int, typer.Option("--heads", min=1, help="Heads per layer.")]
Width = Annotated[int, typer.Option("--width", min=1, help="The width of the model.")]
Dropout = Annotated[float, typer.Option("--dropout", min=0, max=0.99, help="The share dropped in training.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")]

GPT, VIT, GAT = GPTRecipe(), ViTRecipe(), GATRecipe()


app = typer.Typer(help=HELP, no_args_is_help=True, rich_markup_mode=None, add_completion=False)


@app.command(help=GPT_HELP)
@reports_errors
def gpt(
    context: typer.Context,
    text: Annotated[Path, typer.Option("--text", metavar="FILE", help="The text, in UTF-8.")],
    out: Out = Path("erlangen-gpt"),
    resume: Resume = False,
    steps: Steps = GPT.steps,
    seed: Seed = GPT.seed,
    window: Annotated[
        int, typer.Option("--context", min=1, help="How many characters the model reads at most.")
    ] = GPT.context,
    layers: Layers = GPT.layers,
    heads: Heads = GPT.heads,
    width: Width = GPT.width,
    dropout: Dropout = GPT.dropout,
    batch: Batch = GPT.batch,
    rate: Rate = GPT.rate,
    as_json: AsJson = False,
) -> None:
    """Read the text, train, print the summary."""
    from erlangen.training.gpt import train_gpt
    from erlangen.training.text import read_text

    recipe = GPTRecipe(window, layers, heads, width, dropout, batch, rate, steps, seed)
    _check(out, resume)
    written = read_text(text)
    summary = _trained(
        context, out, steps, lambda bar: train_gpt(written, out, recipe, resume=resume, report=bar)
    )
    _print(
        summary,
        as_json,
        "validation loss {validation_loss:.4f} nats per character, over the last tenth of the text "
        "({validation_characters:,} characters, each predicted once)",
    )


@app.command(help=GAT_HELP)
@reports_errors
def gat(
    context: typer.Context,
    data: Annotated[Path, typer.Option("--data", metavar="DIR", help="Folder with Planetoid's files.")],
    dataset: Annotated[str, typer.Option("--dataset", help="Cora, Citeseer or PubMed.")] = "Cora",
    seeds: Annotated[
        int, typer.Option("--seeds", min=1, help="How many runs, with SEED, SEED + 1, ...")
    ] = 10,
    out: Out = Path("erlangen-gat"),
    resume: Resume = False,
    steps: Annotated[
        int, typer.Option("--steps", min=1, help="How many steps to take at most, per run.")
    ] = GAT.steps,
    seed: Seed = GAT.seed,
    as_json: AsJson = False,
) -> None:
    """Read the data, train once per seed, print the summary."""
    from erlangen.training.gat import train_gat
    from erlangen.training.planetoid import load
    from erlangen.training.seeds import over_seeds

    _check(out, resume)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise DataError("every step of train gat takes the whole graph: start one process, without torchrun")
    papers = load(dataset, data)

    def work(bar: Bar) -> dict[str, Any]:
        def one(seed: int, folder: Path, resume: bool) -> dict[str, Any]:
            bar.label = f"gat, seed {seed}"
            recipe = GATRecipe(steps=steps, seed=seed)
            return train_gat(papers, folder, recipe, resume=resume, report=bar)

        return over_seeds(range(seed, seed + seeds), out, one, "test_accuracy", resume=resume)

    _print(
        _trained(context, out, steps, work),
        as_json,
        "{dataset}: test accuracy {test_accuracy:.2%} +- {test_accuracy_std:.2%} "
        "(mean and standard deviation over the seeds; {test_nodes:,} test nodes)",
    )


@app.command(help=VIT_HELP)
@reports_errors
def vit(
    context: typer.Context,
    out: Out = Path("erlangen-vit"),
    resume: Resume = False,
    steps: Steps = VIT.steps,
    seed: Seed = VIT.seed,
    patch: Annotated[
        int, typer.Option("--patch", min=1, help="Pixels along the side of a patch.")
    ] = VIT.patch,
    layers: Layers = VIT.layers,
    heads: Heads = VIT.heads,
    width: Width = VIT.width,
    dropout: Dropout = VIT.dropout,
    batch: Batch = VIT.batch,
    rate: Rate = VIT.rate,
    as_json: AsJson = False,
) -> None:
    """Train, print the summary."""
    from erlangen.training.vit import train_vit

    recipe = ViTRecipe(patch, layers, heads, width, dropout, batch, rate, steps, seed)
    _check(out, resume)
    summary = _trained(context, out, steps, lambda bar: train_vit(out, recipe, resume=resume, report=bar))
    _print(
        summary,
        as_json,
        "test accuracy {test_accuracy:.2%} of {test_images} digits that training did not see",
    )


def _saved(out: Path) -> bool:
    """Whether a run, or that of a seed, has its checkpoint in a folder."""
    from erlangen.training.outcome import CHECKPOINT

    return (out / CHECKPOINT).exists() or any(out.glob(f"seed-*/{CHECKPOINT}"))


def _check(out: Path, resume: bool) -> None:
    """Refuse, before any work, what would end in an error or overwrite another run."""
    if resume and not _saved(out):
        raise DataError(f"--resume: there is no checkpoint in {out}; leave --resume out to begin a run there")
    if _saved(out) and not resume:
        raise DataError(f"{out} has the checkpoint of a run: add --resume to go on, or choose another --out")


def _trained(
    context: typer.Context, out: Path, steps: int, work: Callable[[Bar], dict[str, Any]]
) -> dict[str, Any]:
    """Run under a progress bar, joined with the other processes; say how to go on if interrupted."""
    from erlangen.training.processes import joined
    from erlangen.training.trainer import Interrupted

    with joined() as processes:
        try:
            with training_bar(str(context.info_name), steps, processes.first) as bar:
                return work(bar)
        except (Interrupted, KeyboardInterrupt) as interrupted:
            # Ctrl-C outside the loop, while results are being written, leaves the last checkpoint as it was.
            within = isinstance(interrupted, Interrupted)
            if processes.first:
                typer.echo(str(interrupted) if within else "interrupted", err=True)
                if _saved(out):
                    typer.echo(f"to go on: {resuming(context, processes)}", err=True)
            raise typer.Exit(128 + (interrupted.signal if within else signal.SIGINT)) from None


def resuming(context: typer.Context, processes: Processes) -> str:
    """The command that goes on with an interrupted one: its own options, and --resume."""
    words = ["erlangen", *context.command_path.split()[1:]]
    if processes.count > 1:
        words = ["torchrun", "--nproc-per-node", str(processes.count), "-m", *words]
    for parameter in context.command.params:
        name = str(parameter.name)
        source = context.get_parameter_source(name)
        if source is None or source.name != "COMMANDLINE" or name == "resume":
            continue
        value = context.params[name]
        words += (
            [max(parameter.opts, key=len)] if value is True else [max(parameter.opts, key=len), str(value)]
        )
    return shlex.join([*words, "--resume"])


def _print(summary: dict[str, Any], as_json: bool, result: str) -> None:
    """The summary as JSON or in words; processes other than the first have none and are silent."""
    if not summary:
        return
    if as_json:
        typer.echo(json.dumps(summary))
        return
    typer.echo(result.format(**summary))
    typer.echo("{steps:,} steps in {seconds:,.1f} s, {parameters:,} parameters".format(**summary))
    for name, path in summary["files"].items():
        typer.echo(f"  {name:<12}{path}")

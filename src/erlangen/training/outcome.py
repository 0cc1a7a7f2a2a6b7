"""What a finished run leaves in its folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.nn import functional as F

from erlangen.errors import ParameterError
from erlangen.training.files import replacing, write_json
from erlangen.training.history import Evaluation, History
from erlangen.training.plot import save_plot
from erlangen.training.processes import Processes
from erlangen.training.trainer import Run, train

CHECKPOINT = "checkpoint.safetensors"


def configuration(model: str, recipe: Any, processes: Processes, **more: Any) -> dict[str, Any]:
    """What a checkpoint must agree with: the recipe, and the batch of all processes together.

    >>> from erlangen.training.recipes import GPTRecipe
    >>> configuration("gpt", GPTRecipe(batch=8), Processes(0, 2))["batch"]
    16
    """
    if not is_dataclass(recipe) or isinstance(recipe, type):
        raise ParameterError(f"a recipe is a dataclass, got {recipe!r}")
    settings = asdict(recipe)
    return {"model": model, **settings, "batch": settings["batch"] * processes.count, **more}


def trained(
    run: Run,
    out: Path,
    resume: bool,
    report: Callable[[History], None],
    metadata: dict[str, str] | None = None,
) -> tuple[Any, History]:
    """The trained model, also left as `model.safetensors` in the folder `out` by the first process."""
    out.mkdir(parents=True, exist_ok=True)
    history = train(run, out / CHECKPOINT, resume=resume, report=report)
    model: Any = run.model
    if Processes.current().first:
        with replacing(out / "model.safetensors") as draft:
            model.save(draft, metadata)
    return model, history


def scored(logits: Tensor, labels: Tensor, name: str) -> Evaluation:
    """The cross-entropy, under a name, and the share of the examples that is classified rightly.

    >>> import torch
    >>> scored(torch.eye(2), torch.tensor([0, 0]), "test")["accuracy"]
    0.5
    """
    right = (logits.argmax(-1) == labels).double().mean()
    return {name: F.cross_entropy(logits, labels).item(), "accuracy": right.item()}


def write(
    out: Path, history: History, summary: dict[str, Any], title: str, measured: str | None
) -> dict[str, Any]:
    """Write `history.json`, `loss.png` and `summary.json`; gives the summary, which names all files.

    >>> import tempfile
    >>> out = Path(tempfile.mkdtemp())
    >>> write(out, History([2.0], [], 1.25), {"model": "gpt"}, "title", None)["steps"]
    1
    >>> sorted(file.name for file in out.iterdir())
    ['history.json', 'loss.png', 'summary.json']
    """
    write_json(out / "history.json", {"losses": history.losses, "evaluations": history.evaluations})
    save_plot(history, out / "loss.png", title, measured)
    files = {"model": "model.safetensors", "checkpoint": CHECKPOINT, **summary.get("files", {})}
    files |= {"history": "history.json", "plot": "loss.png", "summary": "summary.json"}
    summary = {
        **summary,
        "steps": history.step,
        "seconds": round(history.seconds, 1),
        "files": {name: str(out / file) for name, file in files.items()},
    }
    write_json(out / "summary.json", summary)
    return summary

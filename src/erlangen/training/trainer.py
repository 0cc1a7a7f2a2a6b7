"""The training loop: one model, one optimizer, any loss; interrupted and resumed, it takes the same steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from erlangen.errors import DataError, ErlangenError, ParameterError
from erlangen.training import checkpoint as checkpoints
from erlangen.training.history import Evaluation, History
from erlangen.training.processes import Processes
from erlangen.training.randomness import STEP, mixed
from erlangen.training.signals import StopWish


@dataclass(frozen=True)
class Verdict:
    """What a rule says of the last evaluation: are these the weights to keep, and is it time to stop?

    >>> Verdict(keep=True)
    Verdict(keep=True, stop=False)
    """

    keep: bool
    stop: bool = False


@dataclass(frozen=True)
class Run:
    """All that determines a training run.

    Step s = 0, 1, ... sets the learning rate to `schedule(s)` and takes one optimizer step on
    `loss(model, batch(s))`, whose gradient is clipped to the norm `clip`. `batch` is a function of the step
    alone, and torch's generator is seeded before each step from `seed` and s: no state is hidden between
    steps, which is why a run can resume exactly. After every `every` steps, and after the last, `evaluate`
    measures the model (in evaluation mode, without gradients), and `rule` judges all evaluations so far.

    With several processes the loss must be a mean over the examples of `batch(s)`, and every process must
    have as many: then the mean of the gradients is the gradient of the mean over all of them.

    A checkpoint is resumed by a run of the same steps, seed, learning rates, clipping, evaluations, optimizer
    and shapes of weights. What else makes a run, its data and its loss, are functions and not compared:
    `config` holds JSON values by name that stand for them, and that a checkpoint must agree with, too.

    >>> model = nn.Linear(1, 1)
    >>> run = Run(
    ...     model,
    ...     torch.optim.SGD(model.parameters(), lr=0.1),
    ...     schedule=lambda step: 0.1,
    ...     batch=lambda step: torch.tensor([[float(step % 3)]]),
    ...     loss=lambda model, x: (model(x) - 2 * x).square().mean(),
    ...     steps=200,
    ... )
    >>> history = train(run)
    >>> history.step, history.losses[-1] < 1e-3
    (200, True)
    """

    model: nn.Module
    optimizer: torch.optim.Optimizer
    schedule: Callable[[int], float]
    batch: Callable[[int], Any]
    loss: Callable[[nn.Module, Any], Tensor]
    steps: int
    seed: int = 0
    evaluate: Callable[[nn.Module], Evaluation] | None = None
    every: int | None = None
    clip: float | None = None
    rule: Callable[[Sequence[Evaluation]], Verdict] | None = None
    config: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.steps < 1 or (self.every is not None and self.every < 1):
            raise ParameterError(f"steps and every must be at least 1, got {self.steps!r} and {self.every!r}")


class Interrupted(ErlangenError):
    """A signal ended the run after a step; `.path` is the checkpoint to resume from, if the run has one."""

    def __init__(self, history: History, signal: int, path: Path | None) -> None:
        where = "there is no checkpoint" if path is None else f"saved in {path}"
        super().__init__(f"interrupted after {history.step} steps; {where}")
        self.history, self.signal, self.path = history, signal, path


class Diverged(ErlangenError, ArithmeticError):
    """The loss is no longer a finite number."""


def train(
    run: Run,
    checkpoint: Path | str | None = None,
    *,
    resume: bool = False,
    report: Callable[[History], None] = lambda history: None,
    save_seconds: float = 30.0,
) -> History:
    """Take the steps of a run; the model then has the weights that its rule keeps, or else the last ones.

    `checkpoint` is the file that is written every `save_seconds` seconds, or as soon as a step ends after
    that, and at the end; with `resume` the run goes on from it, and a file that is already there is never
    overwritten without. SIGINT and SIGTERM end the run after the step being taken: the checkpoint is written
    and `Interrupted` is raised. `report` is called after every step.
    Where torch.distributed is initialised, all processes train together (`processes.joined`).

    >>> import tempfile
    >>> def example():
    ...     model = nn.Linear(1, 1, bias=False)
    ...     nn.init.zeros_(model.weight)
    ...     batch = lambda step: torch.ones(1, 1)
    ...     loss = lambda model, x: (model(x) - x).square().mean()
    ...     optimizer = torch.optim.SGD(model.parameters())
    ...     return Run(model, optimizer, lambda step: 0.25, batch, loss, steps=4)
    >>> file = Path(tempfile.mkdtemp()) / "checkpoint.safetensors"
    >>> train(example(), file).losses
    [1.0, 0.25, 0.0625, 0.015625]
    >>> train(example(), file).losses  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    erlangen.errors.DataError: ... is the checkpoint of a run: resume it, or choose another place
    >>> train(example(), file, resume=True).losses
    [1.0, 0.25, 0.0625, 0.015625]
    """
    checkpoint = None if checkpoint is None else Path(checkpoint)
    history, best = _begun(run, checkpoint, resume)
    processes = Processes.current()
    model = processes.wrapped(run.model)
    with StopWish(alone=processes.count == 1) as wish, torch.random.fork_rng(devices=[]):
        started, saved = time.monotonic() - history.seconds, history.seconds
        while history.step < run.steps and not history.stopped:
            loss, wished = _step(run, model, history.step, processes, wish)
            history.losses.append(loss)
            last = history.step == run.steps
            if run.evaluate is not None and (last or (run.every and history.step % run.every == 0)):
                history.evaluations.append(_evaluated(run, run.evaluate, history.step, processes))
                verdict = run.rule(history.evaluations) if run.rule else Verdict(keep=False)
                history.stopped = verdict.stop
                if verdict.keep:
                    best = {name: tensor.clone() for name, tensor in run.model.state_dict().items()}
            history.seconds = time.monotonic() - started
            over = last or history.stopped
            leaving = over or wished is not None
            due = leaving or history.seconds - saved >= save_seconds
            if checkpoint is not None and processes.first and due:
                _save(checkpoint, run, history, best)
                saved = history.seconds
            report(history)
            if leaving:
                processes.wait()  # until the checkpoint is there, whoever writes it
            if wished is not None and not over:
                raise Interrupted(history, wished, checkpoint)
    if best is not None:
        run.model.load_state_dict(best)
    run.model.eval()
    return history


def _step(
    run: Run, model: nn.Module, step: int, processes: Processes, wish: StopWish
) -> tuple[float, int | None]:
    """Take one step; its loss, and the signal by which any process was asked to stop."""
    torch.manual_seed(mixed(run.seed, STEP, step, processes.rank))
    for group in run.optimizer.param_groups:
        group["lr"] = run.schedule(step)
    model.train()
    run.optimizer.zero_grad(set_to_none=True)
    loss = run.loss(model, run.batch(step))
    loss.backward()
    # One exchange tells all processes both, so that they stop at the same step.
    value, *asked = processes.mean(
        [loss.item(), *(float(wish.signal == number) for number in StopWish.WATCHED)]
    )
    if not isfinite(value):
        raise Diverged(f"the loss is {value} at step {step + 1}: a lower learning rate may help")
    if run.clip is not None:
        nn.utils.clip_grad_norm_(run.model.parameters(), run.clip)
    run.optimizer.step()
    return value, next((n for n, share in zip(StopWish.WATCHED, asked, strict=True) if share), None)


def _evaluated(
    run: Run, evaluate: Callable[[nn.Module], Evaluation], step: int, processes: Processes
) -> Evaluation:
    """The first process measures for all: they must not come to judge differently by rounding."""
    measured: Evaluation = {}
    if processes.first:
        run.model.eval()
        # Not inference_mode: what attention prepares and keeps here must serve later steps with gradients.
        with torch.no_grad():
            measured = evaluate(run.model)
    return processes.from_first({"step": step, **measured})


def _begun(run: Run, path: Path | None, resume: bool) -> tuple[History, dict[str, Tensor] | None]:
    """The history to go on from and the weights kept so far; checks all that can be checked before a step."""
    if not resume:
        if path is not None and path.exists():
            raise DataError(f"{path} is the checkpoint of a run: resume it, or choose another place")
        return History(), None
    if path is None:
        raise ParameterError("resume=True needs the checkpoint to resume from")
    tensors, facts = checkpoints.load(path)
    try:
        told = dict(facts["config"])
        mine = {name: value for name, value in _config(run).items() if name in told or name not in SINCE}
        checkpoints.agree(path, told, mine)
        history = History.unpacked(checkpoints.under("history", tensors), facts["history"])
        if history.step > run.steps:
            raise ValueError(f"it is at step {history.step} of {run.steps}")
        _require_fit(path, run, history, tensors, facts["optimizer"])
        run.model.load_state_dict(checkpoints.under("model", tensors))
        checkpoints.unpack(run.optimizer, checkpoints.under("optimizer", tensors), facts["optimizer"])
    except ErlangenError:
        raise
    # What a file says that was changed or made by others may fail in any way.
    except (LookupError, TypeError, ValueError, RuntimeError, AttributeError, ArithmeticError) as error:
        raise DataError(f"{path} does not fit this run, or is damaged: {str(error)[:500]}") from None
    return history, checkpoints.under("best", tensors) or None


def _require_fit(
    path: Path, run: Run, history: History, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]
) -> None:
    """Raise `DataError` unless a file has just what `_save` would write of this run after so many steps.

    torch takes more: it casts tensors of other types, begins anew where a state is missing, and replaces the
    settings of the optimizer. The run would go on, and not be the same.
    """
    seen, judge = history.evaluations, run.rule
    stopped = judge is not None and bool(seen) and judge(seen).stop
    checkpoints.agree(path, {"stopped by its rule": history.stopped}, {"stopped by its rule": stopped})
    kept = judge is not None and any(judge(seen[: count + 1]).keep for count in range(len(seen)))
    untouched = frozenset(facts.get("untouched", ()))
    optimizer = checkpoints.rehearsed(run.optimizer, history.step > 0, untouched)
    expected = _tensors(run, history, run.model.state_dict() if kept else None, optimizer[0])
    checkpoints.agree(path, checkpoints.settings(facts), checkpoints.settings(optimizer[1]))
    checkpoints.agree(path, checkpoints.described(tensors), checkpoints.described(expected))


def _save(path: Path, run: Run, history: History, best: dict[str, Tensor] | None) -> None:
    optimizer, optimizer_facts = checkpoints.packed(run.optimizer)
    facts = {"config": _config(run), "optimizer": optimizer_facts, "history": history.packed()[1]}
    checkpoints.save(path, _tensors(run, history, best, optimizer), facts)


def _tensors(
    run: Run, history: History, best: dict[str, Tensor] | None, optimizer: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """All tensors of a checkpoint, by the names that they have in the file."""
    past, _ = history.packed()
    parts = {"model": run.model.state_dict(), "optimizer": optimizer, "history": past, "best": best or {}}
    return {
        name: value for key, part in parts.items() for name, value in checkpoints.prefixed(key, part).items()
    }


SINCE = ("every", "clip", "learning rates")
"""What older checkpoints do not say."""


def _config(run: Run) -> dict[str, Any]:
    rates = [run.schedule(step) for step in (0, run.steps // 2, run.steps - 1)]
    own = {
        "steps": run.steps,
        "seed": run.seed,
        "every": run.every,
        "clip": run.clip,
        "learning rates": rates,
    }
    return {**run.config, **own}

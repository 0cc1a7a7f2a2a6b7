"""A progress bar for training, on standard error, so that standard output is the result alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from erlangen.training.history import History


def told(history: History) -> str:
    """The last loss and what was last measured, in a few words."""
    words = [f"loss {history.losses[-1]:.4f}"]
    if history.evaluations:
        words += [f"{name} {value:.4f}" for name, value in history.evaluations[-1].items() if name != "step"]
    return "  ".join(words)


@contextmanager
def training_progress(label: str, steps: int, shown: bool) -> Iterator[Callable[[History], None]]:
    """Show each step of a run; also up to ten lines that stay, and are all that a log file gets."""
    if not shown:
        yield lambda history: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
        TextColumn("{task.fields[told]}"),
    )
    console = Console(stderr=True, highlight=False)
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(label, total=steps, told="")

        def report(history: History) -> None:
            bar.update(task, completed=history.step, told=told(history))
            if history.step % max(steps // 10, 1) == 0 and history.evaluations:
                console.print(
                    f"{label} step {history.step}/{steps}  {told(history)}", markup=False, soft_wrap=True
                )

        yield report

"""A progress bar for training, on standard error, so that standard output is the result alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

    from erlangen.training.history import History


def told(history: History) -> str:
    """The last loss and what was last measured, in a few words."""
    words = [f"loss {history.losses[-1]:.4f}"]
    if history.evaluations:
        words += [f"{name} {value:.4f}" for name, value in history.evaluations[-1].items() if name != "step"]
    return "  ".join(words)


class Bar:
    """Shows each step it is called with; also up to ten lines that stay, and are all that a log file gets.

    `label` may change between runs. A bar without `progress` shows nothing: that of the other processes.
    """

    def __init__(self, label: str, steps: int, progress: Progress | None) -> None:
        self.label, self.steps, self.progress = label, steps, progress
        self._task = None if progress is None else progress.add_task(label, total=steps, told="")

    def __call__(self, history: History) -> None:
        if self.progress is None or self._task is None:
            return
        words = told(history)
        self.progress.update(self._task, description=self.label, completed=history.step, told=words)
        if history.step % max(self.steps // 10, 1) == 0 and history.evaluations:
            line = f"{self.label} step {history.step}/{self.steps}  {words}"
            self.progress.console.print(line, markup=False, soft_wrap=True)


@contextmanager
def training_bar(label: str, steps: int, shown: bool) -> Iterator[Bar]:
    """A bar while the block runs."""
    if not shown:
        yield Bar(label, steps, None)
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
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        yield Bar(label, steps, progress)

"""The loss curve as a picture."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from erlangen.training.files import replacing
from erlangen.training.history import History


def smoothed(values: list[float], span: int) -> np.ndarray:
    """The mean of each value and those up to `span - 1` before it.

    >>> smoothed([4.0, 2.0, 0.0, 2.0], 2)
    array([4., 3., 1., 1.])
    """
    sums = np.concatenate([[0.0], np.cumsum(values)])
    stops = np.arange(1, len(values) + 1)
    starts = np.maximum(stops - span, 0)
    return (sums[stops] - sums[starts]) / (stops - starts)


def save_plot(history: History, path: Path, title: str, measured: str | None = None) -> None:
    """Draw the loss of every step, its running mean, and the evaluations called `measured`.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "loss.png"
    >>> save_plot(History([2.0, 1.0], [{"step": 2, "validation": 1.5}]), file, "title", "validation")
    >>> file.read_bytes()[:4]
    b'\\x89PNG'
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.6), dpi=120, layout="constrained")
    axes = figure.add_subplot()
    steps = np.arange(1, history.step + 1)
    span = max(history.step // 50, 1)
    axes.plot(steps, history.losses, color="#9db8d2", linewidth=0.6, label="training, each step")
    axes.plot(
        steps, smoothed(history.losses, span), color="#1f5a94", linewidth=1.4, label=f"mean of {span} steps"
    )
    points = [(e["step"], e[measured]) for e in history.evaluations if measured in e]
    if points:
        axes.plot(*zip(*points, strict=True), "o-", color="#c8553d", markersize=3.5, label=measured)
    axes.set(xlabel="step", ylabel="loss", title=title)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
    with replacing(path) as draft:
        figure.savefig(draft)

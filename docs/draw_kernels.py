"""The attention weights of one query over keys on a line, kernel by kernel."""

from pathlib import Path

import torch
from matplotlib.figure import Figure

import erlangen as er
from erlangen.show.palette import INK, PAPER, QUIET
from erlangen.show.style import key_color

K = er.kernels
PANELS = [
    ("SoftmaxDot()", K.SoftmaxDot()),
    ("SoftmaxDot(softcap=0.8)", K.SoftmaxDot(softcap=0.8)),
    ("SoftmaxDot(sink=3)", K.SoftmaxDot(sink=torch.tensor([3.0]))),
    ("Additive()", K.Additive()),
    ("Gaussian(0.7)", K.Gaussian(0.7)),
    ("Polynomial(2)", K.Polynomial(2)),
    ("Polynomial(3, offset=0.5)", K.Polynomial(3, offset=0.5)),
    ("Linear('elu')", K.Linear()),
]


def save(path: Path) -> None:
    """Draw a panel for each kernel: the query is at 1, the keys are 41 places from -2 to 2."""
    keys = torch.linspace(-2, 2, 41).view(1, 1, -1, 1)
    query = torch.ones(1, 1, 1, 1)
    figure = Figure(figsize=(9.6, 4.4), layout="constrained", facecolor=PAPER)
    for number, (axes, (name, kernel)) in enumerate(zip(figure.subplots(2, 4).flat, PANELS, strict=True)):
        _, weights = er.attend(query, keys, keys, kernel=kernel, return_weights=True)
        row = weights.flatten()
        axes.bar(keys.flatten().numpy(), row.numpy(), width=0.09, color=key_color(number, len(PANELS)))
        axes.axhline(0, color=QUIET, linewidth=0.6)
        axes.axvline(1, color=INK, linewidth=0.6, linestyle=":")
        axes.set_title(f"{name}\nsum {row.sum():.2f}, least {row.min():.3f}", fontsize=8, color=INK)
        axes.set_yticks([])
        axes.tick_params(colors=QUIET, labelsize=7)
        for side in ("top", "left", "right"):
            axes.spines[side].set_visible(False)
    figure.savefig(path, dpi=110)

"""Parity over triples: a task that pairwise attention cannot fit, and attention over triples can.

Seven positions carry signs x_i = +1 or -1 and are the points of the Fano plane. The target of position i is
the mean, over the three lines {i, j, l} through it, of the parity x_j x_l. Which pairs make a line is all
there is to know, and no pairwise relation knows it: every two points lie on a line.

Three models with one attention layer are trained on all 128 inputs:

- ternary: `TripleAttention` over `Fano()`;
- pairwise: `Attention` over the shadow of `Fano()` (everything but oneself), with more parameters. Such a
  layer commutes with all 5,040 permutations, so its error cannot fall below 4/15, whatever its width and
  depth: the script computes this floor by averaging the target over all rearrangements of the others;
- pairwise, positions: the same with a learned vector for every position, which breaks the symmetry. The floor
  does not hold for it; how far it comes is measured.

    python examples/parity_over_triples.py [--quick] [--out FOLDER]
"""

from __future__ import annotations

import argparse
from itertools import product
from pathlib import Path

import torch
from torch import Tensor, nn

import erlangen as er

POINTS = 7


class Signs(nn.Module):
    """Signs -> vectors -> one attention layer -> one number for each position."""

    def __init__(self, width: int, attention: nn.Module, positions: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(2, width)
        self.positions = nn.Parameter(torch.randn(POINTS, width) if positions else torch.zeros(0, width))
        self.attention = attention
        self.readout = nn.Linear(width, 1)

    def forward(self, signs: Tensor) -> Tensor:
        x = self.embedding((signs > 0).long())
        if len(self.positions):
            x = x + self.positions
        return self.readout(self.attention(x)).squeeze(-1)


def targets(signs: Tensor) -> Tensor:
    """For every position the mean parity of the other two points on its lines."""
    total = torch.zeros_like(signs)
    for line in er.ProjectivePlane(2).lines():
        for i in line:
            j, other = (point for point in line if point != i)
            total[:, i] += signs[:, j] * signs[:, other] / 3
    return total


def symmetric_floor(signs: Tensor, wanted: Tensor) -> float:
    """The least mean squared error of any function that commutes with all permutations of the positions.

    Its value at position i can depend on x_i and on how many of the others are +1, on nothing else; the best
    choice is the mean of the targets over all inputs that agree in both.
    """
    groups: dict[tuple[float, float], list[float]] = {}
    for row, goals in zip(signs.tolist(), wanted.tolist(), strict=True):
        for own, goal in zip(row, goals, strict=True):
            groups.setdefault((own, sum(row) - own), []).append(goal)
    off = [(goal - sum(group) / len(group)) ** 2 for group in groups.values() for goal in group]
    return sum(off) / len(off)


def train(model: nn.Module, signs: Tensor, wanted: Tensor, steps: int) -> list[float]:
    """The mean squared error at every step of Adam on all inputs, and at last that of the trained model."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    errors = []
    for _ in range(steps):
        loss = (model(signs) - wanted).square().mean()
        errors.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        errors.append((model(signs) - wanted).square().mean().item())
    return errors


def models(seed: int) -> dict[str, Signs]:
    """The three contenders; the pairwise ones have at least as many parameters as the ternary one."""
    torch.manual_seed(seed)
    shadow = er.Fano().shadow()
    return {
        "ternary": Signs(8, er.nn.TripleAttention(8, 2, er.Fano()), positions=False),
        "pairwise": Signs(12, er.Attention(12, 2, shadow), positions=False),
        "pairwise, positions": Signs(12, er.Attention(12, 2, shadow), positions=True),
    }


def plot(curves: dict[str, list[list[float]]], floor: float, path: Path) -> None:
    """Error against step, one line for each seed."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    colors = {"ternary": "#1b7f5c", "pairwise": "#b3412e", "pairwise, positions": "#3b5ba5"}
    for name, runs in curves.items():
        for number, errors in enumerate(runs):
            axes.semilogy(errors, color=colors[name], alpha=0.8, lw=1.4, label=name if number == 0 else None)
    axes.axhline(
        floor,
        color="black",
        ls="--",
        lw=1,
        label=f"floor of any pairwise layer without positions: {floor:.3f}",
    )
    axes.set_xlabel("step")
    axes.set_ylabel("mean squared error")
    axes.set_title("Parity over the lines of the Fano plane", fontsize=11)
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=130)


def main() -> None:
    """Train, print, draw."""
    parser = argparse.ArgumentParser(
        description="Parity over triples: pairwise attention against attention over triples."
    )
    parser.add_argument("--quick", action="store_true", help="fewer steps and one seed")
    parser.add_argument("--out", type=Path, default=Path(), help="folder for the plot")
    options = parser.parse_args()
    steps, seeds = (150, 1) if options.quick else (600, 3)

    signs = torch.tensor(list(product((-1.0, 1.0), repeat=POINTS)))
    wanted = targets(signs)
    floor = symmetric_floor(signs, wanted)
    print(f"{len(signs)} inputs, variance of the target {wanted.var(correction=0):.4f}")
    print(f"floor of pairwise attention without positions: {floor:.4f} (4/15 = {4 / 15:.4f})")
    curves: dict[str, list[list[float]]] = {}
    for seed in range(seeds):
        for name, model in models(seed).items():
            curves.setdefault(name, []).append(train(model, signs, wanted, steps))
    for name, runs in curves.items():
        size = sum(p.numel() for p in models(0)[name].parameters())
        print(f"{name:<20} {size:>4} parameters, error {', '.join(f'{errors[-1]:.2g}' for errors in runs)}")
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "parity_over_triples.png"
    plot(curves, floor, path)
    print(f"wrote {path}")


if __name__ == "__main__":
    main()

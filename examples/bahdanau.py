"""Bahdanau attention learns to align: copying gives weights on the diagonal, reversing on the antidiagonal.

python examples/bahdanau.py [--quick] [--out alignment.png]
"""

import argparse
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy

from erlangen.models import Bahdanau

TASKS = {"copy": lambda x: x, "reverse": lambda x: x.flip(1)}


def train(task: str, vocab: int, length: int, steps: int) -> Bahdanau:
    torch.manual_seed(0)
    model = Bahdanau(Bahdanau.Config(source_vocab=vocab, target_vocab=vocab, width=32))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=steps, pct_start=0.1)
    for step in range(1, steps + 1):
        source = torch.randint(0, vocab, (64, length))
        target = TASKS[task](source)
        loss = cross_entropy(model(source, target).flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 100 == 0 or step == steps:
            print(f"{task} step {step}: loss {loss.item():.4f}", flush=True)
    return model.eval()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few steps on short sequences")
    parser.add_argument("--out", type=Path, help="draw the alignments into this picture")
    options = parser.parse_args()
    vocab, length, steps = (8, 4, 20) if options.quick else (30, 12, 600)

    alignments = {}
    for task, rule in TASKS.items():
        model = train(task, vocab, length, steps)
        source = torch.randint(0, vocab, (256, length))
        written, weights = model.generate(source, length)
        where = rule(torch.arange(length)[None])[0]
        exact = (written == rule(source)).all(1).double().mean()
        aligned = (weights.argmax(-1) == where).double().mean()
        print(f"{task}: {exact:.1%} of sequences exact, {aligned:.1%} of tokens aligned")
        alignments[task] = weights[0]

    if options.out:
        import matplotlib.pyplot as plt

        figure, axes = plt.subplots(1, 2, figsize=(7, 3.6), layout="constrained")
        for axis, (task, weights) in zip(axes, alignments.items(), strict=True):
            axis.imshow(weights, cmap="Blues", vmin=0, vmax=1)
            axis.set(title=task, xlabel="read", ylabel="written")
        figure.savefig(options.out, dpi=120)
        print(f"wrote {options.out}")


if __name__ == "__main__":
    main()

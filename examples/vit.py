"""A ViT learns handwritten digits under three relations of its patches: full, strided, and a 2-D window.

The images are those of scikit-learn (8 x 8 pixels), cut into 16 patches of 2 x 2. `erlangen train vit` does
the same for the full relation, with checkpoints, a progress bar and a plot of the loss.
"""

import argparse

import torch
from torch.nn import functional as F

import erlangen as er
from erlangen.models import ViT
from erlangen.training.vit import load_digits, shifted

RELATIONS = {"full": er.Full(), "strided": er.Window(lookback=4), "2-D window": er.Grid((4, 4), 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a run of a few seconds")
    quick = parser.parse_args().quick
    steps, layers, width = (30, 2, 32) if quick else (1000, 3, 64)
    digits = load_digits()
    images, labels = digits.training
    for name, relation in RELATIONS.items():
        torch.manual_seed(0)
        model = ViT(ViT.Config(8, 2, 1, layers=layers, heads=4, width=width, classes=10, relation=relation))
        torch.nn.init.normal_(model.positions, std=0.5)  # far apart: so few images teach positions slowly
        optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.05)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=steps, pct_start=0.1)
        for _ in range(steps):
            batch = torch.randint(len(labels), (64,))
            moved = shifted(images[batch], torch.randint(-1, 2, (64, 2)))  # by a pixel: still the same digit
            loss = F.cross_entropy(model(moved), labels[batch], label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        with torch.no_grad():
            right = (model(digits.test[0]).argmax(-1) == digits.test[1]).float().mean()
        pairs = model.relation.on(17).num_edges
        print(f"{name:10}  {pairs:3} pairs  {right:.1%} of 450 unseen digits right", flush=True)


if __name__ == "__main__":
    main()

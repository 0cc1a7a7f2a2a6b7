"""A ViT learns handwritten digits under three relations of its patches: full, strided, and a 2-D window.

The images are those of scikit-learn (8 x 8 pixels), cut into 16 patches of 2 x 2.
"""

import argparse

import torch
from sklearn.datasets import load_digits
from torch.nn import functional as F

import erlangen as er
from erlangen.models import ViT

RELATIONS = {"full": er.Full(), "strided": er.Window(lookback=4), "2-D window": er.Grid((4, 4), 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a run of a few seconds")
    quick = parser.parse_args().quick
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
    labels = torch.tensor(digits.target)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    train, test = order[360:], order[:360]
    epochs, layers, width = (1, 1, 16) if quick else (40, 3, 64)

    for name, relation in RELATIONS.items():
        torch.manual_seed(0)
        model = ViT(ViT.Config(8, 2, 1, layers=layers, heads=4, width=width, classes=10, relation=relation))
        optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.05)
        batches = len(train) // 64
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=epochs * batches)
        for _ in range(epochs):
            for batch in train[torch.randperm(len(train))][: 64 * batches].split(64):
                loss = F.cross_entropy(model(moved(images[batch])), labels[batch], label_smoothing=0.1)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
        model.eval()
        with torch.no_grad():
            right = (model(images[test]).argmax(-1) == labels[test]).float().mean()
        pairs = model.relation.on(17).num_edges
        print(f"{name:10}  {pairs:3} pairs  {right:.1%} of {len(test)} unseen digits right", flush=True)


def moved(images: torch.Tensor) -> torch.Tensor:
    """All images moved by at most one pixel either way: a digit remains the same digit."""
    down, right = torch.randint(-1, 2, (2,)).tolist()
    return torch.roll(images, (down, right), (2, 3))


if __name__ == "__main__":
    main()

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
    epochs, layers, width = (1, 1, 16) if quick else (60, 4, 64)

    for name, relation in RELATIONS.items():
        torch.manual_seed(0)
        model = ViT(ViT.Config(8, 2, 1, layers=layers, heads=4, width=width, classes=10, relation=relation))
        optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.05)
        batches = len(train) // 64
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=epochs * batches)
        for _ in range(epochs):
            for batch in train[torch.randperm(len(train))][: 64 * batches].split(64):
                moved = [torch.roll(images[i], (dy, dx), (1, 2)) for i, dy, dx in shifts(batch)]
                loss = F.cross_entropy(model(torch.stack(moved)), labels[batch], label_smoothing=0.1)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
        model.eval()
        with torch.no_grad():
            right = (model(images[test]).argmax(-1) == labels[test]).float().mean()
        edges = sum(bound.num_edges for bound in [model.relation.on(17)])
        print(f"{name:10}  {edges:3} pairs  {right:.1%} of {len(test)} unseen digits right", flush=True)


def shifts(batch: torch.Tensor) -> list[tuple[int, int, int]]:
    """Each image with a move of at most one pixel either way: a digit remains the same digit."""
    moves = torch.randint(-1, 2, (len(batch), 2))
    return [(int(i), int(dy), int(dx)) for i, (dy, dx) in zip(batch, moves, strict=True)]


if __name__ == "__main__":
    main()

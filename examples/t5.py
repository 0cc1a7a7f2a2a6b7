"""A T5 learns to sort: the encoder reads all, the decoder its past and, at each step, the whole source.

T5 knows positions by their differences alone (a learned bias), which sorting hardly needs.
"""

import argparse

import torch
from torch.nn import functional as F

from erlangen.models import T5

START, END, FIRST = 0, 1, 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a run of a few seconds")
    quick = parser.parse_args().quick
    steps, length, words = (40, 4, 6) if quick else (600, 8, 20)
    torch.manual_seed(0)
    model = T5(T5.Config(FIRST + words, layers=2, heads=4, width=64, gated=True))
    for name, relation in model.relation.items():
        print(f"{name}: {relation}")
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=steps)
    for step in range(1, steps + 1):
        source = torch.randint(FIRST, FIRST + words, (64, length))
        answer = F.pad(source.sort(dim=1).values, (0, 1), value=END)
        given = F.pad(answer[:, :-1], (1, 0), value=START)
        loss = F.cross_entropy(model(source, given).flatten(0, 1), answer.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % (steps // 4) == 0:
            print(f"step {step}  loss {loss.item():.3f}")

    source = torch.randint(FIRST, FIRST + words, (200, length))
    answer = F.pad(source.sort(dim=1).values, (0, 1), value=END)
    made = model.generate(source, length + 1)
    made = F.pad(made, (0, length + 1 - made.shape[1]))
    print(f"{(made == answer).all(dim=1).float().mean():.1%} of 200 new lists sorted without a fault")


if __name__ == "__main__":
    main()

"""A BERT learns to fill gaps: every position reads both ways.

Each sentence counts up from a random number; some of its numbers are hidden, and their neighbours on either
side tell what they were. Sentences have different lengths, so that the batch is padded.
"""

import argparse

import torch
from torch.nn import functional as F

from erlangen.models import BERT

PAD, HIDDEN, FIRST = 0, 1, 2


def sentences(count: int, length: int, words: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Sentences as ids (count, length), and a mask that is 1 at their words and 0 at padding."""
    start = torch.randint(words, (count, 1))
    ids = FIRST + (start + torch.arange(length)) % words
    mask = (torch.arange(length) < torch.randint(4, length + 1, (count, 1))).long()
    return ids.masked_fill(mask == 0, PAD), mask


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a run of a few seconds")
    quick = parser.parse_args().quick
    steps, words, length = (40, 8, 8) if quick else (300, 20, 16)
    torch.manual_seed(0)
    model = BERT(BERT.Config(FIRST + words, length, layers=2, heads=4, width=64))
    print(f"relation: {model.relation}, without the padding of each sentence")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(1, steps + 1):
        ids, mask = sentences(64, length, words)
        gaps = (torch.rand(ids.shape) < 0.3) & (mask == 1)
        logits = model.logits(ids.masked_fill(gaps, HIDDEN), mask)
        loss = F.cross_entropy(logits[gaps], ids[gaps])
        right = (logits[gaps].argmax(-1) == ids[gaps]).float().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % (steps // 4) == 0:
            print(f"step {step}  loss {loss.item():.3f}  {right:.1%} of the gaps right")


if __name__ == "__main__":
    main()

"""A Transformer learns to reverse a sentence, and to translate into a language with another word order.

The translation maps every word to one of the other language, and 'adjective noun' becomes 'noun adjective'.
Sentences for the test are never trained on. Run it with --quick for a smaller, shorter run.
"""

import argparse
import random
import time

import torch
from torch.nn import functional as F

from erlangen.models import Transformer

PAD, START, END, FIRST = 0, 1, 2, 3


def reverse(words: list[int], vocab: int) -> list[int]:
    return words[::-1]


def translate(words: list[int], vocab: int) -> list[int]:
    """Word by word, in another order. Adjectives are the first third of the words, nouns the second."""
    size = vocab - FIRST
    kind = [(word - FIRST) * 3 // size for word in words]
    ordered: list[int] = []
    i = 0
    while i < len(words):
        swap = i + 1 < len(words) and kind[i] == 0 and kind[i + 1] == 1
        ordered += [words[i + 1], words[i]] if swap else [words[i]]
        i += 2 if swap else 1
    return [
        FIRST + (7 * (word - FIRST) + 5) % size for word in ordered
    ]  # 7 and the size have no common divisor


TASKS = {"reversal": reverse, "translation": translate}


def held_out(words: list[int]) -> bool:
    """One sentence in ten is for the test, decided by its words alone: training never sees it."""
    return sum((i + 1) * word for i, word in enumerate(words)) % 10 == 0


def sentences(count: int, length: int, vocab: int, test: bool, draw: random.Random) -> list[list[int]]:
    found: list[list[int]] = []
    while len(found) < count:
        words = [draw.randrange(FIRST, vocab) for _ in range(draw.randint(3, length))]
        if held_out(words) == test:
            found.append(words)
    return found


def padded(rows: list[list[int]]) -> torch.Tensor:
    return torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True)


def exact(model: Transformer, rows: list[list[int]], task: str, vocab: int) -> float:
    """The share of sentences whose whole answer is right, word by word and in length."""
    source = padded(rows)
    target = padded([[*TASKS[task](row, vocab), END] for row in rows])
    made = model.generate(source, target.shape[1], START, END, source == PAD)
    made = made.masked_fill(target == PAD, PAD)  # after its END an answer is filled with END
    return float((made == target).all(dim=1).float().mean())


def train(task: str, steps: int, length: int, vocab: int, width: int, batch: int) -> float:
    torch.manual_seed(0)
    draw = random.Random(1)
    config = Transformer.Config(vocab, vocab, layers=2, heads=4, width=width)
    model = Transformer(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, betas=(0.9, 0.98), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=steps, pct_start=0.1)
    test = sentences(1000, length, vocab, True, draw)
    began = time.perf_counter()
    for step in range(1, steps + 1):
        rows = sentences(batch, length, vocab, False, draw)
        source = padded(rows)
        answers = [TASKS[task](row, vocab) for row in rows]
        given = padded([[START, *answer] for answer in answers])
        wanted = padded([[*answer, END] for answer in answers])
        logits = model(source, given, source == PAD)
        loss = F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), ignore_index=PAD)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % max(1, steps // 5) == 0:
            right = exact(model, test[:200], task, vocab)
            seconds = time.perf_counter() - began
            print(
                f"{task}: step {step}  loss {loss.item():.4f}  exact {right:.1%}  {seconds:.0f} s", flush=True
            )
    right = exact(model, test, task, vocab)
    print(f"{task}: {right:.2%} of {len(test)} unseen sentences exactly right", flush=True)
    return right


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small run of a few seconds")
    sizes = {"steps": 40, "length": 4, "vocab": 12, "width": 32, "batch": 32}
    full = {"steps": 1000, "length": 10, "vocab": 27, "width": 64, "batch": 64}
    chosen = sizes if parser.parse_args().quick else full
    for task in TASKS:
        train(task, **chosen)


if __name__ == "__main__":
    main()

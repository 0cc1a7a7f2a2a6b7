"""A GPT learns to write like a small text, one character at a time; then it writes.

Every position reads the past: the relation is Causal(). Give your own text with --text; `erlangen train gpt`
does the same with checkpoints, a progress bar and a plot of the loss.
"""

import argparse
from pathlib import Path

import torch
from torch.nn import functional as F

import erlangen as er
from erlangen.models import GPT

TEXT = """Seven seals on seven sails, six sly snails on silver rails,
five fine flags on four fast ships, three free thieves with two tin tips,
one old owl on one oak tree: none of these belongs to me.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", type=Path, help="a text file to learn instead of the rhyme")
    parser.add_argument("--quick", action="store_true", help="a run of a few seconds")
    options = parser.parse_args()
    text = options.text.read_text(encoding="utf-8") if options.text else TEXT * 8
    steps, context = (40, 32) if options.quick else (300, 64)

    letters = sorted(set(text))
    ids = torch.tensor([letters.index(letter) for letter in text])
    torch.manual_seed(0)
    model = GPT(GPT.Config(len(letters), context, layers=2, heads=4, width=64))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(1, steps + 1):
        starts = torch.randint(len(ids) - context, (16,))
        batch = torch.stack([ids[start : start + context + 1] for start in starts.tolist()])
        logits = model(batch[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % (steps // 4) == 0:
            print(f"step {step}  loss {loss.item():.3f}")

    written = model.generate(ids[:6], 100)
    print("".join(letters[i] for i in written.tolist()))
    report = er.audit(model, batch[:2, :12], er.Causal())
    print(f"audit: {report.calls[0].kernel} in every layer, {report.verdict}")


if __name__ == "__main__":
    main()

"""An Unlimiformer learns to look things up in short texts, and looks them up in texts a hundred times longer.

A text of noise hides four facts, words that tell the value of a name; given a name, the decoder says its
value. Every head of it reads only the k states of the encoder with its highest scores: the relation is
Nearest(k), and depends on the data.
"""

import argparse

import torch
from torch.nn import functional as F

import erlangen as er
from erlangen.models import Unlimiformer

NAMES, VALUES, NOISE, FACTS = 8, 4, 8, 4
WORDS = NAMES * VALUES  # word n * VALUES + v is the fact that the value of n is v
FIRST_NAME = WORDS + NOISE
FIRST_VALUE = FIRST_NAME + NAMES


def texts(batch: int, length: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Texts (batch, length) that hide four facts, names asked for (batch, 1), and their values (batch,)."""
    source = torch.randint(WORDS, WORDS + NOISE, (batch, length))
    names = torch.rand(batch, NAMES).argsort(-1)[:, :FACTS]
    values = torch.randint(VALUES, (batch, FACTS))
    places = torch.rand(batch, length).argsort(-1)[:, :FACTS]
    source.scatter_(1, places, names * VALUES + values)
    return source, FIRST_NAME + names[:, :1], FIRST_VALUE + values[:, 0]


@torch.no_grad()
def accuracy(model: Unlimiformer, length: int) -> float:
    source, asked, value = texts(32, length)
    return (model(source, asked)[:, -1].argmax(-1) == value).float().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a run of a few seconds")
    parser.add_argument("--k", type=int, default=8, help="how many states a head reads")
    options = parser.parse_args()
    steps, lengths = (20, (24, 240)) if options.quick else (300, (24, 240, 2400))

    torch.manual_seed(0)
    vocabulary = FIRST_VALUE + VALUES
    config = Unlimiformer.Config(vocabulary, chunk=24, context=1, layers=1, heads=4, width=64, k=options.k)
    model = Unlimiformer(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(1, steps + 1):
        source, asked, value = texts(64, 24)
        loss = F.cross_entropy(model(source, asked)[:, -1], value)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % (steps // 4) == 0:
            print(f"step {step}  loss {loss.item():.3f}")

    model.eval()
    for length in lengths:
        print(f"{length} tokens, {model.relation}: {accuracy(model, length):.0%} found")
    states = model.encode(texts(1, lengths[-1])[0])
    edges = er.Nearest(options.k).on(torch.randn(1, 64), states[0]).num_edges
    print(f"a head reads {edges} of {states.shape[1]} states")


if __name__ == "__main__":
    main()

"""A Sparse Transformer reaches the whole past in two layers, and not in one.

The task is to repeat the token that came 7 positions before. With stride 5 no head reads 7 back, so one layer
can only guess; two layers can go 5 and then 2. `reach` says so before any training.
"""

import argparse

import torch
from torch.nn.functional import cross_entropy

import erlangen as er
from erlangen.models import SparseTransformer

DISTANCE, STRIDE, CONTEXT, VOCAB = 7, 5, 24, 6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a run of a few seconds")
    steps = 15 if parser.parse_args().quick else 500
    for layers in (1, 2):
        torch.manual_seed(0)
        config = SparseTransformer.Config(VOCAB, CONTEXT, layers, heads=4, width=64, stride=STRIDE)
        model = SparseTransformer(config)
        reached = er.reach([model.relation] * layers).on(CONTEXT)
        missing = er.Causal().on(CONTEXT) - reached
        print(f"{layers} layer(s) of {model.relation[0]} and {model.relation[2]}")
        print(f"  reach {reached.num_edges} pairs, {missing.num_edges} of the past are missing")
        optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
        for _ in range(steps):
            ids = torch.randint(0, VOCAB, (32, CONTEXT))
            loss = cross_entropy(model(ids)[:, DISTANCE:].flatten(0, 1), ids[:, :-DISTANCE].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        ids = torch.randint(0, VOCAB, (256, CONTEXT))
        right = (model(ids)[:, DISTANCE:].argmax(-1) == ids[:, :-DISTANCE]).double().mean()
        print(f"  {right:.1%} of tokens right; guessing gives {1 / VOCAB:.1%}")


if __name__ == "__main__":
    main()

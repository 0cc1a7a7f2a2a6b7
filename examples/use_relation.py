"""A BERT of transformers gets another relation: its first layers read a window, the last one everything.

The sequences are random walks, in which a hidden token follows from its neighbours. The audit shows what
each layer reads, with the new relation and after it was undone. The window, in which the answer lies, learns
faster than full attention.
"""

import argparse

import torch
import transformers

import erlangen as er
from erlangen.integrations.transformers import use_relation

HIDDEN, STATES = 3, 16
"""The token that hides another, and how many places the walk has; the first tokens are special ones."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a run of a few seconds")
    quick = parser.parse_args().quick
    layers, width, n, steps = (2, 16, 16, 8) if quick else (3, 32, 32, 250)
    window = er.Window(lookback=2, lookahead=2)
    for name, chosen in (
        ("full everywhere", None),
        (f"{window} in all layers but the last", range(layers - 1)),
    ):
        torch.manual_seed(0)
        config = transformers.BertConfig(
            vocab_size=STATES + 5, hidden_size=width, num_hidden_layers=layers, num_attention_heads=4,
            intermediate_size=2 * width, max_position_embeddings=n,
        )  # fmt: skip
        model = transformers.BertForMaskedLM(config)
        changed = use_relation(model, window, layers=chosen) if chosen is not None else None
        report = er.audit(model, {"input_ids": walks(2, n)}, flow=False, variants=False)
        print(f"{name}: measured {', '.join(str(call.kernel) for call in report.calls)}")
        losses = train(model, n, steps)
        print(
            f"  loss {losses[0]:.2f} at first, {sum(losses[-10:]) / len(losses[-10:]):.2f} at last",
            flush=True,
        )
        if changed is not None:
            changed.undo()
            report = er.audit(model, {"input_ids": walks(2, n)}, flow=False, variants=False)
            print(f"  undone: measured {', '.join(str(call.kernel) for call in report.calls)}")


def walks(batch: int, n: int) -> torch.Tensor:
    """Walks on a circle of places, one step either way at a time."""
    moves = torch.randint(0, 2, (batch, n)) * 2 - 1
    return (moves.cumsum(1) + torch.randint(0, STATES, (batch, 1))) % STATES + 5


def train(model: transformers.BertForMaskedLM, n: int, steps: int) -> list[float]:
    """Learn to say what one token in seven, which is hidden, has been; some sequences are shorter."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    losses = []
    for _ in range(steps):
        ids = walks(16, n)
        real = torch.arange(n) < torch.randint(n // 2, n + 1, (16, 1))
        hidden = (torch.rand(ids.shape) < 1 / 7) & real
        labels = ids.masked_fill(~hidden, -100)
        out = model(ids.masked_fill(hidden, HIDDEN), attention_mask=real.long(), labels=labels)
        optimizer.zero_grad()
        out.loss.backward()
        optimizer.step()
        losses.append(out.loss.item())
    return losses


if __name__ == "__main__":
    main()

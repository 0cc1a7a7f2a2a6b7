"""Beyond the paper, kernels (section 2.4): for which of them attention is an average."""

from __future__ import annotations

from itertools import product

import numpy as np
import torch

from erlangen.attention import attend, kernels
from erlangen.attention.binding import clear_cache
from erlangen.paper.theorems.item import Trial, statement
from erlangen.relations import Causal, Full, Graph, Relation

N = 6


@statement(
    "Proposition 1 for kernels",
    paper="not claimed, for section 2.4 assumes a softmax; tempting: any kernel divided by its row sums is "
    "stochastic",
    corrected="for positive kernels: on non-empty rows weights are at least 0, sum to 1, vanish outside N_i, "
    "and the output lies in the convex hull of the values read. A signed kernel sums to 1 and leaves the "
    "hull; a sink takes a share, and the row sums to less",
    printed="fails",
    meant="with correction",
    beyond=True,
)
def kernels_and_proposition_1(trial: Trial) -> None:
    clear_cache()
    generator = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, 1, N, 3, generator=generator, dtype=torch.float64)
    vector = torch.tensor([0.7, -1.2, 0.5], dtype=torch.float64)
    positive = {
        "softmax": kernels.SoftmaxDot(),
        "GAT": kernels.Additive(),
        "GATv2": kernels.Additive(vector=vector),
        "Bahdanau": kernels.Additive(vector=vector, activation="tanh"),
        "Gaussian": kernels.Gaussian(1.0),
        "cosine": kernels.Cosine(0.5),
        "even polynomial": kernels.Polynomial(2),
        "linear": kernels.Linear(),
    }
    relations: list[Relation] = [Full(), Causal(), Graph([(0, 1), (0, 4), (3, 2), (3, 5)])]
    for (name, kernel), relation in product(positive.items(), relations):
        bound = relation.on(N)
        h, alpha = attend(q, k, v, relation, kernel=kernel, return_weights=True)
        busy = bound.degrees > 0
        reads = bound.dense()
        trial.measured(f"{name} says that it is positive", kernel.positive)
        trial.measured(f"{name}: no weight below 0", (alpha >= 0).all())
        trial.close(f"{name}: rows sum to 1", alpha[0].sum(-1).numpy(), busy.astype(float))
        trial.measured(f"{name}: nothing outside N_i", np.array_equal((alpha[0] > 0).numpy(), reads))
        trial.measured(f"{name}: inside the hull", _in_hull(h[0].numpy(), v[0].numpy(), reads))
        trial.measured(f"{name}: empty rows are zero", bool((h[0][torch.from_numpy(~busy)] == 0).all()))
    signed = kernels.Polynomial(1, scale=1.0)
    one, keys, values = (
        torch.tensor([[[number] for number in numbers]], dtype=torch.float64)
        for numbers in ([1.0], [3.0, -1.0], [0.0, 1.0])  # weights 3 and -1, divided by their sum
    )
    h, alpha = attend(one, keys, values, Full(), kernel=signed, return_weights=True)
    trial.measured("an odd polynomial says that it is signed", not signed.positive)
    trial.close("its weights sum to 1 all the same", alpha.sum(-1), np.ones((1, 1)))
    sink = kernels.SoftmaxDot(sink=torch.zeros(1, dtype=torch.float64))
    _, held = attend(q, k, v, Full(), kernel=sink, return_weights=True)
    trial.measured("with a sink rows sum to less than 1", (held.sum(-1) < 1 - 1e-4).all())
    trial.gap(
        f"k(q, k) = q k at q = 1 and k = 3, -1: weights {alpha[0, 0].tolist()}, and of the values 0 and 1 "
        f"the mean {h.item():g}, outside of them",
        alpha.min().item() < -1e-4 and h.item() < -1e-4,
    )


def _in_hull(h: np.ndarray, v: np.ndarray, reads: np.ndarray) -> bool:
    """Whether every h_i lies between the values that row i reads, along 200 directions (its own included)."""
    directions = np.random.default_rng(0).normal(size=(200, v.shape[1]))
    for i in np.flatnonzero(reads.any(axis=1)):
        toward = np.concatenate([directions, h[i : i + 1] - v[reads[i]]])
        along = v[reads[i]] @ toward.T
        at = toward @ h[i]
        if (at < along.min(axis=0) - 1e-9).any() or (at > along.max(axis=0) + 1e-9).any():
            return False
    return True

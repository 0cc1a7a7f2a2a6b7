"""SDPA on the slice of the store that a decoding step reads."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from benchmarks.peers import Run
from benchmarks.problems import Problem, lengths

NAME = "SDPA on the sliced cache"


def prepare(problem: Problem, training: bool) -> Run:
    assert problem.window is not None
    reach = problem.window + 1
    length = lengths(problem.n, problem.window)

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        now = length()
        return F.scaled_dot_product_attention(q, k[..., now - reach : now, :], v[..., now - reach : now, :])

    return run

"""`F.scaled_dot_product_attention`: no mask where full, `is_causal` where causal, else a dense 4-D mask."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from benchmarks.peers import CannotRun, Run
from benchmarks.problems import Problem

NAME = "SDPA"
MOST_FORWARD, MOST_TRAINING = 16_384, 8_192
"""Positions beyond which the dense mask is not tried: memory and time grow with the square."""


def prepare(problem: Problem, training: bool) -> Run:
    if problem.kind in ("full", "causal"):
        causal = problem.kind == "causal"
        return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    most = MOST_TRAINING if training else MOST_FORWARD
    if problem.n > most:
        raise CannotRun(f"a dense mask of {problem.n:,} x {problem.n:,}: not tried beyond {most:,}")
    mask = problem.mask

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    return run

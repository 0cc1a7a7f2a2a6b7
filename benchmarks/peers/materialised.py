"""Attention as it is written down: all scores, the mask, a softmax over rows, a product with the values."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from benchmarks.peers import CannotRun, Run
from benchmarks.problems import Problem

NAME = "scores materialised"
MOST = 2**30
"""Bytes of one tensor of scores beyond which the step is not tried; it needs several of them."""


def prepare(problem: Problem, training: bool) -> Run:
    scores = 4 * problem.heads * problem.n**2
    if scores > MOST:
        raise CannotRun(f"the scores alone are {scores / 2**30:.1f} GiB, several times")
    unread = None if problem.kind == "full" else ~problem.mask

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = q @ k.transpose(-2, -1) / math.sqrt(problem.dim)
        if unread is not None:
            scores = scores.masked_fill(unread, -math.inf)
        return torch.softmax(scores, dim=-1) @ v

    return run

"""FlexAttention's planning: `create_block_mask` of a window."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask

from benchmarks.peers import CannotRun, Run
from benchmarks.peers.flex import mask_mod
from benchmarks.problems import Problem

NAME = "create_block_mask"
MOST = 32_768


def prepare(problem: Problem, training: bool) -> Run:
    n = problem.n
    if n > MOST:
        raise CannotRun(f"it forms {n:,} x {n:,} truth values, {n * n / 2**30:,.0f} GiB")
    window = mask_mod(problem)

    def run(q: Tensor, k: Tensor, v: Tensor) -> Any:
        create_block_mask(window, None, None, n, n, "cpu")

    return run

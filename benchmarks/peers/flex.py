"""FlexAttention, compiled, with the mask written as its users write it. Forward only on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from benchmarks.peers import CannotRun, Run
from benchmarks.problems import BLOCK, Problem

NAME = "FlexAttention compiled"


def mask_mod(problem: Problem) -> Callable[..., Any]:
    """Comparisons where the relation has them, a look into a table elsewhere."""
    window, table = problem.window, problem.table
    if window is not None:
        return lambda b, h, i, j: (j <= i) & (i - j <= window)
    if problem.kind == "causal":
        return lambda b, h, i, j: j <= i
    if table is not None:
        return lambda b, h, i, j: table[i // BLOCK, j // BLOCK]
    dense = problem.mask[0, 0]
    return lambda b, h, i, j: dense[i, j]


def prepare(problem: Problem, training: bool) -> Run:
    if training:
        raise CannotRun("FlexAttention has no backward pass on a CPU")
    n = problem.n
    blocks = None if problem.kind == "full" else create_block_mask(mask_mod(problem), None, None, n, n, "cpu")
    compiled: Any = torch.compile(flex_attention, dynamic=False)
    return lambda q, k, v: compiled(q, k, v, block_mask=blocks)

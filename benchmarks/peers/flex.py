"""FlexAttention, compiled, with the mask written as its users write it. Forward only on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from benchmarks.measure import fastest
from benchmarks.peers import CannotRun, Run
from benchmarks.problems import BLOCK, Problem

NAME = "FlexAttention compiled"
SIZES = (32, 64, 128)
"""Sides of its blocks to choose from, up to its own default: the fastest forward pass decides."""


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
    if problem.kind == "full":
        return _compiled(None)
    n, mod = problem.n, mask_mod(problem)
    masks = [create_block_mask(mod, None, None, n, n, "cpu", BLOCK_SIZE=size) for size in SIZES]
    return fastest(map(_compiled, masks), problem.inputs)


def _compiled(blocks: BlockMask | None) -> Run:
    compiled: Any = torch.compile(flex_attention, dynamic=False)
    return lambda q, k, v: compiled(q, k, v, block_mask=blocks)

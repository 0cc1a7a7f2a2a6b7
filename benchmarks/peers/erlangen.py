"""erlangen itself, called as a user calls it."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.peers import Run
from benchmarks.problems import Problem, lengths
from erlangen.attention import attend
from erlangen.attention._attend import decide
from erlangen.attention.binding import clear_cache
from erlangen.attention.call import call_of

NAME = "erlangen"


def prepare(problem: Problem, training: bool) -> Run:
    return {"additive": _additive, "layer": _layer, "planning": _planning, "decode": _decode}.get(
        problem.kind, _attention
    )(problem)


def _attention(problem: Problem) -> Run:
    return lambda q, k, v: attend(q, k, v, problem.relation)


def _additive(problem: Problem) -> Run:
    """a_i + b_j is the product of (a_i, 1) and (1, b_j)."""

    def run(a: Tensor, b: Tensor, v: Tensor) -> Tensor:
        one = torch.ones_like(a)
        q, k = torch.stack([a, one], -1), torch.stack([one, b], -1)
        q, k, v = (x.transpose(0, 1) for x in (q, k, v))
        out = attend(q, k, v, problem.relation, scale=1.0)
        return out.transpose(0, 1)

    return run


def _layer(problem: Problem) -> Run:
    def run(x: Tensor, *weights: Tensor) -> Tensor:
        q, k, v = (F.linear(x, w).view(-1, problem.heads, problem.dim).transpose(0, 1) for w in weights)
        return attend(q, k, v, problem.relation).transpose(0, 1).flatten(1)

    return run


def _planning(problem: Problem) -> Run:
    """Everything between a relation and the first kernel call: runs, tiles, the choice, the native index."""

    def run(q: Tensor, k: Tensor, v: Tensor) -> Any:
        clear_cache()
        decide(call_of(q, k, v, problem.relation, None, None, 0.0, None, False, False), batch=1)

    return run


def _decode(problem: Problem) -> Run:
    assert problem.window is not None
    length = lengths(problem.n, problem.window)

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        now = length()
        return attend(q, k[..., :now, :], v[..., :now, :], problem.relation)

    return run

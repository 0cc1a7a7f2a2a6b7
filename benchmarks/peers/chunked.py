"""A window by hand: chunks of queries, each with the keys it can reach, in one batched SDPA with a mask."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.measure import fastest
from benchmarks.peers import Run
from benchmarks.problems import Problem

NAME = "chunked SDPA"
CHUNKS = (32, 64, 128, 256)
"""Chunk lengths to choose from: the fastest forward pass decides."""


def prepare(problem: Problem, training: bool) -> Run:
    assert problem.window is not None
    n, window = problem.n, problem.window
    chunks = [chunk for chunk in CHUNKS if n % chunk == 0]
    return fastest([attention(n, window, chunk) for chunk in chunks], problem.inputs)


def attention(n: int, window: int, chunk: int) -> Run:
    """Exact attention of lookback `window`, `chunk` queries at a time."""
    first = torch.arange(0, n, chunk)[:, None]
    i = (first + torch.arange(chunk))[..., None]
    j = (first + torch.arange(-window, chunk))[:, None]
    mask = ((j >= 0) & (j <= i) & (i - j <= window))[None]

    def reachable(x: Tensor) -> Tensor:
        padded = F.pad(x, (0, 0, window, 0))
        return padded.unfold(2, window + chunk, chunk).transpose(-2, -1).flatten(0, 1)

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        queries = q.unflatten(2, (-1, chunk)).flatten(0, 1)
        out = F.scaled_dot_product_attention(queries, reachable(k), reachable(v), attn_mask=mask)
        return out.flatten(1, 2).view(q.shape)

    return run

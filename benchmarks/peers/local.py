"""The package `local-attention`: buckets of one window that look back one bucket, cut to the exact window."""

from __future__ import annotations

from local_attention import LocalAttention

from benchmarks.peers import Run
from benchmarks.problems import Problem

NAME = "local-attention"


def prepare(problem: Problem, training: bool) -> Run:
    assert problem.window is not None
    return LocalAttention(
        window_size=problem.window,
        causal=True,
        look_backward=1,
        exact_windowsize=True,
        use_rotary_pos_emb=False,
    )

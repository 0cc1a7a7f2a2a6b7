"""Longformer's sliding chunks from `transformers`. They read both ways: the half ahead is masked away."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from transformers import LongformerConfig
from transformers.models.longformer.modeling_longformer import LongformerSelfAttention

from benchmarks.peers import Run
from benchmarks.problems import Problem

NAME = "Longformer chunks"


def prepare(problem: Problem, training: bool) -> Run:
    window = problem.window
    assert window is not None
    config = LongformerConfig(
        hidden_size=problem.heads * problem.dim,
        num_attention_heads=problem.heads,
        attention_window=[2 * window],
        num_hidden_layers=1,
    )
    layer = LongformerSelfAttention(config, layer_id=0)
    ahead = torch.zeros(2 * window + 1)
    ahead[window + 1 :] = -math.inf

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        scores = layer._sliding_chunks_query_key_matmul(q / math.sqrt(problem.dim), k, window)
        weights = torch.softmax(scores + ahead, dim=-1)
        return layer._sliding_chunks_matmul_attn_probs_value(weights, v, window).transpose(1, 2)

    return run

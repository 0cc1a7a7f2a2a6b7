"""The weights of a call: the finite biases that reached it, and what its kernel makes of them."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

import torch

from erlangen.audit.capture.calls import (
    MASKING,
    AttendCall,
    Call,
    EagerCall,
    FlexCall,
    MHACall,
    SDPACall,
)
from erlangen.audit.capture.tape import replay
from erlangen.audit.support import Support
from erlangen.audit.weights import Weights, weights_of
from erlangen.audit.witnesses.declared import over_all_pairs
from erlangen.audit.witnesses.kernel import one_hot_runs
from erlangen.audit.witnesses.shapes import items_and_heads, query_key_last
from erlangen.relations import Batch, Neighborhoods, PerHead


def weights(call: Call, support: Support) -> Weights | None:
    """The finite biases of a call as weights, where `support` is what it reads; None without any."""
    bias = _bias(call)
    if bias is None or not ((bias > MASKING) & (bias != 0)).any():
        return None
    read = support.dense()
    values = bias.detach().double().cpu()
    values = values.expand(call.batch, call.heads, call.queries, call.keys).numpy()
    told = weights_of(values, read)
    if told is None:
        return None
    alpha = _alpha(call)
    again = None if alpha is None else alpha.detach().double().cpu().numpy()
    return told if again is None else weights_of(values, read, again)


@singledispatch
def _bias(call: Call) -> torch.Tensor | None:
    """What is added to the scores, (batch or 1, heads or 1, queries, keys); None where nothing is known."""
    return None


@_bias.register
def _sdpa_bias(call: SDPACall) -> torch.Tensor | None:
    if call.mask is None or not call.mask.is_floating_point():
        return None
    return _spread(call.mask, call, call.query.shape[:-2])


@_bias.register
def _mha_bias(call: MHACall) -> torch.Tensor | None:
    mask, padding = call.arguments["attn_mask"], call.arguments["key_padding_mask"]
    total = torch.zeros((), device="cpu")
    if mask is not None and mask.is_floating_point():
        total = mask if mask.dim() == 2 else mask.reshape(call.batch, call.heads, call.queries, call.keys)
    if padding is not None and padding.is_floating_point():
        total = total + padding.reshape(call.batch, 1, 1, call.keys)
    return total if total.dim() else None


@_bias.register
def _eager_bias(call: EagerCall) -> torch.Tensor:
    scores = replay(call.scores, level=False)
    last = query_key_last(scores, call.scores.axes, call.key_factor)[..., : call.keys]
    return items_and_heads(last.expand(*last.shape[:-2], call.queries, call.keys), call)


@_bias.register
def _flex_bias(call: FlexCall) -> torch.Tensor | None:
    if call.score_mod is None:
        return None
    zero = torch.zeros((), dtype=call.query.dtype, device=call.query.device)
    score_mod, shape = call.score_mod, (call.batch, call.heads, call.queries, call.keys)
    return over_all_pairs(lambda *at: score_mod(zero, *at), shape, call.query.device)


@_bias.register
def _attend_bias(call: AttendCall) -> torch.Tensor | None:
    weighted = call.weighted
    if weighted is None:
        return None
    if weighted.structured:
        vector = _tensor(weighted.toeplitz(call.queries, call.keys))
        rows, columns = (torch.arange(n, device=vector.device) for n in (call.queries, call.keys))
        return vector[:, columns - rows[:, None] + call.queries - 1][None]
    support = weighted.support
    if isinstance(support, (PerHead, Batch)):
        return None  # `attend` refuses it
    bound = support if isinstance(support, Neighborhoods) else support.on(call.queries, call.keys)
    values = _tensor(weighted.per_edge(bound)).double()
    dense = torch.full(
        (values.shape[0], call.queries, call.keys), MASKING, dtype=torch.float64, device=values.device
    )
    edges = torch.from_numpy(bound.edges())
    dense[:, edges[:, 0], edges[:, 1]] = values.detach()
    return dense[None]


def _tensor(values: Any) -> torch.Tensor:
    """Log-weights of a relation: learned ones where they are, others on the CPU."""
    return values if isinstance(values, torch.Tensor) else torch.from_numpy(values)


def _spread(mask: torch.Tensor, call: Call, leading: torch.Size) -> torch.Tensor:
    if mask.dim() == 2:
        return mask
    return items_and_heads(mask.expand(*leading, call.queries, call.keys), call)


@singledispatch
def _alpha(call: Call) -> torch.Tensor | None:
    """The attention weights with the biases in force and equal scores, (batch, heads, queries, keys)."""
    return None


@_alpha.register
def _sdpa_alpha(call: SDPACall) -> torch.Tensor:
    query, key = torch.zeros_like(call.query), torch.zeros_like(call.key)

    def run(value: torch.Tensor) -> torch.Tensor:
        return call.function(
            query, key, value, attn_mask=call.mask, dropout_p=0.0, is_causal=call.is_causal, **call.options
        )

    return items_and_heads(one_hot_runs(run, call.value), call)


@_alpha.register
def _eager_alpha(call: EagerCall) -> torch.Tensor:
    alpha = query_key_last(replay(call.weights, level=False), call.weights.axes, call.key_factor)
    return items_and_heads(alpha.expand(*alpha.shape[:-2], call.queries, call.keys), call)


@_alpha.register
def _flex_alpha(call: FlexCall) -> torch.Tensor:
    query, key = torch.zeros_like(call.query), torch.zeros_like(call.key)

    def run(value: torch.Tensor) -> torch.Tensor:
        out = call.function(
            query, key, value, score_mod=call.score_mod, block_mask=call.block_mask, **call.options
        )
        return out[0] if isinstance(out, tuple) else out

    return items_and_heads(one_hot_runs(run, call.value), call)


@_alpha.register
def _attend_alpha(call: AttendCall) -> torch.Tensor:
    query, key = torch.zeros_like(call.query), torch.zeros_like(call.key)

    def run(value: torch.Tensor) -> torch.Tensor:
        return call.function(query, key, value, call.weighted, **call.options)

    return items_and_heads(one_hot_runs(run, call.value), call)

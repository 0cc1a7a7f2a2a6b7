"""The kernel witness: the captured call run again with zero queries and one-hot values (theorem T1).

At zero queries all scores are equal, so the weights are uniform over the true support and nothing underflows.
The values are unit vectors, as many at a time as the head dimension holds, so the output *is* the weights.
Mask, flags, shapes, types and code path are those of the call. Biases that do not mask count as zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np
import torch

from erlangen.audit.capture.calls import (
    AttendCall,
    Call,
    EagerCall,
    EdgeSoftmaxCall,
    FlexCall,
    MHACall,
    ModuleCall,
    SDPACall,
    least_logarithm,
    masks,
)
from erlangen.audit.capture.tape import leveled, replay
from erlangen.audit.support import Support
from erlangen.audit.witnesses.declared import bias_of_score_mod
from erlangen.audit.witnesses.shapes import edge_support, items_and_heads, query_key_last


@dataclass(frozen=True)
class Probe:
    """What a call really reads, and the rows it turns into NaN as (item, head, query)."""

    support: Support
    nan_rows: tuple[tuple[int, int, int], ...] = ()


@singledispatch
def kernel(call: Call) -> Probe:
    """Run the call again and read its support off the output."""
    raise TypeError(f"no probe for {type(call).__name__}")


@kernel.register
def _sdpa(call: SDPACall) -> Probe:
    mask = call.mask
    if mask is not None and mask.is_floating_point():
        mask = _leveled(mask)
    query, key = torch.zeros_like(call.query), torch.zeros_like(call.key)

    def run(value: torch.Tensor) -> torch.Tensor:
        return call.function(
            query, key, value, attn_mask=mask, dropout_p=0.0, is_causal=call.is_causal, **call.options
        )

    return _read(items_and_heads(one_hot_runs(run, call.value), call))


@kernel.register
def _mha(call: MHACall) -> Probe:
    given = call.arguments
    if given["static_k"] is not None or given["static_v"] is not None:
        raise ValueError("static keys and values are given")
    dim, heads = given["embed_dim_to_check"], call.heads
    width = dim // heads
    query, key = given["query"], given["key"]
    unit = torch.eye(dim, dtype=query.dtype, device=query.device)
    zero = torch.zeros_like(unit)
    changed: dict[str, Any] = {
        "query": torch.zeros_like(query),
        "key": torch.zeros_like(key),
        "out_proj_weight": unit,
        "out_proj_bias": None,
        "training": False,
    }
    for name in ("in_proj_bias", "bias_k", "bias_v"):
        changed[name] = None if given[name] is None else torch.zeros_like(given[name])
    if given["use_separate_proj_weight"]:
        changed |= {"q_proj_weight": zero, "k_proj_weight": torch.zeros_like(given["k_proj_weight"])}
        changed["v_proj_weight"] = unit
    else:
        changed["in_proj_weight"] = torch.cat([zero, zero, unit])
    for name in ("attn_mask", "key_padding_mask"):
        if given[name] is not None and given[name].is_floating_point():
            changed[name] = _leveled(given[name])
    arguments = given | changed

    chunks = []
    for first in range(0, call.keys, width):
        size = min(width, call.keys - first)
        value = torch.zeros(*key.shape[:-1], heads, width, dtype=query.dtype, device=query.device)
        for column in range(size):
            value[first + column, ..., column] = 1
        out = call.function(**(arguments | {"value": value.flatten(-2)}))[0]
        chunks.append(out.reshape(call.queries, call.batch, heads, width)[..., :size])
    return _read(torch.cat(chunks, dim=-1).permute(1, 2, 0, 3))


@kernel.register
def _eager(call: EagerCall) -> Probe:
    weights = query_key_last(replay(call.weights), call.weights.axes, call.key_factor)
    weights = weights.expand(*weights.shape[:-2], call.queries, call.keys)
    return _read(items_and_heads(weights, call))


@kernel.register
def _flex(call: FlexCall) -> Probe:
    query, key = torch.zeros_like(call.query), torch.zeros_like(call.key)
    score_mod = _level_score_mod(call)

    def run(value: torch.Tensor) -> torch.Tensor:
        out = call.function(
            query, key, value, score_mod=score_mod, block_mask=call.block_mask, **call.options
        )
        return out[0] if isinstance(out, tuple) else out

    return _read(items_and_heads(one_hot_runs(run, call.value), call))


def _level_score_mod(call: FlexCall) -> Any:
    """The score_mod of a call; where its weights are so low that they would vanish, its masks alone."""
    if call.score_mod is None:
        return None
    bias = bias_of_score_mod(call)
    if not bool(((bias < least_logarithm(bias.dtype) / 2) & ~masks(bias)).any()):
        return call.score_mod
    table = leveled(bias)
    return lambda score, b, h, i, j: score + table[b, h, i, j]


@kernel.register
def _attend(call: AttendCall) -> Probe:
    query, key = torch.zeros_like(call.query), torch.zeros_like(call.key)
    if getattr(call.relation, "data_dependent", False):
        # The keys chosen for a query stay the same when it shrinks, exactly so by a power of two; the scores
        # come close enough to zero that no weight underflows.
        query, key = call.query * 2.0**-24, call.key

    def run(value: torch.Tensor) -> torch.Tensor:
        return call.function(query, key, value, call.relation, **call.options)

    return _read(items_and_heads(one_hot_runs(run, call.value), call))


@kernel.register
def _edges(call: EdgeSoftmaxCall) -> Probe:
    weights = call.function(torch.zeros_like(call.scores), **call.arguments).reshape(-1, call.heads)
    broken = weights.isnan()
    rows = {(0, int(h), int(call.targets[e])) for e, h in broken.nonzero().tolist()}
    return Probe(edge_support(call, (weights > 0) & ~broken), tuple(sorted(rows)))


@kernel.register
def _module(call: ModuleCall) -> Probe:
    """All heads at once: at zero hidden states, whose output changes when position j's state does? (T1)"""
    zero = torch.zeros_like(call.hidden)
    base = call.run(zero)
    generator = torch.Generator(device="cpu").manual_seed(0)
    state = torch.randn(call.hidden.shape[0], call.hidden.shape[-1], generator=generator, device="cpu")
    state = state.to(call.hidden)
    copies = _copies_that_run(call, base)
    changes = torch.zeros(call.batch, call.queries, call.keys, dtype=torch.float64, device="cpu")
    for first in range(0, call.keys, copies):
        positions = range(first, min(first + copies, call.keys))
        moved = zero.repeat(copies, 1, 1).reshape(copies, *zero.shape)
        for place, j in enumerate(positions):
            moved[place, :, j] = state
        out = call.run(moved.flatten(0, 1)).reshape(copies, *base.shape)
        size = (out - base).abs().flatten(3).amax(-1).double().cpu()
        changes[:, :, first : positions.stop] = size[: len(positions)].permute(1, 2, 0)
    # A weight is at least 1 / keys of the largest; rounding is below a millionth of it.
    scale = changes.nan_to_num().amax(dim=(1, 2), keepdim=True)
    return _read((changes > scale * (1e-3 / call.keys))[:, None])


def _copies_that_run(call: ModuleCall, base: torch.Tensor) -> int:
    """How many copies of the batch the module takes at once without the copies disturbing one another."""
    copies = min(call.keys, max(1, 64 // call.batch))
    try:
        out = call.run(torch.zeros_like(call.hidden).repeat(copies, 1, 1)).reshape(copies, *base.shape)
    except Exception:
        return 1  # an argument that is tied to the size of the batch
    return copies if torch.allclose(out, base.expand_as(out), rtol=1e-3, atol=1e-5, equal_nan=True) else 1


def one_hot_runs(run: Any, value: torch.Tensor) -> torch.Tensor:
    """The attention weights of a call, from runs with one-hot values of the call's own shape."""
    keys, width = value.shape[-2:]
    chunks = []
    for first in range(0, keys, width):
        size = min(width, keys - first)
        unit = torch.zeros_like(value)
        columns = torch.arange(size, device=value.device)
        unit[..., first + columns, columns] = 1
        chunks.append(run(unit)[..., :size])
    return torch.cat(chunks, dim=-1)


def _leveled(mask: torch.Tensor) -> torch.Tensor:
    level = leveled(mask)
    return mask if torch.equal(level, mask) else level


def _read(weights: torch.Tensor) -> Probe:
    broken = weights.isnan().any(dim=-1)
    rows = tuple((int(b), int(h), int(i)) for b, h, i in broken.nonzero().tolist())
    support = (weights > 0) & ~broken.unsqueeze(-1)
    return Probe(Support.from_dense(np.asarray(support.cpu().numpy(), bool)), rows)

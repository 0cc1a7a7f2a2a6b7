"""The declared witness: the relation that the mask, flags and bias of a call say."""

from __future__ import annotations

from functools import singledispatch

import numpy as np
import torch

from erlangen.audit.capture.calls import (
    AttendCall,
    Call,
    EagerCall,
    EdgeSoftmaxCall,
    FlexCall,
    MHACall,
    SDPACall,
    least_logarithm,
    masks,
)
from erlangen.audit.capture.tape import replay
from erlangen.audit.support import Support
from erlangen.audit.witnesses.shapes import edge_support, items_and_heads, query_key_last
from erlangen.relations import Batch, Full, Neighborhoods, PerHead


@singledispatch
def declared(call: Call) -> Support | None:
    """What reached the call, read as a relation; None where nothing was declared (a probed module).

    An additive bias is an edge unless it masks (`masks`). `is_causal` means j <= i, counted from
    the first query, as SDPA documents it.
    """
    return None


@declared.register
def _sdpa(call: SDPACall) -> Support:
    allowed = torch.ones(call.queries, call.keys, dtype=torch.bool, device="cpu")
    if call.is_causal:
        allowed = allowed.tril()
    if call.mask is not None:
        allowed = allowed & readable(call.mask).cpu()
    return _support(allowed, call, call.query.shape[:-2])


@declared.register
def _mha(call: MHACall) -> Support:
    mask, padding = call.arguments["attn_mask"], call.arguments["key_padding_mask"]
    allowed = torch.ones(call.batch, call.heads, call.queries, call.keys, dtype=torch.bool, device="cpu")
    if mask is not None:
        readable_here = (~mask if mask.dtype == torch.bool else readable(mask)).cpu()
        if mask.dim() == 3:
            readable_here = readable_here.reshape(call.batch, call.heads, call.queries, call.keys)
        allowed = allowed & readable_here
    if padding is not None:
        real = (~padding if padding.dtype == torch.bool else readable(padding)).cpu()
        allowed = allowed & real.reshape(call.batch, 1, 1, call.keys)
    return Support.from_dense(allowed.numpy())


@declared.register
def _eager(call: EagerCall) -> Support:
    scores = replay(call.scores)
    rank = scores.dim()
    bound = query_key_last(scores, call.scores.axes, call.key_factor)
    # Weights count as zero in a replay, so that what is low was masked, though it may have been scaled since.
    allowed = (bound >= least_logarithm(scores.dtype))[..., : call.keys]
    return _support(allowed.cpu(), call, tuple(bound.shape[: rank - 2]))


@declared.register
def _flex(call: FlexCall) -> Support:
    shape = (call.batch, call.heads, call.queries, call.keys)
    allowed = torch.ones(shape, dtype=torch.bool, device=call.query.device)
    if call.block_mask is not None and call.block_mask.mask_mod is not None:
        allowed = allowed & over_all_pairs(call.block_mask.mask_mod, shape, call.query.device)
    if call.score_mod is not None:
        allowed = allowed & ~masks(bias_of_score_mod(call))
    return Support.from_dense(allowed.cpu().numpy())


@declared.register
def _attend(call: AttendCall) -> Support:
    relation = Full() if call.relation is None else call.relation
    if getattr(relation, "data_dependent", False):
        return _of_vectors(call)
    bound = relation if isinstance(relation, Neighborhoods) else relation.on(call.queries, call.keys)
    if isinstance(bound, Neighborhoods):
        return Support.same(bound, call.batch, call.heads)
    items = [item if isinstance(item, tuple) else (item,) * call.heads for item in bound]
    return Support(tuple(items) if isinstance(relation, Batch) else (tuple(bound),) * call.batch)


def _of_vectors(call: AttendCall) -> Support:
    """A relation that depends on the data, bound to the queries and keys of the call."""
    q = call.query.reshape(call.batch, call.heads, *call.query.shape[-2:])
    k = call.key.reshape(call.batch, -1, *call.key.shape[-2:])

    def bound(b: int, h: int) -> Neighborhoods:
        member = call.relation
        member = member.members[b % len(member)] if isinstance(member, Batch) else member
        member = member.members[h] if isinstance(member, PerHead) else member
        return member.on(q[b, h], k[b, h * k.shape[1] // call.heads])

    return Support(tuple(tuple(bound(b, h) for h in range(call.heads)) for b in range(call.batch)))


@declared.register
def _edges(call: EdgeSoftmaxCall) -> Support:
    return edge_support(call, torch.ones(call.sources.shape[0], call.heads, dtype=torch.bool, device="cpu"))


def readable(mask: torch.Tensor) -> torch.Tensor:
    """True where a mask in SDPA's sense (True or a bias that does not mask) lets a query read.

    >>> readable(torch.tensor([0.0, -3.0, -1e9, float("-inf")])).tolist()
    [True, True, False, False]
    """
    return mask if mask.dtype == torch.bool else ~masks(mask)


def _support(allowed: torch.Tensor, call: Call, leading: tuple[int, ...]) -> Support:
    if allowed.dim() == 2 or all(size == 1 for size in allowed.shape[:-2]):
        one = Neighborhoods.from_dense(
            allowed.reshape(allowed.shape[-2:]).expand(call.queries, call.keys).numpy()
        )
        return Support.same(one, call.batch, call.heads)
    full = allowed.expand(*leading, call.queries, call.keys)
    return Support.from_dense(items_and_heads(full, call).numpy())


def bias_of_score_mod(call: FlexCall) -> torch.Tensor:
    """What the score_mod of a call makes of a score of zero, at every (batch item, head, query, key)."""
    score_mod = call.score_mod
    assert score_mod is not None
    zero = torch.zeros((), dtype=call.query.dtype, device=call.query.device)
    shape = (call.batch, call.heads, call.queries, call.keys)
    return over_all_pairs(lambda *at: score_mod(zero, *at), shape, call.query.device)


def over_all_pairs(function, shape: tuple[int, ...], device: torch.device) -> torch.Tensor:
    """A FlexAttention mod at every (batch item, head, query, key)."""
    for axis in reversed(range(4)):
        function = torch.vmap(function, in_dims=tuple(0 if a == axis else None for a in range(4)))
    indices = (torch.from_numpy(np.arange(size)).to(device) for size in shape)
    return function(*indices).expand(shape)

"""Attention of any kernel through PyTorch: pairs are gathered, at a cost proportional to the edges."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from erlangen.attention.backend import Backend, Cost, Rank, register
from erlangen.attention.biases import LogitBias
from erlangen.attention.binding import Bound
from erlangen.attention.call import Call
from erlangen.attention.dropout import Drop
from erlangen.attention.kernels import Kernel, SoftmaxDot

PAIRS = 1 << 22
"""Numbers of gathered queries that are held at a time."""


in_transform: Any = torch._C._functorch.maybe_current_level  # pyright: ignore[reportAttributeAccessIssue]
"""The level of `torch.func`, or None. Its transforms do not take checkpoints."""


class EdgeGroup(NamedTuple):
    """Items and heads of one neighborhoods: slices of the batch and the heads, and its edges by query."""

    items: slice
    heads: slice
    head: int | None
    queries: Tensor
    keys: Tensor
    indptr: list[int]


Prepared = tuple[EdgeGroup, ...]


def prepare(bound: Bound, device: str) -> Prepared:
    """What `attend` needs of a bound relation."""

    def make() -> Prepared:
        edges = []
        for member in bound.distinct:
            pairs = torch.from_numpy(member.edges()).to(device)
            starts = [0, *member.degrees.cumsum().tolist()]
            edges.append((pairs[:, 0].contiguous(), pairs[:, 1].contiguous(), starts))
        rows, columns = bound.index.shape
        return tuple(
            EdgeGroup(
                slice(None) if rows == 1 else slice(b, b + 1),
                slice(None) if columns == 1 else slice(h, h + 1),
                None if columns == 1 else h,
                *edges[bound.index[b, h]],
            )
            for b in range(rows)
            for h in range(columns)
        )

    return bound.derived(("gather", device), make)


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    prepared: Prepared,
    *,
    kernel: Kernel | None = None,
    bias: LogitBias | None = None,
    dropout: float | Drop = 0.0,
) -> tuple[Tensor, Tensor]:
    """Output and log-sum-exp (log of the sum of weights) of a kernel over the edges of a relation.

    >>> from erlangen.attention.binding import bind
    >>> from erlangen.relations import Causal
    >>> bound = bind(Causal(), batch=1, heads=1, queries=2, keys=2)
    >>> x, v = torch.zeros(1, 1, 2, 1), torch.eye(2).view(1, 1, 2, 2)
    >>> attend(x, x, v, prepare(bound, "cpu"))[0]
    tensor([[[[1.0000, 0.0000],
              [0.5000, 0.5000]]]])
    """
    kernel = SoftmaxDot() if kernel is None else kernel
    groups = q.shape[1] // k.shape[1]
    wide = torch.float64 if q.dtype == torch.float64 else torch.float32
    queries, keys, values = (
        x.to(wide) for x in (q, k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1))
    )
    parts = [
        _in_pieces(
            queries[part.items, part.heads],
            keys[part.items, part.heads],
            values[part.items, part.heads],
            part,
            kernel if part.head is None else kernel.of_head(part.head),
            _of_heads(bias, part.heads),
            dropout,
        )
        for part in prepared
    ]
    if len(parts) == 1:
        out, lse = parts[0]
    else:
        columns = sum(part.items == prepared[0].items for part in prepared)
        rows = [parts[n : n + columns] for n in range(0, len(parts), columns)]
        out, lse = (torch.cat([torch.cat([x[n] for x in row], 1) for row in rows]) for n in (0, 1))
    return out.to(q.dtype), lse


def _of_heads(bias: LogitBias | None, heads: slice) -> LogitBias | None:
    return bias if bias is None or bias.values.shape[0] == 1 else bias._replace(values=bias.values[heads])


def _in_pieces(q: Tensor, k: Tensor, v: Tensor, part: EdgeGroup, *scores: Any) -> tuple[Tensor, Tensor]:
    """All queries, in pieces of consecutive ones that hold about `PAIRS` numbers."""
    most = max(1, PAIRS // max(1, q.shape[0] * q.shape[1] * max(q.shape[3], v.shape[3])))
    cuts, rows = [0], q.shape[2]
    for row in range(1, rows):
        if part.indptr[row + 1] - part.indptr[cuts[-1]] > most:
            cuts.append(row)
    if len(cuts) == 1 or in_transform() is not None:
        return _rows(q, k, v, part, 0, rows, *scores)
    pieces = [
        checkpoint(_rows, q, k, v, part, first, last, *scores, use_reentrant=False)
        for first, last in zip(cuts, [*cuts[1:], rows], strict=True)
    ]
    return torch.cat([out for out, _ in pieces], 2), torch.cat([lse for _, lse in pieces], 2)


def _rows(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    part: EdgeGroup,
    first: int,
    last: int,
    kernel: Kernel,
    bias: LogitBias | None,
    dropout: float | Drop,
) -> tuple[Tensor, Tensor]:
    edges = slice(part.indptr[first], part.indptr[last])
    i, j = part.queries[edges], part.keys[edges]
    pairs = kernel.pairs(q.index_select(2, i), k.index_select(2, j))
    added = None
    if bias is not None:
        added = bias.values[:, edges] if bias.per_edge else bias.values[:, j - i + q.shape[2] - 1]
    into, size = i - first, (*pairs.shape[:2], last - first)
    top = None
    if kernel.exponential:
        pairs = pairs if added is None else pairs + added
        top = pairs.new_full(size, -torch.inf).scatter_reduce(
            2, into.expand_as(pairs), pairs.detach(), "amax"
        )
        top = top.masked_fill(top == -torch.inf, 0.0)
        pairs = (pairs - top.index_select(2, into)).exp()
    elif added is not None:
        pairs = pairs * added.exp()
    total = pairs.new_zeros(size).index_add(2, into, pairs)
    none = total == 0
    safe = total.masked_fill(none, 1.0)
    lse = safe.log().masked_fill(none, -torch.inf)
    weights = pairs / safe.index_select(2, into)
    if isinstance(dropout, Drop):
        items, heads = (
            torch.arange(size, device=q.device) + (part_of.start or 0)
            for size, part_of in zip(weights.shape[:2], (part.items, part.heads), strict=True)
        )
        weights = dropout(weights, items[:, None, None], heads[:, None], i, j)
    elif dropout:
        weights = torch.nn.functional.dropout(weights, dropout)
    out = v.new_zeros((*size, v.shape[3])).index_add(2, into, weights.unsqueeze(-1) * v.index_select(2, j))
    return out, lse if top is None else lse + top


@register
class GatherBackend(Backend):
    name = "gather"
    computes = "any kernel, edge by edge through PyTorch, on any device"
    scales = "the edges"

    def refuses(self, call: Call) -> str | None:
        return None

    def cost(self, call: Call) -> Cost:
        return Cost(Rank.GATHERED, 0, "any kernel runs there, at a cost proportional to the related pairs")

    def prepare(self, call: Call) -> Prepared:
        assert call.bound is not None
        return prepare(call.bound, call.device)

    def run(self, prepared, call, q, k, v, bias):
        kernel = SoftmaxDot(call.scale) if call.kernel is None else call.kernel
        # Half precision is computed in float32; autocast would round the scores again.
        with torch.autocast(q.device.type, enabled=False):
            out, lse = attend(q, k, v, prepared, kernel=kernel, bias=bias, dropout=call.dropout)
        return out, None, lse

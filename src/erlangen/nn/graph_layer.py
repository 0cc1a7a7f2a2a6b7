"""Definition 4 as a module: messages along the edges of a relation, aggregated and used for an update."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from erlangen.errors import ParameterError, ShapeError
from erlangen.relations import Neighborhoods, Relation

_MONOIDS = {"sum": ("sum", 0.0), "max": ("amax", -torch.inf), "min": ("amin", torch.inf)}


class GraphLayer(nn.Module):
    """The graph layer h_i = update(x_i, (+) over j in N_i of message(x_i, x_j)).

    `message(x_i, x_j)` maps the rows at both ends of all edges, (..., edges, d) each, to a tensor
    (..., edges, m) or a tuple of such; (+) is the commutative monoid named by `aggregate` ("sum", "max" or
    "min"), whose unit (0, -inf, inf) an empty neighbourhood gives; `update(x_i, aggregated)` makes the
    output. The cost is that of the edges.

    Attention is an instance, but not with the message alpha_ij v_j, for alpha needs all of N_i: the message
    carries numerator and denominator, (e^k(x_i, x_j) v_j, e^k(x_i, x_j)), and the update divides.

    >>> import torch
    >>> from erlangen.relations import Causal
    >>> count = GraphLayer(lambda xi, xj: torch.ones_like(xj), "sum", lambda x, total: total)
    >>> count(torch.zeros(3, 1), Causal()).squeeze(-1)
    tensor([1., 2., 3.])
    """

    def __init__(self, message: Callable[..., Any], aggregate: str, update: Callable[..., Tensor]) -> None:
        super().__init__()
        if aggregate not in _MONOIDS:
            raise ParameterError(f"aggregate must be one of {', '.join(_MONOIDS)}, got {aggregate!r}")
        self.message = message
        self.aggregate = aggregate
        self.update = update

    def forward(self, x: Tensor, relation: Relation | Neighborhoods, context: Tensor | None = None) -> Tensor:
        """`x` (..., queries, d) receives along `relation` from `context` (..., keys, d), or from itself."""
        context = x if context is None else context
        if x.dim() < 2 or x.shape[:-2] != context.shape[:-2]:
            raise ShapeError(f"x {tuple(x.shape)} and context {tuple(context.shape)} do not fit")
        queries, keys = x.shape[-2], context.shape[-2]
        bound: Any = relation if relation.is_bound else relation.on(queries, keys)
        if (bound.queries, bound.keys) != (queries, keys):
            raise ShapeError(f"{bound} does not fit x {tuple(x.shape)} and context {tuple(context.shape)}")
        query, key = torch.from_numpy(bound.edges()).to(x.device).unbind(1)
        messages = self.message(x[..., query, :], context[..., key, :])
        if isinstance(messages, tuple):
            return self.update(x, tuple(self._gather(message, query, queries) for message in messages))
        return self.update(x, self._gather(messages, query, queries))

    def _gather(self, messages: Tensor, query: Tensor, queries: int) -> Tensor:
        reduce, unit = _MONOIDS[self.aggregate]
        out = messages.new_full((*messages.shape[:-2], queries, messages.shape[-1]), unit)
        index = query[:, None].expand(messages.shape)
        return out.scatter_reduce(-2, index, messages, reduce=reduce, include_self=True)

"""Bringing what a call returned into the one shape (batch, heads, queries, keys)."""

from __future__ import annotations

import torch

from erlangen.audit.capture.calls import Call, EdgeSoftmaxCall
from erlangen.audit.support import Support
from erlangen.relations import Neighborhoods


def query_key_last(tensor: torch.Tensor, axes: tuple[int, int], key_factor: int) -> torch.Tensor:
    """The tensor with its query axis and its key axis last, in this order; axes count from the end.

    >>> query_key_last(torch.zeros(5, 2, 3), (-1, -3), 1).shape
    torch.Size([2, 3, 5])
    """
    return tensor.movedim((axes[1 - key_factor], axes[key_factor]), (-2, -1))


def items_and_heads(tensor: torch.Tensor, call: Call) -> torch.Tensor:
    """Leading dimensions folded into (batch, heads)."""
    return tensor.reshape(call.batch, call.heads, call.queries, call.keys)


def edge_support(call: EdgeSoftmaxCall, kept: torch.Tensor) -> Support:
    """The support of an edge softmax, `kept` of shape (edges, heads) telling which edges carry weight."""
    pairs = torch.stack([call.targets, call.sources], dim=1).cpu()
    kept = kept.cpu()
    heads = tuple(
        Neighborhoods.from_edges(call.queries, call.keys, pairs[kept[:, head]].numpy())
        for head in range(call.heads)
    )
    return Support((heads,))

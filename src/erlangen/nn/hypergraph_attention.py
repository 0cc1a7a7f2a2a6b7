"""Attention on a hypergraph in two steps: nodes to hyperedges, hyperedges to nodes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from erlangen.errors import ParameterError, ShapeError
from erlangen.nn.attention import Attention
from erlangen.relations import FromMask, Neighborhoods
from erlangen.relations.protocol import expect


class HypergraphAttention(nn.Module):
    """Attention node -> hyperedge -> node: node i reads hyperedge e when i lies in e.

        z_e = attention of a learned seed to the nodes in e,
        h_i = attention of x_i to the z_e of the hyperedges e that contain i.

    Both are ordinary `Attention`, over the transposed incidence relation and over the incidence relation;
    the seed is one vector for all hyperedges, so that only the incidence tells them apart. The layer is
    equivariant to every automorphism of the incidence structure: a permutation of nodes that sends
    hyperedges to hyperedges. A node in no hyperedge gives zero, and an empty hyperedge is the zero vector.

    `incidence` is a `FromMask` of shape (nodes, hyperedges), or neighborhoods such as
    `ProjectivePlane(2).incidence()`.

    >>> from erlangen.relations import ProjectivePlane
    >>> layer = HypergraphAttention(8, num_heads=2, incidence=ProjectivePlane(2).incidence())
    >>> layer(torch.randn(3, 7, 8)).shape
    torch.Size([3, 7, 8])
    """

    def __init__(self, d_model: int, num_heads: int, incidence: FromMask | Neighborhoods) -> None:
        super().__init__()
        self.incidence = _bound(incidence)
        self.d_model = d_model
        self.to_hyperedges = Attention(d_model, num_heads)
        self.to_nodes = Attention(d_model, num_heads)
        self.seed = nn.Parameter(torch.randn(d_model) / d_model**0.5)

    def extra_repr(self) -> str:
        return f"{self.d_model}, nodes={self.incidence.queries}, hyperedges={self.incidence.keys}"

    def forward(self, x: Tensor) -> Tensor:
        """`x` (nodes, d_model) or (batch, nodes, d_model) -> the same shape."""
        nodes, hyperedges = self.incidence.queries, self.incidence.keys
        if x.dim() not in (2, 3) or x.shape[-2:] != (nodes, self.d_model):
            raise ShapeError(
                f"x must be ({nodes}, {self.d_model}) or (batch, {nodes}, {self.d_model}); "
                f"got {tuple(x.shape)}"
            )
        seeds = self.seed.expand(*x.shape[:-2], hyperedges, self.d_model)
        gathered = self.to_hyperedges(seeds, x, relation=self.incidence.T)
        return self.to_nodes(x, gathered, relation=self.incidence)


def _bound(incidence: Any) -> Neighborhoods:
    taken = (
        "HypergraphAttention(incidence) takes a relation of its own size, such as a FromMask of shape "
        "(nodes, hyperedges), or neighborhoods"
    )
    own = expect(incidence, taken, bound=True).own_sizes
    if own is None:
        raise ParameterError(f"{taken}, got {incidence!r}")
    return incidence.on(*own)

"""`TransformerConv`: logits are scaled products, and the target's own features are added to what it reads."""

from __future__ import annotations

from math import sqrt
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import TransformerConv

from erlangen.errors import ShapeError
from erlangen.integrations.pyg.adjacency import read
from erlangen.integrations.pyg.conv import RelationConv


class DotConv(RelationConv, TransformerConv, kernel="dot"):
    """`RelationConv(kernel="dot")`.

    >>> RelationConv(16, 8, heads=2)
    RelationConv(16, 8, heads=2, kernel='dot')
    """

    layer = TransformerConv

    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        x: Tensor | tuple[Tensor, Tensor],
        edge_index: Any,
        edge_attr: Tensor | None = None,
        return_attention_weights: bool | None = None,
    ) -> Any:
        """`x` (n, in_channels), or the features of sources and of targets; gives (targets, width).

        `edge_index` (2, edges) has sources above targets, or is what `prepare` made of it, or a sparse matrix
        (targets, sources); `edge_attr` is (edges, edge_dim). With `return_attention_weights`, True or
        False, also (edge_index, weights (edges, heads)), the weights before dropout.
        """
        weights = isinstance(return_attention_weights, bool)
        adjacency = read(edge_index, edge_attr)
        if self._pyg_answers(adjacency):
            return self.layer.forward(self, x, adjacency.for_pyg(), edge_attr, return_attention_weights)
        sources, targets, count = self._sizes(x, adjacency.size)
        if targets is None:
            raise ShapeError("kernel='dot' needs features of the targets: x = (sources, targets)")
        edge_attr = adjacency.edge_attr
        if (self.lin_edge is None) != (edge_attr is None):
            raise ShapeError(
                f"edge_dim={self.edge_dim}, and edge_attr was {'not ' * (edge_attr is None)}given"
            )
        edges = self._edges(adjacency, count)
        features = None if self.lin_edge is None else self._split(self.lin_edge(edge_attr))
        q = self._split(self.lin_query(targets))
        k, v = self._split(self.lin_key(sources)), self._split(self.lin_value(sources))
        scale = 1 / sqrt(self.out_channels)
        if features is None and edges.simple:
            h, lse = self._attend(q, k, v, edges.relation, weights, scale=scale)
        else:
            key, value = edges.rows(k, features), edges.rows(v, features)
            h, lse = self._attend(q, key, value, edges.runs, weights, scale=scale)
        h = self._joined(h)
        if self.root_weight:
            root = self.lin_skip(targets)
            if self.lin_beta is None:
                h = h + root
            else:
                share = self.lin_beta(torch.cat([h, root, h - root], dim=-1)).sigmoid()
                h = share * root + (1 - share) * h
        if lse is None:
            return h
        key = k[edges.source] if features is None else k[edges.source] + features
        logits = (q[edges.target] * key).sum(-1) * scale
        return h, (adjacency.for_pyg(), (logits - lse[edges.target]).exp())

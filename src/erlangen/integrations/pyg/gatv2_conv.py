"""`GATv2Conv`: logits are <a, LeakyReLU(u_i + v_j)>, so that the ranking of sources depends on the target."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import GATv2Conv

from erlangen.attention.kernels import Additive
from erlangen.errors import ShapeError
from erlangen.integrations.pyg.adjacency import read
from erlangen.integrations.pyg.conv import RelationConv


class GATv2RelationConv(RelationConv, GATv2Conv, kernel="gatv2"):
    """`RelationConv(kernel="gatv2")`.

    >>> RelationConv(16, 8, heads=2, kernel="gatv2")
    RelationConv(16, 8, heads=2, kernel='gatv2')
    """

    layer = GATv2Conv

    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        x: Tensor | tuple[Tensor, Tensor],
        edge_index: Any,
        edge_attr: Tensor | None = None,
        return_attention_weights: bool | None = None,
    ) -> Any:
        """`x` (n, in_channels), or the features of sources and of targets; gives (targets, width).

        `edge_index` (2, edges) has sources above targets, or is what `prepare` made of it, or a sparse matrix
        (targets, sources); `edge_attr` is (edges, edge_dim). With `return_attention_weights` also
        (edge_index, weights (edges, heads)), self loops included, the weights after dropout.
        """
        weights = bool(return_attention_weights)
        adjacency = read(edge_index, edge_attr)
        if self._pyg_answers(adjacency, dropped_weights=weights):
            return self.layer.forward(self, x, adjacency.for_pyg(), edge_attr, return_attention_weights)
        sources, targets, count = self._sizes(x, adjacency.size)
        if targets is None:
            raise ShapeError("kernel='gatv2' needs features of the targets: x = (sources, targets)")
        loops = min(count) if self.add_self_loops else 0
        edges = self._edges(adjacency, count, loops)
        v = self._split(self.lin_l(sources))
        same = targets is sources and self.share_weights
        q = v if same else self._split(self.lin_r(targets))
        features = None
        if adjacency.edge_attr is not None:
            if self.lin_edge is None:
                raise ShapeError("edge_dim=None, and edge_attr was given")
            features = self._split(self.lin_edge(self._with_loops(adjacency, loops)))
        kernel = Additive(self.att[0], slope=self.negative_slope)
        if features is None and edges.simple:
            h, lse = self._attend(q, v, v, edges.relation, weights, kernel=kernel)
        else:
            key, value = edges.rows(v, features), edges.rows(v)
            h, lse = self._attend(q, key, value, edges.runs, weights, kernel=kernel)
        h = self._joined(h)
        if self.res is not None:
            h = h + self.res(targets)
        if self.bias is not None:
            h = h + self.bias
        if lse is None:
            return h
        total = q[edges.target] + v[edges.source]
        total = total if features is None else total + features
        logits = (F.leaky_relu(total, self.negative_slope) * self.att).sum(-1)
        return h, (edges.edge_index.clone(), (logits - lse[edges.target]).exp())

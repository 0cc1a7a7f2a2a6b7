"""`GATConv`: logits are a function of a sum of two numbers, one of the target and one of the source."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import GATConv

from erlangen.attention.kernels import Additive
from erlangen.integrations.pyg.adjacency import read
from erlangen.integrations.pyg.conv import RelationConv


class AdditiveConv(RelationConv, GATConv, kernel="additive"):
    """`RelationConv(kernel="additive")`.

    >>> RelationConv(16, 8, heads=2, kernel="additive")
    RelationConv(16, 8, heads=2, kernel='additive')
    """

    layer = GATConv
    lin: Any
    lin_src: Any
    lin_dst: Any

    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        x: Tensor | tuple[Tensor, Tensor | None],
        edge_index: Any,
        edge_attr: Tensor | None = None,
        size: tuple[int, int] | None = None,
        return_attention_weights: bool | None = None,
    ) -> Any:
        """`x` (n, in_channels), or the features of sources and of targets; gives (targets, width).

        `edge_index` (2, edges) has sources above targets, or is what `prepare` made of it, or a sparse matrix
        (targets, sources); `edge_attr` is (edges, edge_dim). `size` says how many sources and targets there
        are, needed where the targets have no features. With `return_attention_weights` also (edge_index,
        weights (edges, heads)), self loops included, the weights after dropout.
        """
        weights = bool(return_attention_weights)
        adjacency = read(edge_index, edge_attr)
        if self._pyg_answers(adjacency, dropped_weights=weights):
            return self.layer.forward(self, x, adjacency.for_pyg(), edge_attr, size, return_attention_weights)
        sources, targets, count = self._sizes(x, adjacency.size or size)
        loops = min(count) if self.add_self_loops else 0
        edges = self._edges(adjacency, count, loops)
        v = self._split((self.lin_src if self.lin is None else self.lin)(sources))
        if targets is None:
            own = None
        elif targets is sources and self.lin is not None:
            own = v
        else:
            own = self._split((self.lin_dst if self.lin is None else self.lin)(targets))
        b = (v * self.att_src).sum(-1)
        a = b.new_zeros(count[1], self.heads) if own is None else (own * self.att_dst).sum(-1)
        features = None
        if self.lin_edge is not None and adjacency.edge_attr is not None:
            features = self._split(self.lin_edge(self._with_loops(adjacency, loops)))
        logits: Any = None
        if weights or features is not None or not edges.simple:
            logits = a[edges.target] + b[edges.source]
            if features is not None:
                logits = logits + (features * self.att_edge).sum(-1)
            logits = F.leaky_relu(logits, self.negative_slope)
        if features is None and edges.simple:
            kernel = Additive(slope=self.negative_slope)
            h, lse = self._attend(a[..., None], b[..., None], v, edges.relation, weights, kernel=kernel)
        else:
            one, key = torch.ones_like(a)[..., None], logits[edges.order][..., None]
            h, lse = self._attend(one, key, edges.rows(v), edges.runs, weights, scale=1.0)
        h = self._joined(h)
        if self.res is not None and targets is not None:
            h = h + self.res(targets)
        if self.bias is not None:
            h = h + self.bias
        if lse is None:
            return h
        return h, (edges.edge_index.clone(), (logits - lse[edges.target]).exp())

"""GAT: every node reads its neighbours and itself, by an additive kernel.

    relation    graph | Identity(): the edges of the instance and a self loop at every node

    v_i       = W x_i                                                     per head
    logit_ij  = LeakyReLU(<a_dst, v_i> + <a_src, v_j>)
    h_i       = sum over j in N_i of softmax_j(logit_ij) v_j  + bias      heads concatenated, or their mean

    GAT       = layer(ELU(layer(x))): hidden heads concatenated, output heads averaged

The numbers of a layer are those of PyG's `GATConv` on the same weights, and so are the parameters' names.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from erlangen.attention import attend
from erlangen.attention.kernels import Additive
from erlangen.errors import ParameterError, ShapeError
from erlangen.models import checks
from erlangen.models.saved import Saved
from erlangen.nn.edge_index import edges_of
from erlangen.relations import Identity, Relation
from erlangen.relations.protocol import AnyRelation, expect


def with_self_loops(graph: Relation | Tensor, nodes: int) -> Relation:
    """The relation of a graph attention layer: a graph, or PyG's `edge_index`, and a self loop at every node.

    A relation is a set: an edge that an `edge_index` names twice is there once.

    >>> from erlangen.relations import Graph
    >>> with_self_loops(Graph([(0, 1)]), 2).on(2).dense().astype(int).tolist()
    [[1, 1], [0, 1]]
    >>> with_self_loops(torch.tensor([[1, 1], [0, 0]]), 2).on(2).dense().astype(int).tolist()
    [[1, 1], [0, 1]]
    """
    if isinstance(graph, AnyRelation):
        return expect(graph, "a graph is one relation") | Identity()
    return edges_of(graph, nodes, nodes, loops=nodes).relation


class GATLayer(nn.Module):
    """Graph attention with `heads` heads of `width`, concatenated or averaged: (n, features) -> (n, ...).

    While training, `dropout` acts on the attention weights and on the values that they weigh.

    >>> from erlangen.relations import Ring
    >>> GATLayer(5, 3, heads=2)(torch.randn(4, 5), Ring(1, 1)).shape
    torch.Size([4, 6])
    >>> GATLayer(5, 3, heads=2, concat=False)(torch.randn(4, 5), Ring(1, 1)).shape
    torch.Size([4, 3])
    """

    def __init__(
        self,
        features: int,
        width: int,
        heads: int = 1,
        *,
        concat: bool = True,
        slope: float = 0.2,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.heads, self.width, self.concat, self.dropout = heads, width, concat, dropout
        self.kernel = Additive(slope=slope)
        self.lin = nn.Linear(features, heads * width, bias=False)
        self.att_src = nn.Parameter(torch.empty(1, heads, width))
        self.att_dst = nn.Parameter(torch.empty(1, heads, width))
        self.bias = nn.Parameter(torch.zeros(heads * width if concat else width))
        nn.init.xavier_uniform_(self.lin.weight)
        for vector in (self.att_src, self.att_dst):  # maps `width` numbers to one, in each head
            nn.init.uniform_(vector, -sqrt(6 / (width + 1)), sqrt(6 / (width + 1)))

    def forward(self, x: Tensor, graph: Relation | Tensor) -> Tensor:
        """`x` (n, features) may be sparse; `graph` is a relation or an `edge_index` (2, edges)."""
        if x.dim() != 2 or x.shape[1] != self.lin.in_features:
            raise ShapeError(f"x must be (n, {self.lin.in_features}), got {tuple(x.shape)}")
        weight = self.lin.weight.T
        v = (x @ (weight.contiguous() if x.is_sparse else weight)).unflatten(-1, (self.heads, self.width))
        to, of = (v * self.att_dst).sum(-1, keepdim=True), (v * self.att_src).sum(-1, keepdim=True)
        dropout = self.dropout if self.training else 0.0
        v = F.dropout(v, dropout)
        q, k, v = (part.transpose(0, 1) for part in (to, of, v))
        h = attend(q, k, v, with_self_loops(graph, len(x)), kernel=self.kernel, dropout=dropout)
        return (h.transpose(0, 1).flatten(1) if self.concat else h.mean(0)) + self.bias


@dataclass(frozen=True)
class GATConfig:
    """Sizes of a GAT: `heads` heads of `hidden` numbers, then `output_heads` heads of `classes` numbers.

    >>> GATConfig(features=1433, classes=7).heads
    8
    """

    features: int
    classes: int
    hidden: int = 8
    heads: int = 8
    output_heads: int = 1
    dropout: float = 0.6
    slope: float = 0.2

    def __post_init__(self) -> None:
        checks.counts(self, "GAT", "features", "classes", "hidden", "heads", "output_heads")
        if not 0 <= self.dropout < 1:
            raise ParameterError(f"GAT.Config(dropout) must be in [0, 1), got {self.dropout!r}")


@final
class GAT(Saved):
    """Two layers of graph attention that classify nodes: x (n, features) -> logits (n, classes).

    `dropout` acts on the input of each layer, on its values and on its attention weights. The graph comes
    with each call, as a relation or as an `edge_index` (2, edges): it is not part of the model.

    >>> from erlangen.relations import Graph, Ring
    >>> model = GAT(GAT.Config(features=5, classes=3)).eval()
    >>> model(torch.randn(4, 5), Ring(1, 1)).shape
    torch.Size([4, 3])
    >>> model.relation(Graph([(0, 1)]), 4)
    Graph([(0, 1)]) | Identity()
    """

    Config = GATConfig
    relation = staticmethod(with_self_loops)

    def __init__(self, config: GATConfig) -> None:
        super().__init__(config)
        dropout, slope = config.dropout, config.slope
        self.first = GATLayer(config.features, config.hidden, config.heads, slope=slope, dropout=dropout)
        self.second = GATLayer(
            config.hidden * config.heads,
            config.classes,
            config.output_heads,
            concat=False,
            slope=slope,
            dropout=dropout,
        )

    def forward(self, x: Tensor, graph: Relation | Tensor) -> Tensor:
        h = F.elu(self.first(self._dropped(x), graph))
        return self.second(self._dropped(h), graph)

    def _dropped(self, x: Tensor) -> Tensor:
        """Dropout; of a sparse x only what is stored needs a draw, for zeros remain zeros."""
        if not self.training or not self.config.dropout:
            return x
        if not x.is_sparse:
            return F.dropout(x, self.config.dropout)
        x = x.coalesce()
        values = F.dropout(x.values(), self.config.dropout)
        return torch.sparse_coo_tensor(
            x.indices(), values, x.shape, is_coalesced=True, check_invariants=False
        )

"""PyG's `TransformerConv` and `GATConv` on erlangen's attention: same parameters, same numbers, less time."""

from __future__ import annotations

from inspect import signature
from math import sqrt
from typing import Any, Self, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from erlangen.attention import attend
from erlangen.attention.kernels import Additive
from erlangen.errors import ParameterError, ShapeError
from erlangen.integrations.edge_index import Edges, PreparedEdges, edges_of, prepare

__all__ = ["PreparedEdges", "RelationConv", "prepare"]


@final
class RelationConv(nn.Module):
    """Graph attention over PyG's `edge_index`, a drop-in for `TransformerConv` and `GATConv`.

    Target i reads the sources j of its edges j -> i, N_i. Per head,

        h_i = sum over j in N_i of alpha_ij v_j,   alpha_i = softmax over N_i of the logits s_ij,

    `kernel="dot"` (`TransformerConv`): s_ij = <q_i, k_j> / sqrt(out_channels), and W x_i is added to h_i.
    `kernel="additive"` (`GATConv`): s_ij = LeakyReLU(<a_dst, v_i> + <a_src, v_j>), with self loops added.

    The other arguments, the names of the parameters and their initial values are those of the PyG layer; an
    argument that only the other one has is refused. So a `state_dict` goes either way, and `like(conv)` takes
    the place of a layer there is. Pairs named twice count twice, edge features are supported, and nodes
    without edges give what they give in PyG. Attention is computed by `attend`; the relation of an
    `edge_index` is worked out once. Only the returned attention weights differ while training: they are
    those before dropout.

    >>> conv = RelationConv(16, 8, heads=2)
    >>> edge_index = torch.tensor([[0, 1, 2], [1, 2, 0]])
    >>> conv(torch.randn(3, 16), edge_index).shape
    torch.Size([3, 16])
    >>> RelationConv(16, 8, kernel="additive", beta=True)
    Traceback (most recent call last):
    ...
    erlangen.errors.ParameterError: RelationConv(kernel='additive') has no argument beta; besides in_channels,
    out_channels, heads and concat it takes negative_slope, dropout, add_self_loops, edge_dim, fill_value,
    bias, residual
    """

    # What is adopted from the PyG layer; None where it has none.
    lin_query: Any
    lin_key: Any
    lin_value: Any
    lin_skip: Any
    lin_beta: Any
    lin: Any
    lin_src: Any
    lin_dst: Any
    att_src: Any
    att_dst: Any
    lin_edge: Any
    att_edge: Any
    res: Any
    bias: Any

    def __init__(
        self,
        in_channels: int | tuple[int, int],
        out_channels: int,
        heads: int = 1,
        concat: bool = True,
        *more: Any,
        kernel: str = "dot",
        **options: Any,
    ) -> None:
        super().__init__()
        layers = _layers()
        if kernel not in layers:
            raise ParameterError(f"kernel must be 'dot' or 'additive', got {kernel!r}")
        named = [name for name in signature(layers[kernel]).parameters if name != "kwargs"][4:]
        if len(more) > len(named) or set(options) & set(named[: len(more)]):
            raise ParameterError(
                f"RelationConv(kernel={kernel!r}) takes, after concat, {', '.join(named)}, each once; got "
                f"{more} and {', '.join(options) or 'no names'}"
            )
        options |= dict(zip(named, more, strict=False))
        for option in options:
            if option not in named:
                raise ParameterError(
                    f"RelationConv(kernel={kernel!r}) has no argument {option}; besides in_channels, "
                    f"out_channels, heads and concat it takes {', '.join(named)}"
                )
        self._adopt(layers[kernel](in_channels, out_channels, heads, concat, **options), kernel)

    @classmethod
    def like(cls, conv: nn.Module) -> Self:
        """A layer that computes what a `TransformerConv` or `GATConv` does, with *its* parameters, no copies.

        >>> from torch_geometric.nn import GATConv
        >>> conv = GATConv(4, 4)
        >>> RelationConv.like(conv).lin.weight is conv.lin.weight
        True
        """
        kernel = {layer: kernel for kernel, layer in _layers().items()}.get(type(conv))
        if kernel is None:
            raise ParameterError(f"like(conv) takes a TransformerConv or a GATConv, got {conv!r}")
        settings = {"flow": "source_to_target", "aggr": "add", "explain": None}
        for setting, usual in settings.items():
            if getattr(conv, setting) != usual:
                raise ParameterError(
                    f"{conv!r} has {setting}={getattr(conv, setting)!r}: not what RelationConv does"
                )
        layer = cls.__new__(cls)
        nn.Module.__init__(layer)
        layer._adopt(conv, kernel)
        return layer

    def _adopt(self, conv: Any, kernel: str) -> None:
        """Take over the parameters of a PyG layer, under their names, and its settings."""
        self.kernel = kernel
        self.in_channels, self.out_channels = conv.in_channels, conv.out_channels
        self.heads, self.concat = conv.heads, conv.concat
        self.dropout, self.edge_dim = conv.dropout, conv.edge_dim
        if kernel == "additive":
            self.negative_slope, self.add_self_loops = conv.negative_slope, conv.add_self_loops
            self.fill_value = conv.fill_value
        else:
            self.root_weight = conv.root_weight
        for name, parameter in conv._parameters.items():
            self.register_parameter(name, parameter)
        for name, module in conv._modules.items():
            if name != "aggr_module":  # sums; it has no parameters
                self.register_module(name, module)
        if kernel == "additive":
            for name in {"lin", "lin_src", "lin_dst", "lin_edge"} - conv._modules.keys():
                setattr(self, name, None)
        self.train(conv.training)

    def reset_parameters(self) -> None:
        """Draw all parameters anew, as the PyG layer does: the same values from the same seed."""
        from torch_geometric.nn.inits import glorot, zeros

        dot = ("lin_key", "lin_query", "lin_value", "lin_edge", "lin_skip", "lin_beta")
        for name in dot if self.kernel == "dot" else ("lin", "lin_src", "lin_dst", "lin_edge", "res"):
            if getattr(self, name) is not None:
                getattr(self, name).reset_parameters()
        if self.kernel == "additive":
            for vector in (self.att_src, self.att_dst, self.att_edge):
                glorot(vector)
            zeros(self.bias)

    def extra_repr(self) -> str:
        return f"{self.in_channels}, {self.out_channels}, heads={self.heads}, kernel={self.kernel!r}"

    def forward(
        self,
        x: Tensor | tuple[Tensor, Tensor | None],
        edge_index: Tensor | PreparedEdges,
        edge_attr: Tensor | None = None,
        *,
        size: tuple[int, int] | None = None,
        return_attention_weights: bool | None = None,
    ) -> Any:
        """`x` (n, in_channels), or the features of sources and of targets; gives (targets, width).

        `edge_index` (2, edges) has sources above targets, or is what `prepare` made of it; `edge_attr` is
        (edges, edge_dim). With
        `return_attention_weights` also (edge_index, weights (edges, heads)), self loops included. `size` says
        how many sources and targets there are, needed where the targets have no features.
        """
        sources, targets = x if isinstance(x, tuple) else (x, x)
        if sources.dim() != 2 or (targets is not None and targets.dim() != 2):
            shapes = [None if part is None else tuple(part.shape) for part in (sources, targets)]
            raise ShapeError(f"x must be (n, in_channels) or a pair of such, got {shapes}")
        count = (len(sources), len(sources if targets is None else targets))
        if size is not None and targets is None:
            count = (count[0], size[1])
        if size is not None and tuple(size) != count:
            raise ShapeError(f"size {tuple(size)} does not fit {count[0]} sources and {count[1]} targets")
        weights = bool(return_attention_weights)
        if self.kernel == "dot":
            if targets is None:
                raise ShapeError("kernel='dot' needs features of the targets: x = (sources, targets)")
            return self._dot(sources, targets, count, edge_index, edge_attr, weights)
        return self._additive(sources, targets, count, edge_index, edge_attr, weights)

    def _dot(
        self,
        sources: Tensor,
        targets: Tensor,
        count: tuple[int, int],
        edge_index: Tensor | PreparedEdges,
        edge_attr: Tensor | None,
        weights: bool,
    ) -> Any:
        edges = _edges(edge_index, *count)
        if (self.lin_edge is None) != (edge_attr is None):
            raise ShapeError(
                f"edge_dim={self.edge_dim}, and edge_attr was {'not ' * (edge_attr is None)}given"
            )
        q, k, v = (
            self._split(linear(x))
            for linear, x in ((self.lin_query, targets), (self.lin_key, sources), (self.lin_value, sources))
        )
        scale = 1 / sqrt(self.out_channels)
        features = None if self.lin_edge is None else self._split(self.lin_edge(edge_attr))
        if features is None and edges.simple:
            h, lse = self._attend(q, k, v, edges.relation, weights, scale=scale)
        else:
            # Each edge as a key of its own: it has features, or its pair is there twice.
            key, value = (_at(x, edges.source[edges.order], features, edges.order) for x in (k, v))
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
        logits = (q[edges.target] * _at(k, edges.source, features)).sum(-1) * scale
        return h, (edges.edge_index.clone(), (logits - lse[edges.target]).exp())

    def _additive(
        self,
        sources: Tensor,
        targets: Tensor | None,
        count: tuple[int, int],
        edge_index: Tensor | PreparedEdges,
        edge_attr: Tensor | None,
        weights: bool,
    ) -> Any:
        v = self._split((self.lin_src if self.lin is None else self.lin)(sources))
        if targets is sources and self.lin is not None:
            own = v
        else:
            own = (
                None
                if targets is None
                else self._split((self.lin_dst if self.lin is None else self.lin)(targets))
            )
        b = (v * self.att_src).sum(-1)
        a = b.new_zeros(count[1], self.heads) if own is None else (own * self.att_dst).sum(-1)
        edges = _edges(edge_index, *count, loops=min(count) if self.add_self_loops else 0)
        features = self._edge_logits(edge_index, edge_attr, min(count))
        simple = features is None and edges.simple
        logits = None
        if weights or not simple:
            logits = a[edges.target] + b[edges.source]
            logits = F.leaky_relu(logits if features is None else logits + features, self.negative_slope)
        if simple:
            kernel = Additive(slope=self.negative_slope)
            h, lse = self._attend(a[..., None], b[..., None], v, edges.relation, weights, kernel=kernel)
        else:
            assert logits is not None
            one, key = torch.ones_like(a)[..., None], logits[edges.order][..., None]
            h, lse = self._attend(one, key, v[edges.source[edges.order]], edges.runs, weights, scale=1.0)
        h = self._joined(h)
        if self.res is not None and targets is not None:
            h = h + self.res(targets)
        if self.bias is not None:
            h = h + self.bias
        if lse is None or logits is None:
            return h
        return h, (edges.edge_index.clone(), (logits - lse[edges.target]).exp())

    def _edge_logits(self, edge_index: Tensor | PreparedEdges, edge_attr: Any, nodes: int) -> Tensor | None:
        """What the features of the edges add to the logits, (edges, heads); None where there are none."""
        if edge_attr is None or self.lin_edge is None:
            return None
        from torch_geometric.utils import add_self_loops, remove_self_loops

        if self.add_self_loops:
            edge_index = edge_index.edge_index if isinstance(edge_index, PreparedEdges) else edge_index
            kept: Any = remove_self_loops(edge_index, edge_attr)
            filled: Any = add_self_loops(*kept, fill_value=self.fill_value, num_nodes=nodes)
            edge_attr = filled[1]
        edge_attr = edge_attr.view(-1, 1) if edge_attr.dim() == 1 else edge_attr
        return (self._split(self.lin_edge(edge_attr)) * self.att_edge).sum(-1)

    def _attend(
        self, q: Tensor, k: Tensor, v: Tensor, relation: Any, lse: bool, **scores: Any
    ) -> tuple[Tensor, Tensor | None]:
        """Attention of (n, heads, dim) tensors, and the log-sum-exp (n, heads) where asked for."""
        # Under autocast the values may be of a smaller type than the logits: the larger one, as in PyG.
        dtype = torch.promote_types(torch.promote_types(q.dtype, k.dtype), v.dtype)
        q, k, v = (x.to(dtype).transpose(0, 1) for x in (q, k, v))
        dropout = self.dropout if self.training else 0.0
        out = attend(q, k, v, relation, dropout=dropout, return_lse=lse, **scores)
        h, total = out if lse else (out, None)
        return h.transpose(0, 1), None if total is None else total.T

    def _split(self, x: Tensor) -> Tensor:
        return x.view(-1, self.heads, self.out_channels)

    def _joined(self, h: Tensor) -> Tensor:
        return h.flatten(1) if self.concat else h.mean(1)


def _at(x: Tensor, sources: Tensor, features: Tensor | None, order: Any = slice(None)) -> Tensor:
    """Rows of x at the sources of edges, and the features of the edges in this order added to them."""
    return x[sources] if features is None else x[sources] + features[order]


def _edges(edge_index: Tensor | PreparedEdges, sources: int, targets: int, loops: int = 0) -> Edges:
    if isinstance(edge_index, PreparedEdges):
        return edge_index.edges(sources, targets, loops)
    return edges_of(edge_index, sources, targets, loops)


def _layers() -> dict[str, Any]:
    from torch_geometric.nn import GATConv, TransformerConv

    return {"dot": TransformerConv, "additive": GATConv}

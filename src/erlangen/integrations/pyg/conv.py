"""`RelationConv`: a PyG attention layer whose forward pass is `attend` over the relation of its graph."""

from __future__ import annotations

from copy import copy, deepcopy
from functools import partial
from inspect import signature
from typing import Any, ClassVar, Never, Self

import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing, SumAggregation
from torch_geometric.utils import add_self_loops, remove_self_loops

from erlangen.attention import attend
from erlangen.errors import ParameterError, ShapeError
from erlangen.integrations.pyg.adjacency import Adjacency
from erlangen.nn.edge_index import Edges, PreparedEdges, edges_of

_KINDS: dict[str, type[RelationConv]] = {}
_STEPS = ("propagate", "message", "aggregate", "message_and_aggregate", "edge_update")


class RelationConv(MessagePassing):
    """Graph attention over PyG's `edge_index`, a drop-in for `TransformerConv`, `GATConv` and `GATv2Conv`.

    Target i reads the sources j of its edges j -> i, N_i. Per head,

        h_i = sum over j in N_i of alpha_ij v_j,   alpha_i = softmax over N_i of the logits s_ij,

    - `kernel="dot"` (`TransformerConv`): s_ij = <q_i, k_j> / sqrt(out_channels), and W x_i is added to h_i;
    - `kernel="additive"` (`GATConv`): s_ij = LeakyReLU(<a_dst, v_i> + <a_src, v_j>), with self loops added;
    - `kernel="gatv2"` (`GATv2Conv`): s_ij = <a, LeakyReLU(u_i + v_j)>, with self loops added.

    The layer *is* the PyG layer, of which it replaces the forward pass: the other arguments, parameters and
    their names, initial values, and all that PyG does with a `MessagePassing` are the same. So a
    `state_dict` goes either way, and `like(conv)` takes the place of a layer there is. An argument that only
    another kernel has is refused. Pairs named twice count twice, and edge features are supported. Where PyG
    has to see the message of each edge (explainers, hooks: see `fallback`) its own forward pass runs.

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

    kernel: ClassVar[str]
    layer: ClassVar[Any]
    """The PyG layer of this kernel."""

    # PyG replaces `propagate` on a class by generated code once it has an object, and on explaining goes back
    # to what was there before. On a derived class that would be the code generated for its base.
    propagate = MessagePassing.propagate

    in_channels: Any
    out_channels: int
    heads: int
    concat: bool
    dropout: float
    edge_dim: int | None
    fill_value: Any

    def __init_subclass__(cls, kernel: str | None = None) -> None:
        if kernel is None:
            raise TypeError(
                f"{cls.__name__} derives from RelationConv, which would not call its message(): hold a "
                "RelationConv in a module, or derive from PyG's layer"
            )
        cls.kernel = kernel
        _KINDS[kernel] = cls

    def __new__(cls, *arguments: Any, kernel: str = "dot", **options: Any) -> Self:
        """The class of a kernel is chosen here, as `pathlib.Path` chooses that of the system."""
        if cls is RelationConv:
            if kernel not in _KINDS:
                raise ParameterError(f"kernel must be one of {', '.join(map(repr, _KINDS))}, got {kernel!r}")
            kind: Any = _KINDS[kernel]
            return super().__new__(kind)
        return super().__new__(cls)

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
        named = [name for name in signature(self.layer).parameters if name != "kwargs"][4:]
        if len(more) > len(named) or set(options) & set(named[: len(more)]):
            raise ParameterError(
                f"RelationConv(kernel={self.kernel!r}) takes, after concat, {', '.join(named)}, each once; "
                f"got {more} and {', '.join(options) or 'no names'}"
            )
        options |= dict(zip(named, more, strict=False))
        for option in options:
            if option not in named:
                raise ParameterError(
                    f"RelationConv(kernel={self.kernel!r}) has no argument {option}; besides in_channels, "
                    f"out_channels, heads and concat it takes {', '.join(named)}"
                )
        self.layer.__init__(self, in_channels, out_channels, heads, concat, **options)

    @staticmethod
    def like(conv: nn.Module) -> RelationConv:
        """A layer that computes what a layer of PyG does, with *its* parameters, no copies.

        >>> from torch_geometric.nn import GATConv
        >>> conv = GATConv(4, 4)
        >>> RelationConv.like(conv).lin.weight is conv.lin.weight
        True
        """
        kind = {kind.layer: kind for kind in _KINDS.values()}.get(type(conv))
        if kind is None:
            layers = ", ".join(kind.layer.__name__ for kind in _KINDS.values())
            raise ParameterError(f"like(conv) takes one of {layers}, got {conv!r}")
        # What PyG binds to the layer it belongs to stays there; tables are copied, what they hold is shared.
        state = {name: copy(x) if isinstance(x, dict) else x for name, x in vars(conv).items()}
        state.pop("propagate", None)
        layer = kind.__new__(kind)
        layer.__setstate__(state | {"inspector": deepcopy(state["inspector"])})
        if layer.fallback is not None:
            raise ParameterError(f"{conv!r} has {layer.fallback}: not what RelationConv does")
        return layer

    @property
    def fallback(self) -> str | None:
        """Why calls now run PyG's own forward pass, in words; None where attention is that of `attend`.

        PyG has to form the message of each edge where an explainer weighs it or a hook looks at it. The
        numbers are the same; the time is PyG's.

        >>> conv = RelationConv(4, 2)
        >>> conv.fallback
        >>> handle = conv.register_message_forward_hook(lambda conv, inputs, out: None)
        >>> conv.fallback
        'hooks of its message passing'
        """
        if self.explain:
            return "explain=True"
        if self.flow != "source_to_target":
            return f"flow={self.flow!r}"
        if type(self.aggr_module) is not SumAggregation:
            return f"aggr={self.aggr!r}"
        if self.decomposed_layers != 1:
            return f"decomposed_layers={self.decomposed_layers}"
        hooks = [getattr(self, f"_{step}_forward{pre}_hooks") for step in _STEPS for pre in ("", "_pre")]
        if any(hooks) or self.aggr_module._forward_hooks or self.aggr_module._forward_pre_hooks:
            return "hooks of its message passing"
        replaced = [step for step in (*_STEPS[1:], "update") if step in vars(self)]
        return f"a {replaced[0]}() of its own" if replaced else None

    def __repr__(self) -> str:
        return (
            f"RelationConv({self.in_channels}, {self.out_channels}, heads={self.heads}, "
            f"kernel={self.kernel!r})"
        )

    def __prepare_scriptable__(self) -> Never:
        raise ParameterError(
            f"torch.jit.script cannot compile {self!r}: its attention is no TorchScript; load its state_dict "
            f"into a {self.layer.__name__} and script that, or use torch.compile"
        )

    def _pyg_answers(self, adjacency: Adjacency, dropped_weights: bool = False) -> bool:
        """Whether PyG's own forward pass runs; `dropped_weights`: the weights after dropout are asked for."""
        return (
            self.fallback is not None
            # Else the graph of the example would become a constant.
            or torch.jit.is_tracing()  # pyright: ignore[reportPrivateImportUsage]
            or torch.compiler.is_exporting()
            or (dropped_weights and (adjacency.matrix or (self.training and self.dropout > 0)))
        )

    def _sizes(self, x: Any, given: tuple[int, int] | None) -> tuple[Tensor, Tensor | None, tuple[int, int]]:
        """The features of sources and targets, and how many there are of each."""
        sources, targets = (x, x) if isinstance(x, Tensor) else x
        if sources.dim() != 2 or (targets is not None and targets.dim() != 2):
            shapes = [None if part is None else tuple(part.shape) for part in (sources, targets)]
            raise ShapeError(f"x must be (n, in_channels) or a pair of such, got {shapes}")
        count = (len(sources), len(sources if targets is None else targets))
        if given is not None and targets is None:
            count = (count[0], given[1])
        if given is not None and tuple(given) != count:
            raise ShapeError(f"size {tuple(given)} does not fit {count[0]} sources and {count[1]} targets")
        return sources, targets, count

    def _edges(self, adjacency: Adjacency, count: tuple[int, int], loops: int = 0) -> Edges:
        index, features = adjacency.edge_index, adjacency.edge_attr
        find = index.edges if isinstance(index, PreparedEdges) else partial(edges_of, index)
        edges = find(*count, loops)
        if features is not None and len(features) != edges.given:
            raise ShapeError(f"edge_attr has {len(features)} rows, and there are {edges.given} edges")
        return edges

    def _with_loops(self, adjacency: Adjacency, nodes: int) -> Tensor:
        """The features of the edges, and after them those of the self loops, (edges and loops, edge_dim)."""
        index, features = adjacency.edge_index, adjacency.edge_attr
        assert features is not None
        if nodes:
            index = index.edge_index if isinstance(index, PreparedEdges) else index
            # PyG's scatter reads an index of other integers than int64 wrongly in its backward pass.
            kept: Any = remove_self_loops(index.long(), features)
            filled: Any = add_self_loops(*kept, fill_value=self.fill_value, num_nodes=nodes)
            features = filled[1]
        return features.view(-1, 1) if features.dim() == 1 else features

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

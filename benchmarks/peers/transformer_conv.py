"""PyG's TransformerConv: its message passing on given q, k, v, or the whole layer with the same weights."""

from __future__ import annotations

from torch import Tensor
from torch.func import functional_call
from torch_geometric.nn import TransformerConv

from benchmarks.peers import Run
from benchmarks.problems import Problem

NAME = "PyG TransformerConv"


def prepare(problem: Problem, training: bool) -> Run:
    width = problem.heads * problem.dim
    layer = TransformerConv(width, problem.dim, heads=problem.heads, root_weight=False, bias=False)
    edges = problem.edge_index
    if problem.kind == "layer":
        names = [f"lin_{part}.weight" for part in ("query", "key", "value")]

        def whole(x: Tensor, *weights: Tensor) -> Tensor:
            return functional_call(layer, dict(zip(names, weights, strict=True)), (x, edges))

        return whole

    def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (x[0].transpose(0, 1) for x in (q, k, v))
        out = layer.propagate(edges, query=q, key=k, value=v, edge_attr=None)
        layer._alpha = None
        return out.transpose(0, 1)[None]

    return attention

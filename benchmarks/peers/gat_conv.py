"""PyG's GATConv. Its scores are LeakyReLU(a_i + b_j), never products of queries and keys.

With slope 1 the LeakyReLU is the identity, and the scores are those of a dot product: the same work,
comparable exactly. Timed on given a, b and values, without the projections.
"""

from __future__ import annotations

from torch import Tensor
from torch_geometric.nn import GATConv

from benchmarks.peers import CannotRun, Run
from benchmarks.problems import Problem

NAME = "PyG GATConv"


def prepare(problem: Problem, training: bool) -> Run:
    if problem.kind != "additive":
        raise CannotRun("its scores are a_i + b_j, not q_i . k_j; compared in graph-additive-10k")
    width = problem.heads * problem.dim
    layer = GATConv(
        width, problem.dim, heads=problem.heads, negative_slope=1.0, add_self_loops=False, bias=False
    )
    edges = problem.edge_index

    def run(a: Tensor, b: Tensor, v: Tensor) -> Tensor:
        alpha = layer.edge_updater(edges, alpha=(b, a), edge_attr=None)
        return layer.propagate(edges, x=(v, v), alpha=alpha)

    return run

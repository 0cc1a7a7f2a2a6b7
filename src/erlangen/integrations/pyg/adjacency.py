"""The ways in which PyG's layers are told the edges, read as one: sources above targets."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.typing import SparseTensor  # pyright: ignore[reportAttributeAccessIssue]
from torch_geometric.utils import is_torch_sparse_tensor, to_edge_index

from erlangen.errors import ParameterError
from erlangen.nn.edge_index import PreparedEdges


class Adjacency(NamedTuple):
    """The edges of a graph, and how they were given."""

    edge_index: Tensor | PreparedEdges
    """(2, edges), sources above targets."""
    given: Any
    edge_attr: Tensor | None = None
    """The features of the edges: those that were given, else those in a sparse matrix."""
    size: tuple[int, int] | None = None
    """How many sources and targets there are, where the adjacency says so."""
    matrix: bool = False

    def for_pyg(self) -> Any:
        """What PyG's own code takes for `edge_index`."""
        return self.given.edge_index if isinstance(self.given, PreparedEdges) else self.given


def read(edge_index: Any, edge_attr: Tensor | None) -> Adjacency:
    """What a layer was given for `edge_index`: a tensor (2, edges), what `prepare` made of one, PyG's
    `EdgeIndex`, or a sparse tensor, the matrix of shape (targets, sources).

    Entries of a matrix are edges in the order in which it stores them. Its values are features of the edges
    if there is more than one for each, as in PyG.

    >>> matrix = torch.tensor([[0.0, 1.0, 1.0]]).to_sparse_csr()
    >>> read(matrix, None).edge_index.tolist(), read(matrix, None).size
    ([[1, 2], [0, 0]], (3, 1))
    """
    if isinstance(edge_index, EdgeIndex):
        sources, targets = edge_index.sparse_size()
        size = None if sources is None or targets is None else (sources, targets)
        return Adjacency(edge_index.as_tensor(), edge_index, edge_attr, size)
    if isinstance(edge_index, SparseTensor):
        raise ParameterError(
            "edge_index is a SparseTensor of torch_sparse, which is not read here: give its "
            "to_torch_sparse_csr_tensor()"
        )
    if not (isinstance(edge_index, Tensor) and is_torch_sparse_tensor(edge_index)):
        return Adjacency(edge_index, edge_index, edge_attr)
    if edge_index.layout == torch.sparse_csc:
        raise ParameterError(
            f"a sparse edge_index is a matrix (targets, sources) in CSR or COO layout, as in PyG, got CSC of "
            f"shape {tuple(edge_index.shape[:2])}: give its t() if these are (sources, targets), else its "
            "to_sparse_csr()"
        )
    if edge_index.layout == torch.sparse_coo:
        edge_index = _coalesced(edge_index, edge_attr)
    (target, source), values = to_edge_index(edge_index)
    if edge_attr is None and values.dim() > 1:
        edge_attr = values
    targets, sources = edge_index.shape[:2]
    return Adjacency(torch.stack([source, target]), edge_index, edge_attr, (sources, targets), matrix=True)


def _coalesced(matrix: Tensor, edge_attr: Tensor | None) -> Tensor:
    """The matrix with sorted entries, each once: an adjacency is a set of pairs."""
    sorted_matrix = matrix.coalesce()
    if edge_attr is not None and not torch.equal(sorted_matrix.indices(), matrix._indices()):
        raise ParameterError(
            "edge_attr goes with the entries of the sparse matrix in their order, and those of this matrix "
            "are not sorted, or not unique: coalesce() it first, and order edge_attr as its indices()"
        )
    return sorted_matrix

"""Relations as graphs of other libraries: PyG's `edge_index`, networkx, scipy. All carry a key -> query arc.

The way back is `Graph(...)`, which takes all three.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from erlangen.errors import SizeError
from erlangen.relations import Neighborhoods


def to_edge_index(bound: Neighborhoods) -> Tensor:
    """PyG's `edge_index`, shape (2, edges): row 0 the source (key), row 1 the target (query).

    >>> from erlangen.relations import Window
    >>> to_edge_index(Window(lookback=1).on(2))
    tensor([[0, 0, 1],
            [0, 1, 1]])
    """
    return torch.from_numpy(np.ascontiguousarray(bound.edges().T[::-1]))


def to_networkx(bound: Neighborhoods) -> Any:
    """A networkx `DiGraph` with an arc key -> query for every edge; needs as many queries as keys.

    >>> from erlangen.relations import Window
    >>> sorted(to_networkx(Window(lookback=1).on(2)).edges)
    [(0, 0), (0, 1), (1, 1)]
    """
    import networkx

    if bound.queries != bound.keys:
        raise SizeError(f"a graph needs one set of nodes, got {bound.queries} queries and {bound.keys} keys")
    graph = networkx.DiGraph()
    graph.add_nodes_from(range(bound.keys))
    graph.add_edges_from(bound.edges()[:, ::-1].tolist())
    return graph


def to_scipy(bound: Neighborhoods) -> Any:
    """A boolean scipy CSR array A with A[i, j] = True where query i reads key j.

    >>> from erlangen.relations import Window
    >>> to_scipy(Window(lookback=1).on(2)).toarray().astype(int).tolist()
    [[1, 0], [1, 1]]
    """
    from scipy.sparse import csr_array

    columns = bound.edges()[:, 1]
    indptr = np.concatenate([[0], np.cumsum(bound.degrees)])
    return csr_array((np.ones(columns.size, bool), columns, indptr), shape=(bound.queries, bound.keys))

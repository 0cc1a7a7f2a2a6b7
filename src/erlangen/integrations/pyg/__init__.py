"""PyG's `TransformerConv`, `GATConv` and `GATv2Conv` on erlangen's attention: same numbers, less time."""

from erlangen.integrations.edge_index import PreparedEdges, prepare
from erlangen.integrations.pyg import additive, dot, gatv2  # each registers its kernel
from erlangen.integrations.pyg.conv import RelationConv

__all__ = ["PreparedEdges", "RelationConv", "prepare"]

del additive, dot, gatv2

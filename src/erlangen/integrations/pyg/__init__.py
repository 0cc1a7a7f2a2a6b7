"""PyG's `TransformerConv`, `GATConv` and `GATv2Conv` on erlangen's attention: same numbers, less time."""

from erlangen.integrations.pyg import dot_conv, gat_conv, gatv2_conv  # each registers its kernel
from erlangen.integrations.pyg.conv import RelationConv
from erlangen.nn.edge_index import PreparedEdges, prepare

__all__ = ["PreparedEdges", "RelationConv", "prepare"]

del gat_conv, gatv2_conv, dot_conv

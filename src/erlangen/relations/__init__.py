"""Relations as values: which keys each query reads, symbolically and, bound to sizes, exactly."""

from erlangen.relations.depth import reach
from erlangen.relations.families import Batch, Bindable, PerHead
from erlangen.relations.graphs import FromMask, Graph, Nearest, Random
from erlangen.relations.grids import Grid
from erlangen.relations.neighborhoods import Neighborhoods
from erlangen.relations.offsets import GridOffset, Offset
from erlangen.relations.orders import Causal, Empty, Full, Identity, Prefix
from erlangen.relations.partitions import Bipartite, Blocks, Documents, Global, Padding
from erlangen.relations.relation import Relation
from erlangen.relations.tiles import Tiles
from erlangen.relations.weighted import (
    ALiBi,
    Decay,
    Distance,
    RelativeBias,
    Weighted,
    WeightedNeighborhoods,
    WeightedRelation,
)
from erlangen.relations.windows import Dilated, Ring, Window

__all__ = [
    "ALiBi",
    "Batch",
    "Bindable",
    "Bipartite",
    "Blocks",
    "Causal",
    "Decay",
    "Dilated",
    "Distance",
    "Documents",
    "Empty",
    "FromMask",
    "Full",
    "Global",
    "Graph",
    "Grid",
    "GridOffset",
    "Identity",
    "Nearest",
    "Neighborhoods",
    "Offset",
    "Padding",
    "PerHead",
    "Prefix",
    "Random",
    "Relation",
    "RelativeBias",
    "Ring",
    "Tiles",
    "Weighted",
    "WeightedNeighborhoods",
    "WeightedRelation",
    "Window",
    "reach",
]

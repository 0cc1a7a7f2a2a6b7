"""Relations as values: which keys each query reads, symbolically and, bound to sizes, exactly."""

from erlangen.relations.depth import reach
from erlangen.relations.families import Batch, Bindable, PerHead
from erlangen.relations.geometries import AffinePlane, Fano, Geometry, Lines, ProjectivePlane
from erlangen.relations.graphs import FromMask, Graph, Nearest, Random
from erlangen.relations.grids import Grid
from erlangen.relations.hyper import HyperRelation, Triples
from erlangen.relations.neighborhoods import Neighborhoods
from erlangen.relations.offsets import GridOffset, Offset
from erlangen.relations.orders import Causal, Empty, Full, Identity, Prefix
from erlangen.relations.partitions import Bipartite, Blocks, Documents, Global, Padding
from erlangen.relations.relation import Relation
from erlangen.relations.tiles import Tiles
from erlangen.relations.triangles import Triangles, WindowSquared
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
    "AffinePlane",
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
    "Fano",
    "FromMask",
    "Full",
    "Geometry",
    "Global",
    "Graph",
    "Grid",
    "GridOffset",
    "HyperRelation",
    "Identity",
    "Lines",
    "Nearest",
    "Neighborhoods",
    "Offset",
    "Padding",
    "PerHead",
    "Prefix",
    "ProjectivePlane",
    "Random",
    "Relation",
    "RelativeBias",
    "Ring",
    "Tiles",
    "Triangles",
    "Triples",
    "Weighted",
    "WeightedNeighborhoods",
    "WeightedRelation",
    "Window",
    "WindowSquared",
    "reach",
]

"""Every name of the package for type checkers; written by docs/list_relations.py."""

from erlangen.relations.dense_mask import FromMask as FromMask
from erlangen.relations.families import Batch as Batch
from erlangen.relations.families import Bindable as Bindable
from erlangen.relations.families import PerHead as PerHead
from erlangen.relations.families import reach as reach
from erlangen.relations.geometries import AffinePlane as AffinePlane
from erlangen.relations.geometries import Fano as Fano
from erlangen.relations.geometries import Geometry as Geometry
from erlangen.relations.geometries import Lines as Lines
from erlangen.relations.geometries import ProjectivePlane as ProjectivePlane
from erlangen.relations.grids import Grid as Grid
from erlangen.relations.grids import GridOffset as GridOffset
from erlangen.relations.key_sets import Global as Global
from erlangen.relations.key_sets import Padding as Padding
from erlangen.relations.nearest import Nearest as Nearest
from erlangen.relations.neighborhoods import Neighborhoods as Neighborhoods
from erlangen.relations.orders import Causal as Causal
from erlangen.relations.orders import Empty as Empty
from erlangen.relations.orders import Full as Full
from erlangen.relations.orders import Identity as Identity
from erlangen.relations.orders import Prefix as Prefix
from erlangen.relations.partitions import Bipartite as Bipartite
from erlangen.relations.partitions import Blocks as Blocks
from erlangen.relations.partitions import Documents as Documents
from erlangen.relations.random_keys import Random as Random
from erlangen.relations.relation import Relation as Relation
from erlangen.relations.sparse_graph import Graph as Graph
from erlangen.relations.ternary import TernaryRelation as TernaryRelation
from erlangen.relations.ternary import Triples as Triples
from erlangen.relations.tiling import Tiles as Tiles
from erlangen.relations.triangles import Triangles as Triangles
from erlangen.relations.triangles import WindowSquared as WindowSquared
from erlangen.relations.weighted import WeightedNeighborhoods as WeightedNeighborhoods
from erlangen.relations.weighted import WeightedRelation as WeightedRelation
from erlangen.relations.weighted.distance import Distance as Distance
from erlangen.relations.weighted.falling import ALiBi as ALiBi
from erlangen.relations.weighted.falling import Decay as Decay
from erlangen.relations.weighted.general import Weighted as Weighted
from erlangen.relations.weighted.position_buckets import RelativeBias as RelativeBias
from erlangen.relations.windows import Dilated as Dilated
from erlangen.relations.windows import Offset as Offset
from erlangen.relations.windows import Ring as Ring
from erlangen.relations.windows import Window as Window

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
    "TernaryRelation",
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

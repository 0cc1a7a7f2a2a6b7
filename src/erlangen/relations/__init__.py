"""Relations as values: which keys each query reads, symbolically and, bound to sizes, exactly.

Every module of this folder is imported, and every class marked `@written` is a name of the package: a new
relation is a new file. Type checkers read `__init__.pyi`, which docs/list_relations.py writes.
"""

from erlangen.errors import ParameterError
from erlangen.packages import moved
from erlangen.relations.catalogue import WRITTEN, discover
from erlangen.relations.families import Bindable, reach
from erlangen.relations.neighborhoods import Neighborhoods
from erlangen.relations.relation import Relation
from erlangen.relations.ternary import TernaryRelation
from erlangen.relations.tiling import Tiles
from erlangen.relations.weighted import WeightedNeighborhoods, WeightedRelation

discover(__path__, __name__)
if taken := [name for name in WRITTEN if globals().get(name, WRITTEN[name]) is not WRITTEN[name]]:
    raise ParameterError(f"erlangen.relations has other things of these names: {', '.join(taken)}")
globals().update(WRITTEN)

__all__ = [
    "Bindable",
    "Neighborhoods",
    "Relation",
    "TernaryRelation",
    "Tiles",
    "WeightedNeighborhoods",
    "WeightedRelation",
    "reach",
]
__all__ = sorted([*__all__, *WRITTEN])  # pyright: ignore[reportUnsupportedDunderAll]

__getattr__ = moved(__name__, {"HyperRelation": "erlangen.relations.TernaryRelation"})

"""Weighted relations: which keys a query reads, and with which weight before the scores are known."""

from erlangen.relations.weighted.bound import WeightedNeighborhoods
from erlangen.relations.weighted.distance import Distance
from erlangen.relations.weighted.falling import ALiBi, Decay
from erlangen.relations.weighted.general import Weighted
from erlangen.relations.weighted.position_buckets import RelativeBias
from erlangen.relations.weighted.weighted_relation import WeightedRelation
from erlangen.relations.weighted.weighted_rows import WeightedRows

__all__ = [
    "ALiBi",
    "Decay",
    "Distance",
    "RelativeBias",
    "Weighted",
    "WeightedNeighborhoods",
    "WeightedRelation",
    "WeightedRows",
]

"""Verdicts with evidence: what a relation assumes, certificates to re-check, the hierarchy."""

from erlangen.taxonomy.certificates import Certificate
from erlangen.taxonomy.classify import Bias, classify
from erlangen.taxonomy.family_group import FamilyGroup
from erlangen.taxonomy.hierarchy import Hierarchy, hierarchy
from erlangen.taxonomy.ternary import TernaryBias
from erlangen.taxonomy.verify import verify

__all__ = [
    "Bias",
    "Certificate",
    "FamilyGroup",
    "Hierarchy",
    "TernaryBias",
    "classify",
    "hierarchy",
    "verify",
]

"""Verdicts with evidence: what a relation assumes, and certificates to re-check."""

from erlangen.packages import moved
from erlangen.taxonomy.certificates import Certificate
from erlangen.taxonomy.classify import Bias, classify
from erlangen.taxonomy.family_group import FamilyGroup
from erlangen.taxonomy.ternary import TernaryBias
from erlangen.taxonomy.verify import verify

__all__ = [
    "Bias",
    "Certificate",
    "FamilyGroup",
    "TernaryBias",
    "classify",
    "verify",
]

__getattr__ = moved(
    __name__, {"Hierarchy": "erlangen.paper.Hierarchy", "hierarchy": "erlangen.paper.hierarchy"}
)

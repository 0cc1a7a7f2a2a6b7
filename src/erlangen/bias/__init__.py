"""Verdicts with evidence: what a relation assumes, certificates to re-check, the hierarchy."""

from erlangen.bias.certificates import Certificate
from erlangen.bias.classify import Bias, FamilyGroup, classify
from erlangen.bias.hierarchy import Hierarchy, hierarchy
from erlangen.bias.ternary import TernaryBias
from erlangen.bias.verify import verify

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

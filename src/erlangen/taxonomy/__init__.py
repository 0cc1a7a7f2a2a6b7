"""Verdicts with evidence: what a relation assumes, certificates to re-check, the hierarchy."""

from erlangen.taxonomy.certificates import Certificate
from erlangen.taxonomy.classifier import classify
from erlangen.taxonomy.hierarchy import Hierarchy, hierarchy
from erlangen.taxonomy.verdict_values import Bias, FamilyGroup, TernaryBias
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

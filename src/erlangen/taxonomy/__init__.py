"""Verdicts with evidence: what a relation assumes, and certificates to re-check."""

from erlangen.packages import moved
from erlangen.taxonomy.certificates import Certificate
from erlangen.taxonomy.classifier import classify
from erlangen.taxonomy.verdict_values import Bias, FamilyGroup, TernaryBias
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

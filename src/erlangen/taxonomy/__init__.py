"""Verdicts with evidence: what a relation assumes, and certificates to re-check."""

import sys
import warnings
from importlib import import_module
from typing import Any

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


def __getattr__(name: str) -> Any:
    if name not in ("Hierarchy", "hierarchy"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    level = 2
    # `erlangen.hierarchy` passes by the lazy names of the package, and its user is to hear of it.
    while sys._getframe(level - 1).f_globals["__name__"].partition(".")[0] == "erlangen":
        level += 1
    warnings.warn(
        f"{name} is now in erlangen.paper, and its old places go with version 0.3: "
        f"from erlangen.paper import {name}",
        DeprecationWarning,
        stacklevel=level,
    )
    return getattr(import_module("erlangen.paper"), name)  # lies above: asked for by old programs alone

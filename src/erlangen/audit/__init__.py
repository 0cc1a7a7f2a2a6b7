"""Audit any PyTorch model: which relation does each attention call really compute?

The package is callable, as its function `audit` (below, or `help(erlangen.audit.audit)`):

    erlangen.audit(model, inputs, expect=None, *, flow=True, variants=True, feedings=None,
                   positions=None, budget=120.0, progress=None) -> Report

torch is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from erlangen.packages import lazily, make_callable

if TYPE_CHECKING:
    from erlangen.audit.api import audit
    from erlangen.audit.comparison import Comparison, Difference, compare
    from erlangen.audit.expect import AtMost
    from erlangen.audit.findings import Counterexample, Finding
    from erlangen.audit.inputs import Inputs
    from erlangen.audit.report import Coverage, Report
    from erlangen.audit.witnesses.flow import Flow, flow

__all__ = [
    "AtMost",
    "Comparison",
    "Counterexample",
    "Coverage",
    "Difference",
    "Finding",
    "Flow",
    "Inputs",
    "Report",
    "audit",
    "compare",
    "flow",
]

__getattr__, __dir__ = lazily(__name__)


make_callable(__name__)

"""The report of an audit: what was measured, what it means, and how much of the model was seen."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from erlangen.audit.capture.calls import Unexplained
from erlangen.audit.expect import Counterexample
from erlangen.audit.verdict import CallVerdict, FlowVerdict

VERDICTS = {
    "holds": "every expectation holds",
    "violated": "an expectation is violated",
    "undecided": "too little of the model was seen to say",
    "measured": "nothing was expected; the witnesses agree",
    "contradictory": "nothing was expected; the witnesses contradict each other",
}
"""Every verdict and what it says."""


@dataclass(frozen=True)
class Coverage:
    """How much of the model's attention was explained."""

    calls: int
    explained: int
    unexplained: tuple[Unexplained, ...]
    other_softmaxes: int
    """Softmax calls that were not attention (routers, classifiers)."""


@dataclass(eq=False)
class Trial:
    """The calls of one more forward pass: other inputs, or training mode."""

    label: str
    calls: list[CallVerdict]
    skipped: str | None = None
    """Why it could not be run."""
    differences: list[str] = field(default_factory=list)
    """What it shows that the given inputs do not."""
    contradictions: list[str] = field(default_factory=list)
    varying: dict[str, str] = field(default_factory=dict)
    """Module name -> what its relation depends on, where it differs at the same sizes."""


@dataclass(eq=False)
class Report:
    """What an audit found. `print(report)` is a table; `to_json()` is the same as plain data."""

    model: str
    verdict: str
    coverage: Coverage
    calls: list[CallVerdict]
    flow: FlowVerdict | None
    other_flows: list[FlowVerdict]
    trials: list[Trial]
    counterexamples: list[Counterexample]
    contradictions: list[str]
    warnings: list[str]
    data_dependent: dict[str, str]
    """Module name -> what its relation depends on, for relations that vary with the data."""
    unchanged: bool
    """Outputs bit-identical before and after the audit, and no trace left in the model."""

    @property
    def holds(self) -> bool:
        """Whether nothing expected was violated and enough was seen to say so."""
        return self.verdict in ("holds", "measured")

    @property
    def without_attention(self) -> str | None:
        """ "no attention; flow: total order" and the like; None where attention was seen or may have been.

        A softmax that was not explained may have been attention, so nothing is claimed beside one.
        """
        coverage = self.coverage
        if coverage.calls or coverage.unexplained or coverage.other_softmaxes:
            return None
        kind = None if self.flow is None else self.flow.bias or str(self.flow.relation)
        return f"no attention; flow: {'not measured' if kind is None else kind.replace('-', ' ')}"

    def to_json(self) -> dict[str, Any]:
        """The report as plain data, ready for `json.dumps`."""
        coverage = self.coverage
        none = self.without_attention
        return {
            "model": self.model,
            "verdict": self.verdict,
            "coverage": {
                "calls": coverage.calls,
                "explained": coverage.explained,
                "unexplained": len(coverage.unexplained),
            },
            "calls": [_call_json(call) for call in self.calls],
            "flow": None if self.flow is None else _flow_json(self.flow),
            "warnings": [*([] if none is None else [none]), *self.all_warnings()],
        }

    def all_warnings(self) -> list[str]:
        """Everything a reader must know: faults first, then the limits of the audit."""
        unexplained = [
            f"unexplained: {one.module or 'the model'}: {one.reason}" for one in self.coverage.unexplained
        ]
        found = [f"{trial.label}: {text}" for trial in self.trials for text in trial.differences]
        varying = [
            f"{name or 'the model'}: data-dependent: {what}" for name, what in self.data_dependent.items()
        ]
        return [*self.contradictions, *found, *varying, *unexplained, *self.warnings]

    def __str__(self) -> str:
        lines = [f"{self.model}: {self.verdict} ({VERDICTS[self.verdict]})", ""]
        lines += _table(self.groups()) if self.calls else [self.without_attention or "no attention calls"]
        lines += [
            f"{_name(calls)}: with weights: {first.weights}"
            for calls, first in self.groups()
            if first.weights is not None
        ]
        lines.append("")
        coverage = self.coverage
        lines.append(
            f"coverage: {coverage.calls} attention calls seen, {coverage.explained} explained, "
            f"{len(coverage.unexplained)} unexplained; {coverage.other_softmaxes} other softmax calls"
        )
        for flow in ([self.flow] if self.flow else []) + self.other_flows:
            lines += _flow_lines(flow)
        if self.trials:
            ran = [trial.label for trial in self.trials if trial.skipped is None]
            lines.append(f"also tried: {', '.join(ran) or 'nothing'}")
        lines += [f"violated: {example}" for example in self.counterexamples]
        lines += [f"warning: {text}" for text in self.all_warnings()]
        lines.append(
            "the model is unchanged: outputs bit-identical before and after, no hook or patch left"
            if self.unchanged
            else "THE MODEL MAY HAVE CHANGED: see the warnings"
        )
        return "\n".join(lines)

    def groups(self) -> list[tuple[list[CallVerdict], CallVerdict]]:
        """Calls with equal verdicts together, so that a hundred equal layers are one line."""
        grouped: dict[Any, list[CallVerdict]] = {}
        for call in self.calls:
            key = (
                call.kind, call.api, call.measured.kernel, call.measured.declared,
                str(call.expected), call.counterexample is None, call.weights,
            )  # fmt: skip
            grouped.setdefault(key, []).append(call)
        return [(calls, calls[0]) for calls in grouped.values()]

    def save(self, path: str | Path) -> Path:
        """Write the report as one HTML page that needs no network, and return where."""
        from erlangen.audit.page import save

        return save(self, path)

    def dumps(self) -> str:
        """The report as JSON text."""
        return json.dumps(self.to_json(), indent=2)


def _call_json(call: CallVerdict) -> dict[str, Any]:
    return {
        "module": call.module,
        "kind": call.kind,
        "queries": call.queries,
        "keys": call.keys,
        "heads": call.heads,
        "declared": None if call.declared is None else str(call.declared),
        "kernel": str(call.kernel),
        "bias": call.bias,
        "agree": call.agree,
        "expected": None if call.expected is None else str(call.expected),
        "counterexample": None if call.counterexample is None else call.counterexample.to_json(),
        **({} if call.weights is None else {"weights": call.weights.to_json()}),
    }


def _flow_json(verdict: FlowVerdict) -> dict[str, Any]:
    outside = verdict.outside_attention
    return {
        "relation": str(verdict.relation),
        "bias": verdict.bias,
        "future_edges": verdict.future_edges,
        "predicted": None if verdict.predicted_relation is None else str(verdict.predicted_relation),
        "outside_attention": None
        if outside is None
        else [edge for part in outside for edge in part.edges()[:16].tolist()],
    }


def _name(calls: list[CallVerdict]) -> str:
    """The module of a call, or the first and the last of several."""
    name = calls[0].module or "(model)"
    return name if len(calls) == 1 else f"{name} .. {calls[-1].module} ({len(calls)} calls)"


def _table(groups: list[tuple[list[CallVerdict], CallVerdict]]) -> list[str]:
    head = (
        "module",
        "kind",
        "heads",
        "queries x keys",
        "declared",
        "kernel",
        "bias",
        "symmetry",
        "agree",
        "expected",
    )
    rows: list[tuple[str, ...]] = [head]
    for calls, first in groups:
        name = _name(calls)
        expected = "-" if first.expected is None else str(first.expected)
        expected += "" if first.counterexample is None else "  VIOLATED"
        rows.append(
            (
                name,
                f"{first.kind} {first.api}",
                str(first.heads),
                f"{first.queries} x {first.keys}",
                "-" if first.declared is None else str(first.declared),
                str(first.kernel),
                first.bias or "-",
                first.symmetry or "-",
                {True: "yes", False: "NO", None: "-"}[first.agree],
                expected,
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def _flow_lines(verdict: FlowVerdict) -> list[str]:
    flow = verdict.flow
    runs = f"{flow.runs} runs{', batched' if flow.batched else ''}"
    lines = [f"flow from {flow.content}: {verdict.relation} ({runs})"]
    if verdict.outside_attention is None:
        lines.append("  not predicted by the attention calls")
    else:
        outside = sum(part.num_edges for part in verdict.outside_attention)
        missing = sum(part.num_edges for part in verdict.missing or ())
        lines.append(f"  outside attention: {outside} edges; predicted but not seen: {missing} edges")
    rounding = sum(part.num_edges for part in flow.rounding)
    if rounding:
        lines.append(f"  at the level of rounding only: {rounding} edges")
    return lines

"""The report of an audit: what was measured, what it means, and how much of the model was seen."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from erlangen.audit.capture.unexplained import Unexplained
from erlangen.audit.case import OUT_OF_TIME, Examination
from erlangen.audit.findings import Finding
from erlangen.audit.findings import lines as finding_lines
from erlangen.audit.flow_verdict import FlowVerdict
from erlangen.audit.obligations import Ledger, Obligation
from erlangen.audit.verdict import UNDECIDED, CallVerdict
from erlangen.errors import ParameterError

VERDICTS = {
    "holds": "every expectation holds",
    "violated": "an expectation is violated",
    "undecided": "not everything could be compared",
    "measured": "nothing was expected",
    "contradictory": "nothing was expected; something is wrong all the same",
}
"""Every verdict and what it says."""
KINDS = {
    "padding": "padding is read",
    "invariance": "padding changes the outputs",
    "batch": "sequences of one batch read each other",
    "labels": "outputs depend on labels",
    "finite": "outputs are not finite",
}
"""What is violated, where it is no edge that is expected or not."""

SHORT = 160
"""A reason in `repr` is cut to so many characters."""


@dataclass(frozen=True)
class Coverage:
    """How much of the model's attention was explained."""

    calls: int
    explained: int
    unexplained: tuple[Unexplained, ...]
    other_softmaxes: int
    """Softmax calls that were not attention (routers, classifiers)."""


Trial = Examination
"""One more feeding: its calls, its flows, and what it shows that the given inputs do not."""


@dataclass(eq=False)
class Report:
    """What an audit found: true where it holds. `print(report)` is a table; `to_json()` is the same as plain
    data; `repr` is one line."""

    model: str
    verdict: str
    coverage: Coverage
    calls: list[CallVerdict]
    flow: FlowVerdict | None
    other_flows: list[FlowVerdict]
    """The flows from other inputs to the same output."""
    trials: list[Examination]
    contradictions: list[str]
    warnings: list[str]
    data_dependent: dict[str, str]
    """Module name -> what its relation depends on, for relations that vary with the data."""
    unchanged: bool
    """Outputs bit-identical before and after the audit, and no trace left in the model."""
    obligations: Ledger
    """Everything that was to be compared, and how each comparison ended; the verdict is a fold over it."""
    flows: list[FlowVerdict] = field(default_factory=list)
    """Every flow of the given inputs: from each input to each output."""
    tried: dict[str, Any] = field(default_factory=dict)
    """Lengths, batch sizes, modes, feedings and the range of tokens that were tried."""
    not_tried: dict[str, str] = field(default_factory=dict)
    """What was not tried -> why."""
    not_judged: list[str] = field(default_factory=list)
    """Modules whose calls the expectation does not speak about."""

    def settle(self, expected: bool) -> None:
        """Take the verdict from the obligations."""
        verdict = self.obligations.verdict()
        if not expected:
            self.contradictions += [str(one) for one in self.findings if str(one) not in self.contradictions]
            broken = verdict == "violated" or bool(self.contradictions)
            verdict = "contradictory" if broken else "measured"
        self.verdict = verdict

    @property
    def holds(self) -> bool:
        """Whether nothing expected was violated and everything was compared."""
        return self.verdict in ("holds", "measured")

    def __bool__(self) -> bool:
        return self.holds

    @property
    def verdict_text(self) -> str:
        """The verdict in words; of a violation what is violated, where no expected relation is."""
        kinds = dict.fromkeys(KINDS.get(one.kind) for one in self.findings)
        told = [one for one in kinds if one is not None]
        return (
            ", ".join(told)
            if self.verdict == "violated" and len(told) == len(kinds)
            else VERDICTS[self.verdict]
        )

    @property
    def findings(self) -> list[Finding]:
        """Why obligations are broken, each once."""
        return self.obligations.findings

    @property
    def counterexamples(self) -> list[Finding]:
        """The edges that break the expectation."""
        return [one for one in self.findings if one.kind in ("edge", "silent")]

    @property
    def open(self) -> list[Obligation]:
        """What could not be compared, with the reasons."""
        return self.obligations.opened

    @property
    def without_attention(self) -> str | None:
        """ "no attention; flow: total order" and the like; None where attention was seen or may have been.

        A softmax that was not explained may have been attention, so nothing is claimed beside one.
        """
        coverage = self.coverage
        if coverage.calls or coverage.unexplained or coverage.other_softmaxes:
            return None
        if self.flow is None:
            return "no attention; flow: not measured"
        kind = None if self.flow.bias == UNDECIDED else self.flow.bias
        return f"no attention; flow: {(kind or self.flow.relation_text).replace('-', ' ')}"

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
            "findings": [one.to_json() for one in self.findings],
            "obligations": [one.to_json() for one in self.obligations],
            "tried": self.tried,
            "not_tried": self.not_tried,
            "not_judged": self.not_judged,
        }

    def all_warnings(self) -> list[str]:
        """Everything a reader must know: faults first, then the limits of the audit."""
        varying = [
            f"{name or 'the model'}: data-dependent: {what}" for name, what in self.data_dependent.items()
        ]
        return [*self.contradictions, *self._differences(), *varying, *self._unexplained(), *self.warnings]

    def serious(self) -> list[str]:
        """What may be wrong although nothing that was expected is: contradictions, differences, unseen
        calls."""
        return [*self.contradictions, *self._differences(), *self._unexplained()]

    def _unexplained(self) -> list[str]:
        seen = self.coverage.unexplained
        return [f"unexplained: {one.module or 'the model'}: {one.reason}" for one in seen]

    def _differences(self) -> list[str]:
        """What other feedings showed and the given inputs did not, each text once."""
        told: dict[str, list[str]] = {}
        for trial in self.trials:
            for text in trial.differences:
                told.setdefault(text, []).append(trial.label)
        return [f"{', '.join(labels)}: {text}" for text, labels in told.items()]

    def __repr__(self) -> str:
        """One line: the verdict, the model, the number of calls, and why."""
        calls = self.coverage.calls
        told = [f"{self.verdict}: {self.model}, {calls} attention call{'s' * (calls != 1)}"]
        reasons = [str(one) for one in self.findings] or self.contradictions[:]
        reasons = reasons or [f"open: {one}" for one in self.open]
        if reasons:
            more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
            told.append(_cut(" ".join(reasons[0].split())) + more)
        return f"<Report {'; '.join(told)}>"

    def _repr_html_(self) -> str:
        """The table, for a notebook; the page of `save` is a document of its own."""
        return f'<pre style="overflow-x: auto; white-space: pre">{escape(str(self))}</pre>'

    def __str__(self) -> str:
        lines = [self.verdict_line(), ""]
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
        if self.not_tried:
            lines.append("not tried: " + "; ".join(f"{name} ({why})" for name, why in self.not_tried.items()))
        lines += [f"violated: {text}" for text in finding_lines(self.findings)]
        lines += [f"open: {text}" for text in dict.fromkeys(str(one) for one in self.open)]
        lines += [f"warning: {text}" for text in self.all_warnings()]
        lines.append(
            "the model is unchanged: outputs bit-identical before and after, no hook or patch left"
            if self.unchanged
            else "THE MODEL MAY HAVE CHANGED: see the warnings"
        )
        return "\n".join(lines)

    def verdict_line(self) -> str:
        """The verdict with what was tried: a verdict says nothing about other lengths, modes or feedings."""
        said = self.tried_text()
        return f"{self.model}: {self.verdict} ({self.verdict_text})" + (f"; tried: {said}" if said else "")

    def tried_text(self) -> str:
        """Lengths, batch sizes, modes, feedings and tokens that were tried, in words."""
        tried, parts = self.tried, []
        if tried.get("lengths"):
            parts.append(f"n = {', '.join(map(str, tried['lengths']))}")
        if tried.get("batch"):
            parts.append(f"batch {', '.join(map(str, tried['batch']))}")
        if tried.get("modes"):
            parts.append(", ".join(tried["modes"]))
        if tried.get("feedings"):
            added = "".join(f", with {name} added by the audit" for name in tried.get("added", ()))
            parts.append(f"feedings {', '.join(tried['feedings'])}{added}")
        if tried.get("tokens"):
            parts.append("tokens {} to {}".format(*tried["tokens"]))
        for label, (count, of) in tried.get("sampled", {}).items():
            if label == "given":
                groups = tried.get("groups", {}).get(label, 0)
                at_once = f", {groups} group{'s' * (groups > 1)} of them at once" if groups else ""
                parts.append(f"{count} of {of} positions changed one by one{at_once}")
        if tried.get("beside attention"):
            parts.append("all positions changed beside attention, each call of which was measured whole")
        late = [name for name, why in self.not_tried.items() if why == OUT_OF_TIME]
        if late:
            parts.append(f"no time for {', '.join(late)}")
        if self.not_judged and self.verdict not in ("measured", "contradictory"):
            parts.append(self.not_judged_text())
        return "; ".join(parts)

    def not_judged_text(self) -> str:
        """The modules whose calls the expectation does not speak about, in words."""
        names = ", ".join(self.not_judged[:4]) + (" and more" if len(self.not_judged) > 4 else "")
        return f"nothing was expected of {names}"

    def groups(self) -> list[tuple[list[CallVerdict], CallVerdict]]:
        """Calls with equal verdicts together, so that a hundred equal layers are one line."""
        return grouped(self.calls)

    def save(self, path: str | Path) -> Path:
        """Write the report as one HTML page that needs no network, or to a name that ends in .json as JSON,
        and return where."""
        from erlangen.audit.page import save

        path = Path(path)
        if path.suffix == ".json":
            path.write_text(self.dumps(), encoding="utf-8")
            return path
        if path.suffix not in (".html", ".htm"):
            raise ParameterError(f"a report is saved as a page (.html) or as data (.json), got {str(path)!r}")
        return save(self, path)

    def dumps(self) -> str:
        """The report as JSON text; a number that is not finite, which JSON does not have, is null."""
        return json.dumps(_finite(self.to_json()), indent=2, allow_nan=False)


def grouped(calls: list[CallVerdict]) -> list[tuple[list[CallVerdict], CallVerdict]]:
    """Calls with equal verdicts together: (all of them, the first)."""
    found: dict[Any, list[CallVerdict]] = {}
    for call in calls:
        key = (
            call.kind, call.api, call.measured.kernel, call.measured.declared,
            call.expected, call.counterexample is None, call.weights,
        )  # fmt: skip
        found.setdefault(key, []).append(call)
    return [(several, several[0]) for several in found.values()]


def _finite(value: Any) -> Any:
    """Plain data without NaN and infinities."""
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _cut(text: str) -> str:
    return text if len(text) <= SHORT else f"{text[: SHORT - 3]}..."


def _call_json(call: CallVerdict) -> dict[str, Any]:
    return {
        "module": call.module,
        "kind": call.kind,
        "queries": call.queries,
        "keys": call.keys,
        "heads": call.heads,
        "declared": call.declared_text,
        "kernel": call.kernel_text,
        "bias": call.bias,
        "agree": call.agree,
        "expected": call.expected_text,
        "counterexample": None if call.counterexample is None else call.counterexample.to_json(),
        **({} if call.weights is None else {"weights": call.weights.to_json()}),
    }


def _flow_json(verdict: FlowVerdict) -> dict[str, Any]:
    outside = verdict.outside_attention
    return {
        "relation": verdict.relation_text,
        "bias": verdict.bias,
        "future_edges": verdict.future_edges,
        "predicted": verdict.predicted_text,
        "outside_attention": None
        if outside is None
        else [edge for part in outside for edge in part.edges()[:16].tolist()],
    }


def _name(calls: list[CallVerdict]) -> str:
    """The module of a call, or several: the first and the last, unless two calls are two modules."""
    name, last = calls[0].module or "(model)", calls[-1].module
    if len(calls) == 2:
        return f"{name}, {last or '(model)'}" if last != calls[0].module else f"{name} (2 calls)"
    return name if len(calls) == 1 else f"{name} .. {last} ({len(calls)} calls)"


def _table(groups: list[tuple[list[CallVerdict], CallVerdict]]) -> list[str]:
    head = (
        "module", "kind", "heads", "queries x keys", "declared", "kernel", "bias", "symmetry", "agree",
        "expected",
    )  # fmt: skip
    rows: list[tuple[str, ...]] = [head]
    for calls, first in groups:
        name = _name(calls)
        expected = first.expected_text or "-"
        expected += "" if first.counterexample is None else "  VIOLATED"
        rows.append(
            (
                name,
                f"{first.kind} {first.api}",
                str(first.heads),
                f"{first.queries} x {first.keys}",
                first.declared_text or "-",
                first.kernel_text,
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
    relation = verdict.relation_text if flow.complete else verdict.text()
    lines = [f"flow from {flow.content}: {relation} ({flow.runs} runs)"]
    if verdict.outside_attention is None:
        if any(seen.num_edges for seen in flow.relations):
            lines.append("  the attention calls alone do not tell what it should be")
    else:
        outside = sum(part.num_edges for part in verdict.outside_attention)
        missing = sum(part.num_edges for part in verdict.missing or ())
        lines.append(f"  outside attention: {outside} edges; predicted but not seen: {missing} edges")
    rounding = sum(part.num_edges for part in flow.rounding)
    if rounding:
        lines.append(f"  at the level of rounding only: {rounding} edges")
    return lines

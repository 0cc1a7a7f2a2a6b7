"""The report as one page that needs no network: every call with its picture, the flow, coverage, warnings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from erlangen.audit.expect import bind_expected
from erlangen.audit.findings import merged
from erlangen.audit.flow_verdict import FlowVerdict
from erlangen.audit.picture import Picture, picture
from erlangen.audit.report import VERDICTS, Report
from erlangen.audit.verdict import CallVerdict
from erlangen.audit.wording import ranges
from erlangen.relations import Neighborhoods

PANELS = 6
"""Pictures shown of one group of calls; heads and items that agree share one."""
TONES = {"holds": "good", "measured": "good", "violated": "bad", "contradictory": "bad", "undecided": "open"}
"""Verdict -> the colour it has."""
LONG = 160
"""Expressions longer than this are cut; the picture shows the rest."""


@dataclass(frozen=True)
class Group:
    """Calls with equal verdicts: one card of the page."""

    letter: str
    calls: list[CallVerdict]
    panels: list[Picture]
    hidden: int
    """How many more pictures there are."""

    @property
    def first(self) -> CallVerdict:
        """The call that stands for all."""
        return self.calls[0]

    @property
    def state(self) -> str:
        """Violated or contradictory is "bad", as expected "good", nothing expected "plain"."""
        if self.first.counterexample is not None or self.first.agree is False:
            return "bad"
        return "plain" if self.first.expected is None else "good"


def save(report: Report, path: str | Path) -> Path:
    """Write the page and return where."""
    path = Path(path)
    path.write_text(render(report), encoding="utf-8")
    return path


def render(report: Report) -> str:
    """The page as text. Every name that comes from the model is escaped."""
    environment = Environment(
        loader=PackageLoader("erlangen.audit"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["short"] = short
    groups = [_group(number, calls) for number, (calls, _) in enumerate(report.groups())]
    letters = {id(call): group for group in groups for call in group.calls}
    flows = [flow for flow in (report.flow, *report.other_flows) if flow is not None]
    return environment.get_template("report.html").render(
        report=report,
        verdict_text=VERDICTS[report.verdict],
        tone=TONES[report.verdict],
        faults=merged(report.findings),
        others=[text for text in report.contradictions if text not in map(str, report.findings)],
        groups=groups,
        strip=[(call, letters[id(call)]) for call in report.calls],
        flows=[(flow, _flow_pictures(flow)) for flow in flows],
        future=[flow.future_edges for flow in flows if flow.future_edges is not None],
        notes=[text for text in report.all_warnings() if text not in report.contradictions],
    )


def short(value: Any) -> str:
    """Text of at most LONG characters.

    >>> short("Causal()")
    'Causal()'
    """
    text = str(value)
    return text if len(text) <= LONG else f"{text[: LONG - 3]}..."


def _letter(number: int) -> str:
    """A, B, ..., Z, A1, B1, ..."""
    return chr(ord("A") + number % 26) + (str(number // 26) if number >= 26 else "")


def _group(number: int, calls: list[CallVerdict]) -> Group:
    first = calls[0]
    broken = first.counterexample
    places: dict[tuple[Neighborhoods, Neighborhoods | None, bytes], list[tuple[int, int]]] = {}
    for item, heads in enumerate(first.measured.kernel.items):
        keys = None if first.real_keys is None else first.real_keys[min(item, len(first.real_keys) - 1)]
        rows = (
            None if first.real_queries is None else first.real_queries[min(item, len(first.real_queries) - 1)]
        )
        for head, bound in enumerate(heads):
            wanted = None
            if first.expected is not None:
                wanted = bind_expected(first.expected, first.measured, item, head, keys)
            kind = bound, wanted, b"" if rows is None else rows.tobytes()
            places.setdefault(kind, []).append((item, head))
    panels = []
    for (bound, wanted, _), where in places.items():
        item = where[0][0]
        rows = (
            None if first.real_queries is None else first.real_queries[min(item, len(first.real_queries) - 1)]
        )
        at = broken is not None and any(broken.item == b and broken.head in (None, h) for b, h in where)
        edge = broken.pair if broken is not None and at else None
        panels.append((not at, picture(bound, wanted, real=rows, edge=edge, label=_where(where, first))))
    panels.sort(key=lambda pair: pair[0])  # the broken one first; otherwise in order
    drawn = [panel for _, panel in panels]
    return Group(_letter(number), calls, drawn[:PANELS], max(0, len(drawn) - PANELS))


def _where(places: list[tuple[int, int]], call: CallVerdict) -> str:
    """Which batch items and heads a picture is of."""
    items = sorted({item for item, _ in places})
    heads = sorted({head for _, head in places})
    if len(places) == call.measured.kernel.batch * call.measured.kernel.heads:
        return "every head" if call.heads > 1 else ""
    if len(items) == call.measured.kernel.batch:
        return f"head {ranges(heads)}"
    return f"item {ranges(items)}" + (f", head {ranges(heads)}" if len(heads) < call.heads else "")


def _flow_pictures(flow: FlowVerdict) -> list[Picture]:
    """Measured dependence, dependences outside attention (or beyond the expectation) in orange."""
    drawn: dict[Any, Picture] = {}
    broken = flow.counterexample
    for item, bound in enumerate(flow.flow.relations):
        rows = None
        if flow.real is not None and flow.real.shape[-1] == bound.queries:
            rows = flow.real[min(item, len(flow.real) - 1)]
        wanted = bound
        if flow.outside_attention is not None:
            wanted = wanted - flow.outside_attention[item]
        if flow.missing is not None:
            wanted = wanted | flow.missing[item]
        edge = broken.pair if broken is not None and broken.item == item else None
        key = bound, wanted, None if rows is None else rows.tobytes()
        if key not in drawn:
            label = "" if len(set(flow.flow.relations)) == 1 else f"item {item}"
            drawn[key] = picture(bound, wanted, real=rows, edge=edge, label=label)
    return list(drawn.values())[:PANELS]

"""The report as one page that needs no network: every call with its picture, the flow, coverage, warnings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from erlangen.audit.expect import bind_expected
from erlangen.audit.findings import Finding, merged
from erlangen.audit.flow_verdict import FlowVerdict
from erlangen.audit.report import Report, grouped
from erlangen.audit.support import of_item
from erlangen.audit.verdict import CallVerdict
from erlangen.audit.wording import ranges
from erlangen.relations import Neighborhoods
from erlangen.show import palette
from erlangen.show.svg import Picture, picture

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
    broken: Finding | None = None
    """The edge that is wrong, if any."""

    @property
    def first(self) -> CallVerdict:
        """The call that stands for all."""
        return self.calls[0]

    @property
    def state(self) -> str:
        """Violated or contradictory is "bad", as expected "good", nothing expected "plain"."""
        if self.broken is not None or self.first.agree is False:
            return "bad"
        return "plain" if self.first.expected is None else "good"


def save(report: Report, path: str | Path) -> Path:
    """Write the page and return where."""
    path = Path(path)
    path.write_text(render(report), encoding="utf-8")
    return path


def render(report: Report) -> str:
    """The page as text. Every name that comes from the model is escaped."""
    groups = [_group(number, calls, report) for number, (calls, _) in enumerate(grouped(report.calls))]
    letters = {id(call): group for group in groups for call in group.calls}
    flows = [flow for flow in (report.flow, *report.other_flows) if flow is not None]
    # An output of its own, or the rows before a pooled one, has a card where it is wrong.
    flows += [flow for flow in report.flows if flow.counterexample is not None and flow not in flows]
    elsewhere = _elsewhere(report, len(groups))
    measured = [*flows, *(flow for _, _, others in elsewhere for flow, _ in others)]
    return (
        environment()
        .get_template("report.html")
        .render(
            report=report,
            verdict_text=report.verdict_text,
            tone=TONES[report.verdict],
            faults=merged(report.findings),
            others=[text for text in report.contradictions if text not in map(str, report.findings)],
            groups=groups,
            strip=[(call, letters[id(call)]) for call in report.calls],
            flows=[(flow, _flow_pictures(flow)) for flow in flows],
            elsewhere=elsewhere,
            wrong={trial.label: _wrong(report, trial.label) for trial in report.trials},
            future=[flow.future_edges for flow in measured if flow.future_edges is not None],
            notes=[text for text in report.all_warnings() if text not in report.contradictions],
        )
    )


def environment() -> Environment:
    """The templates of pages; whatever is put into them is escaped."""
    found = Environment(
        loader=PackageLoader("erlangen.audit"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters["short"] = short
    found.globals["palette"] = palette
    return found


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


def _elsewhere(
    report: Report, number: int
) -> list[tuple[str, list[Group], list[tuple[FlowVerdict, list[Picture]]]]]:
    """What is wrong under another feeding and not on the given inputs: (feeding, calls, flows)."""
    found = []
    for trial in report.trials:
        here = [one for one in report.findings if one.where == trial.label]
        calls = [call for call in trial.calls if _broken(call, report) is not None]
        groups = [_group(number + k, several, report) for k, (several, _) in enumerate(grouped(calls))]
        flows = [
            flow
            for flow in trial.flows
            if flow.counterexample is not None and any(_about(one, flow) for one in here)
        ]
        if groups or flows:
            found.append((trial.label, groups, [(flow, _flow_pictures(flow)) for flow in flows]))
            number += len(groups)
    return found


def _wrong(report: Report, label: str) -> str | None:
    """What a feeding showed of the findings, in words."""
    new = sum(one.where == label for one in report.findings)
    same = sum(label in one.also for one in report.findings)
    told = [f"{new} finding{'s' * (new != 1)} of its own"] if new else []
    told += [f"{same} finding{'s' * (same != 1)} as before"] if same else []
    return ", ".join(told) or None


def _broken(call: CallVerdict, report: Report) -> Finding | None:
    """The finding about an edge of this call under its feeding."""
    same = [one for one in report.findings if one.module == call.module and one.where == call.where]
    return next((one for one in same if one.pair is not None), None)


def _about(finding: Finding, flow: FlowVerdict) -> bool:
    return finding.content == flow.flow.content and finding.output == (flow.flow.output or None)


def _group(number: int, calls: list[CallVerdict], report: Report) -> Group:
    first = calls[0]
    broken = first.counterexample or _broken(first, report)
    places: dict[tuple[Neighborhoods, Neighborhoods | None, bytes], list[tuple[int, int]]] = {}
    for item, heads in enumerate(first.measured.kernel.items):
        keys = None if first.real_keys is None else of_item(first.real_keys, item)
        rows = None if first.real_queries is None else of_item(first.real_queries, item)
        for head, bound in enumerate(heads):
            wanted = None
            if first.expected is not None:
                wanted = bind_expected(first.expected, first.measured, item, head, keys)
            kind = bound, wanted, b"" if rows is None else rows.tobytes()
            places.setdefault(kind, []).append((item, head))
    panels = []
    for (bound, wanted, _), where in places.items():
        item = where[0][0]
        rows = None if first.real_queries is None else of_item(first.real_queries, item)
        at = broken is not None and any(broken.item == b and broken.head in (None, h) for b, h in where)
        edge = broken.pair if broken is not None and at else None
        panels.append((not at, picture(bound, wanted, real=rows, edge=edge, label=_where(where, first))))
    panels.sort(key=lambda pair: pair[0])  # the broken one first; otherwise in order
    drawn = [panel for _, panel in panels]
    return Group(_letter(number), calls, drawn[:PANELS], max(0, len(drawn) - PANELS), broken)


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
    """Measured dependence; what breaks the expectation in orange, or else what lies outside attention."""
    drawn: dict[Any, Picture] = {}
    broken = flow.counterexample
    judged = {flow.flow.relations[item] for item in flow.wrong}
    for item, bound in enumerate(flow.flow.relations):
        if bound in judged and item not in flow.wrong:
            continue  # the first item that is wrong stands for those that read the same
        rows = None
        if flow.real is not None and flow.real.shape[-1] == bound.queries:
            rows = of_item(flow.real, item)
        wanted = bound
        if item in flow.wrong:
            edges, extra = flow.wrong[item]
            wanted = bound - edges if extra else bound | edges
        elif flow.outside_attention is not None:
            wanted = wanted - flow.outside_attention[item]
        if flow.missing is not None and item not in flow.wrong:
            wanted = wanted | flow.missing[item]
        edge = broken.pair if broken is not None and broken.item == item else None
        key = bound, wanted, None if rows is None else rows.tobytes()
        if key not in drawn:
            label = "" if len(set(flow.flow.relations)) == 1 else f"item {item}"
            drawn[key] = picture(bound, wanted, real=rows, edge=edge, label=label)
    return list(drawn.values())[:PANELS]

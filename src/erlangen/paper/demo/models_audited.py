"""Chapter: the paper's Table 2 on the models themselves, as their libraries ship them."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from erlangen.audit.report import Report
from erlangen.paper.table2 import architectures
from erlangen.paper.table2.measured import YES_NO, Architecture, Outcome, examine


def chapter(console: Console, out: Path) -> None:
    """Audit an implementation of every row, print claimed beside measured, and write a page for each.

    The rows and the verdicts are those of `erlangen table2`, which audits all implementations.
    """
    console.print("Models, small and with random weights; what each attention call really reads:")
    table = Table("model", "claimed in Table 2", "measured, call by call", "outputs depend on", "agrees")
    written, outcomes = [], []
    for row in track(architectures.TABLE2, "auditing", console=console, transient=True):
        found, report = _first_installed(row)
        flow = "-" if report is None or report.flow is None else _text(report.flow.relation_text)
        lines = "\n".join(found.measured) or found.implementations[0].missing
        table.add_row(row.model, row.claimed, lines, flow, YES_NO[found.agrees])
        outcomes.append(found)
        if report is not None:
            written.append(report.save(out / f"audit-{row.model.lower()}.html"))
    console.print(table)
    for outcome in outcomes:
        console.print(_told(outcome), markup=False, soft_wrap=True)
    console.print('All implementations: "erlangen table2"', markup=False)
    for path in written:
        console.print(f"wrote {path}", markup=False, soft_wrap=True)


def _first_installed(row: Architecture) -> tuple[Outcome, Report | None]:
    """The row as its first implementation that is installed has it, and the report of the audit."""
    audited = (examine(one) for one in row.implementations)
    measured, report = next((pair for pair in audited if pair[1] is not None), (None, None))
    if measured is None:
        return Outcome(row, tuple(examine(one)[0] for one in row.implementations[:1])), None
    return Outcome(row, (measured,)), report


def _told(outcome: Outcome) -> str:
    """Why a claim holds or not; of attention said to read the past alone, also the first key ahead."""
    one, row = outcome.implementations[0], outcome.architecture
    told = f"{row.model} ({one.name}): {outcome.why}."
    if row.claimed in ("masked", "strided"):
        for call in one.calls:
            ahead = [(i, j) for i, j in call.bounds[0].edges().tolist() if j > i]
            if ahead:
                i, j = ahead[0]
                return f"{told} In {call.module} query {i} reads key {j}, which lies ahead of it."
    return told


def _text(text: str) -> str:
    return text if len(text) <= 44 else f"{text[:41]}..."

"""`erlangen theorems`: every item of the paper, checked now, on real layers, real models, exact relations."""

from __future__ import annotations

import json
from collections import Counter
from time import perf_counter
from typing import TYPE_CHECKING, Annotated

import typer

from erlangen.commands.exit_codes import reports_errors

if TYPE_CHECKING:
    from erlangen.paper.theorems import Finding

HELP = """Check the paper's items: definitions, theorems, proofs, tables, figures, code, appendix A.

For each: what the paper says, and whether that holds as printed, as meant and by its proof (holds, with
correction, fails), with the counterexample or the slip; what holds instead, and how that is known. Table 2,
Figure 5, footnote 4 and appendix A are measured on the models, which takes most of the time. Exit code 1
when a check fails.

\b
Examples:
  erlangen theorems
  erlangen theorems --item "Theorem 6"
  erlangen theorems --json
"""

FAILED = 1
"""Exit code when some item is not verified."""


@reports_errors
def theorems(
    item: Annotated[str | None, typer.Option("--item", help='One item, such as "Theorem 6".')] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON instead.")] = False,
) -> None:
    """Run the checks and print what came of them."""
    start = perf_counter()
    findings = run_with_progress(item)
    if as_json:
        typer.echo(json.dumps([finding.as_dict() for finding in findings]))
    else:
        print_findings(findings, perf_counter() - start)
    if not all(finding.verified for finding in findings):
        raise typer.Exit(FAILED)


def run_with_progress(item: str | None) -> list[Finding]:
    """Run the checks with a progress bar on standard error, which names the item or the model at work."""
    from rich.console import Console
    from rich.progress import Progress

    from erlangen.paper.theorems import ITEMS, run

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("checking", total=len(ITEMS) if item is None else 1)
        return run(item, lambda what, done: progress.update(task, description=what, completed=done))


STYLES = {"holds": "green", "with correction": "yellow", "fails": "red", "none": "dim", "open": "bold red"}


def print_findings(findings: list[Finding], seconds: float) -> None:
    """Each finding in a few lines, and the counts."""
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    console = Console(highlight=False)
    for finding in findings:
        columns = {"as printed": finding.printed, "as meant": finding.meant, "proof": finding.proof}
        head = Text(finding.item, style="bold")
        for name, judged in columns.items():
            head.append(f"   {name} ", style="not bold dim")
            head.append("-" if judged.verdict == "none" else judged.verdict, style=STYLES[judged.verdict])
        console.print(head)
        lines = [Text.assemble(("The paper: ", "dim"), finding.paper)]
        for why in dict.fromkeys(judged.why for judged in columns.values() if judged.why):
            names = ", ".join(name for name, judged in columns.items() if judged.why == why)
            lines.append(Text.assemble((f"Against it ({names}): ", "dim"), (why, "yellow")))
        lines.append(Text.assemble(("What holds: ", "dim"), finding.corrected))
        style = "" if finding.verified else "bold red"
        lines.append(Text.assemble(("Evidence: ", "dim"), (finding.evidence, style)))
        for line in lines:
            console.print(Padding(line, (0, 0, 0, 2)))
        console.print()
    for finding in findings:
        if not finding.verified:
            console.print(f"NOT VERIFIED: {finding.item}", style="bold red")
    verified = sum(finding.verified for finding in findings)
    console.print(f"{verified} of {len(findings)} verified, in {seconds:.0f} s.")
    for group, beyond in (("Of the paper", False), ("Beyond it", True)):
        chosen = [finding for finding in findings if finding.beyond == beyond]
        if chosen:
            console.print(f"{group}: {counted(chosen)}.", soft_wrap=True)


def counted(findings: list[Finding]) -> str:
    """How many items hold, hold with a correction and fail, in each column.

    >>> from erlangen.paper.theorems import run
    >>> counted(run("Corollary 1"))
    'as printed 1 holds; as meant 1 holds; proof 1 with correction'
    """
    parts = []
    for name, column in (("as printed", "printed"), ("as meant", "meant"), ("proof", "proof")):
        verdicts = Counter(getattr(finding, column).verdict for finding in findings)
        told = [
            f"{number} {verdict.removesuffix('s') if number > 1 else verdict}"
            for verdict in STYLES
            if verdict != "none" and (number := verdicts[verdict])
        ]
        if told:
            parts.append(f"{name} {', '.join(told)}")
    return "; ".join(parts)

"""`erlangen theorems`: every statement of the paper, checked now, on real layers and exact relations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from erlangen.commands.errors import reports_errors

if TYPE_CHECKING:
    from erlangen.paper.theorems import Finding

HELP = """Check every numbered statement of the paper: definitions, propositions, theorems, tables, code.

For each: what the paper says, whether it holds as printed, what holds instead, how that is known, and the
counterexample. Exit code 1 when a check fails.

\b
Examples:
  erlangen theorems
  erlangen theorems --item "Theorem 6"
  erlangen theorems --json
"""

FAILED = 1
"""Exit code when some item is not verified."""


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("theorems", help=HELP)(theorems)


@reports_errors
def theorems(
    item: Annotated[str | None, typer.Option("--item", help='One item, such as "Theorem 6".')] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON instead.")] = False,
) -> None:
    """Run the checks and print what came of them."""
    from erlangen.paper.theorems import run

    findings = run(item)
    if as_json:
        import json

        typer.echo(json.dumps([finding.as_dict() for finding in findings]))
    else:
        print_findings(findings)
    if not all(finding.verified for finding in findings):
        raise typer.Exit(FAILED)


def print_findings(findings: list[Finding]) -> None:
    """The findings as a table, and the count."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    table = Table(box=box.SIMPLE, header_style="bold", show_lines=True, pad_edge=False, expand=True)
    table.add_column("item", width=14)
    table.add_column("the paper says", ratio=3)
    table.add_column("as printed", justify="center", width=7)
    table.add_column("what holds, and the counterexample", ratio=5)
    table.add_column("evidence", ratio=2)
    for finding in findings:
        holds = Text(finding.corrected)
        if finding.counterexample is not None:
            holds.append(f"\nCounterexample: {finding.counterexample}", style="yellow")
        evidence = Text(finding.evidence, style="" if finding.verified else "bold red")
        printed = Text("yes", style="green") if finding.holds_as_printed else Text("no", style="yellow")
        table.add_row(Text(finding.item), Text(finding.paper), printed, holds, evidence)
    console.print(table)
    for finding in findings:
        if not finding.verified:
            console.print(f"NOT VERIFIED: {finding.item}", style="bold red")
    verified = sum(finding.verified for finding in findings)
    printed = sum(finding.holds_as_printed for finding in findings)
    console.print(
        f"{verified} of {len(findings)} verified; {printed} hold as printed, the others as corrected."
    )

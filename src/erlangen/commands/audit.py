"""`erlangen audit`: which relation does each attention call of a model really compute?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from erlangen.commands.errors import reports_errors

if TYPE_CHECKING:
    from erlangen.audit.report import Report

HELP = """Measure which relation each attention call of a model really computes.

TARGET is transformers:MODEL_TYPE (built small from its configuration, with random weights: nothing is
downloaded), file.py:factory or package.module:factory, a function that returns (model, inputs). Naming a
factory runs its code.

\b
Exit codes: 0 what was expected holds, 1 it is violated, 2 bad usage, 3 not everything could be compared.
Without --expect: 0 when nothing is wrong, 1 when something is (padding read, items mixed, NaN), 3 as above.

\b
Examples:
  erlangen audit transformers:gpt2 --expect "Causal()"
  erlangen audit transformers:mistral --n 64 --html report.html
  erlangen audit my_model.py:build --expect "Causal() & Window(lookback=127)"
"""

EXIT = {"holds": 0, "measured": 0, "violated": 1, "contradictory": 1, "undecided": 3}
"""Verdict -> exit code; `measured` needs every comparison made as well, see `exit_code`."""


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("audit", help=HELP)(audit)


@reports_errors
def audit(
    target: Annotated[str, typer.Argument(metavar="TARGET", help="The model to audit.")],
    expect: Annotated[
        str | None,
        typer.Option(
            "--expect", metavar="EXPRESSION", help="The relation expected of every self-attention call."
        ),
    ] = None,
    n: Annotated[int | None, typer.Option("--n", help="The length of the sequence.")] = None,
    html: Annotated[
        Path | None, typer.Option("--html", help="Also write the report as a page that needs no network.")
    ] = None,
    flow: Annotated[
        bool,
        typer.Option("--flow/--no-flow", help="Also measure what the outputs depend on, by changing inputs."),
    ] = True,
    feedings: Annotated[
        str | None,
        typer.Option(
            "--feedings",
            metavar="NAMES",
            help="Which other ways of feeding to try, by commas; all by default.",
        ),
    ] = None,
    positions: Annotated[
        str | None,
        typer.Option(
            "--positions", metavar="NUMBERS", help="The positions to change, by commas; all by default."
        ),
    ] = None,
    budget: Annotated[float, typer.Option("--budget", help="About how many seconds it may take.")] = 120.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON instead.")] = False,
) -> None:
    """Parse, build, audit, print."""
    from erlangen.errors import ParameterError
    from erlangen.relations import HyperRelation
    from erlangen.relations.parse import parse

    relation: Any = None if expect is None else parse(expect)
    if isinstance(relation, HyperRelation):
        raise ParameterError(f"--expect takes a pairwise relation; {relation} is ternary")
    if html is not None and not html.parent.is_dir():
        raise typer.BadParameter(f"there is no directory {html.parent}", param_hint="--html")
    options: dict[str, Any] = {"flow": flow, "budget": budget}
    if feedings is not None:
        options["feedings"] = [name.strip() for name in feedings.split(",") if name.strip()]
    if positions is not None:
        try:
            options["positions"] = [int(number) for number in positions.split(",")]
        except ValueError as error:
            raise typer.BadParameter(
                f"expected numbers with commas between them, got {positions!r}", param_hint="--positions"
            ) from error
    report = _measured(target, n, relation, options)
    if html is not None:
        report.save(html)
    typer.echo(report.dumps() if as_json else str(report))
    if html is not None and not as_json:
        typer.echo(f"wrote {html}")
    raise typer.Exit(exit_code(report))


def exit_code(report: Report) -> int:
    """0, 1 or 3: what was expected holds, is violated, or cannot be told from what was seen."""
    if report.verdict == "measured" and (report.open or not len(report.obligations)):
        return 3
    return EXIT[report.verdict]


def _measured(target: str, n: int | None, relation: Any, options: dict[str, Any]) -> Report:
    """Build and audit under a progress bar on standard error, so that standard output is the report alone."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=24), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        # How many steps there are depends on the model, so the bar only pulses.
        task = progress.add_task(f"building {target}", total=None)
        from erlangen.audit.api import audit as run
        from erlangen.audit.targets import resolve

        model, inputs = resolve(target, n)
        return run(
            model, inputs, relation, **options, progress=lambda step: progress.update(task, description=step)
        )

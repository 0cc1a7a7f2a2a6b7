"""`erlangen audit`: which relation does each attention call of a model really compute?"""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from erlangen.commands.exit_codes import reports_errors
from erlangen.errors import DataError

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
  erlangen audit my_model.py:build --expect "encoder.*=Full()" --expect "*.self_attn=Causal()"
  erlangen audit my_model.py:build --expect "AtMost(Causal())" --json > report.json
  erlangen audit my_model.py:build --feedings training,padded --positions 0,7,8 --budget 30
"""

EXIT = {"holds": 0, "measured": 0, "violated": 1, "contradictory": 1, "undecided": 3}
"""Verdict -> exit code; `measured` needs every comparison made as well, see `exit_code`."""


@reports_errors
def audit(
    target: Annotated[str, typer.Argument(metavar="TARGET", help="The model to audit.")],
    expect: Annotated[
        list[str] | None,
        typer.Option(
            "--expect",
            metavar="[PATTERN=]EXPRESSION",
            help="The relation expected of every self-attention call, or of the modules whose names match "
            "PATTERN (give it again for other modules). AtMost(...) is an upper bound.",
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
    from erlangen.commands.expectations import expectation

    relation = expectation(expect or [])
    _check_page(html)
    options: dict[str, Any] = {"flow": flow, "budget": budget}
    if not budget > 0:
        raise typer.BadParameter(f"seconds must be above 0, got {budget:g}", param_hint="--budget")
    if feedings is not None:
        options["feedings"] = _feedings(feedings)
    if positions is not None:
        options["positions"] = _positions(positions)
    report = _measured(target, n, relation, options)
    if html is not None:
        report.save(html)
    typer.echo(report.dumps() if as_json else str(report))
    if html is not None and not as_json:
        typer.echo(f"wrote {html}")
    raise typer.Exit(exit_code(report))


def _check_page(path: Path | None) -> None:
    """Refuse, before any work, a page that could not be written afterwards."""
    if path is None:
        return
    if path.suffix.lower() not in (".html", ".htm"):
        raise typer.BadParameter(
            f"it writes a page of HTML: {path} does not end in .html; print the page to make a PDF of it",
            param_hint="--html",
        )
    if path.is_dir():
        raise typer.BadParameter(f"{path} is a directory", param_hint="--html")
    if not path.parent.is_dir():
        raise typer.BadParameter(f"there is no directory {path.parent} for {path}", param_hint="--html")


def _feedings(text: str) -> list[str]:
    """The names with commas between them; a name that is none is refused with the nearest one."""
    from difflib import get_close_matches

    from erlangen.audit.feedings import FEEDINGS

    known = list(FEEDINGS)
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in known:
            near = get_close_matches(name.lower(), known, 1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
            raise typer.BadParameter(f"there is no feeding {name!r}; {hint}", param_hint="--feedings")
    return names


def _positions(text: str) -> list[int]:
    try:
        numbers = [int(number) for number in text.split(",")]
    except ValueError:
        numbers = [-1]
    if min(numbers) < 0:
        raise typer.BadParameter(
            f"expected numbers from 0 on with commas between them, got {text!r}", param_hint="--positions"
        )
    return numbers


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

        # A model may print; standard output is the report's, which must stay readable by a machine.
        with redirect_stdout(sys.stderr):
            model, inputs = resolve(target, n)
            try:
                return run(
                    model,
                    inputs,
                    relation,
                    **options,
                    progress=lambda step: progress.update(task, description=step),
                )
            except SystemExit as error:  # its exit code must not pass for a verdict
                raise DataError(f"{type(model).__name__} ends the process (SystemExit: {error})") from error

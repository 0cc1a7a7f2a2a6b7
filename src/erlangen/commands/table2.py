"""`erlangen table2`: the paper's Table 2, measured on the models themselves."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from erlangen.commands.exit_codes import reports_errors
from erlangen.errors import ParameterError

if TYPE_CHECKING:
    from rich.console import Console

    from erlangen.paper.table2.measured import Architecture, Outcome

HELP = """Audit the models of the paper's Table 2: which relations do their attention calls really read?

For each model: the type of attention the paper names, what every attention call of every implementation was
measured to read, the symmetry of that, and whether the two agree. Implementations are those of transformers
and torch-geometric, where installed, and erlangen's own; all are small and have random weights. With
--figures, a picture for each model, drawn from what was measured (the paper's Figure 5).

\b
Examples:
  erlangen table2
  erlangen table2 --json
  erlangen table2 --figures pictures
"""


@reports_errors
def table2(
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON instead.")] = False,
    figures: Annotated[
        Path | None, typer.Option("--figures", help="Draw a PNG for each model into this directory.")
    ] = None,
) -> None:
    """Measure every row, print it, and draw it where asked."""
    from rich.console import Console

    from erlangen.paper.table2.architectures import TABLE2

    if figures is not None and figures.exists() and not figures.is_dir():
        raise ParameterError(f"--figures takes a directory, and {figures} is a file")
    outcomes = outcomes_of(TABLE2, Console(stderr=True))
    if as_json:
        typer.echo(json.dumps([outcome.as_dict() for outcome in outcomes]))
    else:
        print_outcomes(outcomes, Console(highlight=False))
    if figures is not None:
        figures.mkdir(parents=True, exist_ok=True)
        for path in draw(outcomes, figures):
            typer.echo(f"wrote {path}", err=as_json)


def outcomes_of(architectures: tuple[Architecture, ...], console: Console) -> list[Outcome]:
    """Measure every implementation of every row, with a progress bar."""
    from rich.progress import Progress

    from erlangen.paper.table2.measured_once import Rows

    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("auditing", total=sum(len(row.implementations) for row in architectures))
        done = count()

        def told(name: str) -> None:
            progress.update(task, description=f"auditing {name}", completed=next(done))

        return Rows(architectures, told).outcomes()


def print_outcomes(outcomes: list[Outcome], console: Console) -> None:
    """The rows as a table, and below it why each verdict is what it is."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from erlangen.paper.table2.measured import YES_NO

    table = Table(box=box.SIMPLE, header_style="bold", pad_edge=False)
    for name in ("model", "claimed", "calls", "relation", "symmetry", "agrees"):
        table.add_column(name, no_wrap=name in ("model", "claimed", "calls"), overflow="fold")
    for outcome in outcomes:
        row, groups = outcome.architecture, _same_lines(outcome)
        colour = {True: "green", False: "bold red", None: "yellow"}[outcome.agrees]
        model, claimed, agrees = row.model, row.claimed, Text(YES_NO[outcome.agrees], style=colour)
        for names, lines in groups:
            shown = [*([("", f"{names}:", "")] if len(groups) > 1 else []), *lines]
            for calls, relation, symmetry in shown:
                table.add_row(model, claimed, calls, Text(relation), Text(symmetry), agrees)
                model, claimed, agrees = "", "", Text("")
        table.add_section()
    console.print(table)
    for outcome in outcomes:
        names = ", ".join(one.name for one in outcome.implementations if one.missing is None)
        said = f"{outcome.architecture.model} ({names or 'not measured'}): {outcome.why}."
        console.print(said, markup=False, soft_wrap=True)
    agreeing = sum(outcome.agrees is True for outcome in outcomes)
    console.print(f"\n{agreeing} of {len(outcomes)} claims agree with what was measured.", markup=False)


def _same_lines(outcome: Outcome) -> list[tuple[str, list[tuple[str, str, str]]]]:
    """Implementations that measured the same share their lines."""
    found: dict[tuple[tuple[str, str, str], ...], list[str]] = {}
    for one in outcome.implementations:
        found.setdefault(tuple(one.lines()), []).append(one.name)
    return [(", ".join(names), list(lines)) for lines, names in found.items()]


def draw(outcomes: list[Outcome], directory: Path) -> list[Path]:
    """One picture for each model that was measured; gives the files written."""
    from erlangen.paper.figure_5 import Layer, save

    written = []
    for outcome in outcomes:
        measured = [one for one in outcome.implementations if one.calls]
        if not measured:
            continue
        row, one = outcome.architecture, measured[0]
        layers = [Layer(c.module, c.between, c.relations, c.bounds) for c in one.calls]
        kinds = ", ".join(kind.replace("-", " ") for kind in one.kinds)
        path = directory / f"{row.model.lower()}.png"
        save(f"{row.model}: claimed {row.claimed}, measured {kinds}", f"on {one.name}", layers, path)
        written.append(path)
    return written

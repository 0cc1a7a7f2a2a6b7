"""`erlangen show`: a relation drawn in the terminal, as a picture, or told as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from erlangen.commands.exit_codes import reports_errors
from erlangen.commands.guards import SECONDS, Seconds, time_limit
from erlangen.errors import ParameterError
from erlangen.relations.parse import parse
from erlangen.show.drawing import drawing

HELP = """Draw the relation EXPRESSION: which keys (columns) each query (rows) reads.

EXPRESSION is a relation as written in Python: "Causal() & Window(lookback=3)". It is parsed, never
evaluated. Operators: & | ~ - @ ** .T .reach(n) .closure(). A weighted relation is drawn in shades.

\b
Examples:
  erlangen show "Causal()" --n 12
  erlangen show "Causal() & Window(lookback=64) | Global(keys=[0])" --n 4096
  erlangen show "Bipartite(encoder=3, decoder=4)" --out figure2.png
  erlangen show "PerHead([Window(lookback=3), Dilated(4)]) & Causal()" --n 16 --out heads.svg
  erlangen show "Causal()" --n 1 --keys 8 --json
  erlangen show "Fano()"
  erlangen show "ALiBi(slopes=[0.5, 0.25]) & Window(lookback=9)" --n 16
"""

PICTURES = (".png", ".svg")


@reports_errors
def show(
    expression: Annotated[
        str, typer.Argument(metavar="EXPRESSION", help="The relation, as written in Python.")
    ],
    n: Annotated[
        int | None,
        typer.Option("--n", help="How many queries. Not needed for relations with a size of their own."),
    ] = None,
    keys: Annotated[
        int | None, typer.Option("--keys", help="How many keys, if not as many as queries.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Draw matrix and graph into this .png or .svg file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the numbers as JSON instead.")] = False,
    seconds: Seconds = SECONDS,
) -> None:
    """Parse, bind, and draw."""
    with time_limit(seconds):
        if out is not None:
            check_picture(out)
        shown = drawing(parse(expression), n, keys)
        typer.echo(json.dumps(shown.facts()) if as_json else shown.text(drawn=out is None))
        if out is not None:
            shown.save(out)
            typer.echo(f"wrote {out}", err=as_json)


def check_picture(out: Path) -> None:
    """Refuse a picture that could not be written, before any work."""
    if out.suffix.lower() not in PICTURES:
        raise ParameterError(f"--out takes a file ending in {' or '.join(PICTURES)}, got {str(out)!r}")
    if not out.parent.is_dir():
        raise ParameterError(f"--out {out}: the directory {out.parent} does not exist")

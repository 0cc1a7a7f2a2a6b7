"""`erlangen hierarchy`: the three orders of attention mechanisms, told or drawn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from erlangen.commands.exit_codes import reports_errors
from erlangen.commands.show import check_picture

HELP = """The attention mechanisms in three orders: by family, by mask inclusion, by symmetry.

Every arrow is computed on n positions and comes with its certificate (--json); the last lines say where the
ranking of the paper's Table 1 agrees and where it does not.

\b
Examples:
  erlangen hierarchy
  erlangen hierarchy --out hierarchy.svg
  erlangen hierarchy --order symmetry --n 8 --json
"""


@reports_errors
def hierarchy(
    order: Annotated[
        str | None, typer.Option("--order", help="family, mask or symmetry; all three if not given.")
    ] = None,
    n: Annotated[int, typer.Option("--n", help="How many positions.")] = 6,
    out: Annotated[
        Path | None, typer.Option("--out", help="Draw the diagrams into this .png or .svg file.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print nodes, edges and certificates as JSON.")
    ] = False,
) -> None:
    """Compute, print, draw."""
    from erlangen.paper.three_orders import ORDERS
    from erlangen.paper.three_orders import hierarchy as compute

    if out is not None:
        check_picture(out)
    shown = [compute(each, n) for each in ([order] if order is not None else ORDERS)]
    if as_json:
        records = [each.as_dict() for each in shown]
        typer.echo(json.dumps(records if order is None else records[0]))
    elif out is None:
        typer.echo("\n\n".join(text(each) for each in shown))
    if out is not None:
        from erlangen.paper.hasse import save

        save(shown, out)
        typer.echo(f"wrote {out}", err=as_json)


def text(shown: Any) -> str:
    """One order, an arrow a line, and the comparison with Table 1."""
    from erlangen.taxonomy.table1 import TABLE1

    lines = [f"{shown.order} (n = {shown.n})"]
    lines += [f"  {edge.upper} > {edge.lower}   {told(edge.certificate)}" for edge in shown.edges]
    agrees = len(shown.table1) - len(shown.disagreements)
    lines.append(f"  Table 1 agrees on {agrees} of {len(shown.table1)} comparable pairs")
    lines += [
        f"  Table 1 ranks {TABLE1[pair.lower].mechanism} above {TABLE1[pair.upper].mechanism}"
        for pair in shown.disagreements
    ]
    return "\n".join(lines)


def told(proof: Any) -> str:
    """The certificate of an arrow in a few words.

    >>> told({"proof": "inclusion", "edges": [21, 20], "strict": [5, 0]})
    '21 pairs include 20; beyond: [5, 0]'
    """
    if proof["proof"] == "inclusion":
        return f"{proof['edges'][0]} pairs include {proof['edges'][1]}; beyond: {proof['strict']}"
    if proof["proof"] == "subgroup":
        return f"order {proof['orders'][0]} > {proof['orders'][1]}; beyond: {proof['strict']}"
    settings = list(dict.fromkeys(proof["settings"].values()))
    told_as = settings[0] if len(settings) == 1 else f"each of {len(settings)} settings"
    return f"at {told_as}; beyond: {proof['strict']}"

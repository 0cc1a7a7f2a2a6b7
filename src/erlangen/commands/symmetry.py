"""`erlangen symmetry`: the exact symmetry group of a relation."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from erlangen.commands.exit_codes import reports_errors
from erlangen.commands.guards import SECONDS, Seconds, small_enough, time_limit
from erlangen.relations.parse import parse
from erlangen.relations.relation_files import is_relation_file, read_relation

HELP = """The symmetry group of the relation EXPRESSION: which permutations of positions a layer with it
keeps.

EXPRESSION is a relation as written in Python, or a file: a mask (.npy, .csv) or a list of edges `query key`
(.edges, .txt). D8 means the symmetries of the 8-gon, of order 16.

\b
Examples:
  erlangen symmetry "Ring(lookback=1, lookahead=1)" --n 8
  erlangen symmetry "Bipartite(encoder=3, decoder=4)" --json
  erlangen symmetry "Full()" --n 3 --keys 5 --apart
  erlangen symmetry mask.npy
"""

SHOWN = 12
"""Generators on more points than this are summarised in the text output."""


@reports_errors
def symmetry(
    expression: Annotated[
        str, typer.Argument(metavar="EXPRESSION", help="The relation, or a file with one.")
    ],
    n: Annotated[
        int | None,
        typer.Option("--n", help="How many positions. Not needed for relations with a size of their own."),
    ] = None,
    keys: Annotated[int | None, typer.Option("--keys", help="How many keys, with --apart.")] = None,
    apart: Annotated[
        bool, typer.Option("--apart", help="Permute queries and keys independently of each other.")
    ] = False,
    budget: Annotated[
        float, typer.Option("--budget", help="Seconds to search before answering 'at least'.")
    ] = 10.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the group as JSON instead.")] = False,
    seconds: Seconds = SECONDS,
) -> None:
    """Parse or read, compute, print."""
    from erlangen.symmetry import symmetry as compute

    with time_limit(seconds):
        relation: Any = read_relation(expression, n) if is_relation_file(expression) else parse(expression)
        small_enough(relation, n, keys)
        group = compute(relation, n, keys=keys, joint=not apart, budget=budget)
        typer.echo(json.dumps(record(group, str(relation))) if as_json else text(group, str(relation)))


def record(group: Any, relation: str) -> dict[str, Any]:
    """A group as JSON; an order of more than 4000 digits is given as an expression only."""
    short = group.shape.digits < 4000
    return {
        "relation": relation,
        "name": group.name,
        "order": group.order if short else None,
        "order_text": group.order_text,
        "exact": group.exact,
        "evidence": group.evidence,
        "degree": group.degree,
        "sides": group.sides,
        "generators": [generator.tolist() for generator in group.generators],
        "orbits": [orbit.tolist() for orbit in group.orbits],
    }


def text(group: Any, relation: str) -> str:
    """A group for reading."""
    where = (
        f"{group.degree} positions"
        if group.sides is None
        else f"{group.sides[0]} queries, {group.sides[1]} keys"
    )
    lines = [f"{relation} on {where}", f"symmetry: {group} ({group.evidence})"]
    for generator in group.generators if group.degree <= SHOWN else ():
        lines.append(f"  {cycles(generator)}")
    if group.degree > SHOWN and len(group.generators):
        lines.append(f"  {len(group.generators)} generators (--json prints them)")
    sizes = sorted(map(len, group.orbits), reverse=True) if group.degree <= 10_000 else None
    if sizes is not None:
        shown = ", ".join(map(str, sizes[:SHOWN])) + (", ..." if len(sizes) > SHOWN else "")
        lines.append(f"{len(sizes)} orbit{'s' if len(sizes) != 1 else ''} of size {shown}")
    return "\n".join(lines)


def cycles(permutation: Any) -> str:
    """A permutation in cycle notation.

    >>> cycles([1, 0, 2, 4, 3])
    '(0 1)(3 4)'
    """
    seen: set[int] = set()
    parts = []
    for start in range(len(permutation)):
        cycle, at = [], start
        while at not in seen:
            seen.add(at)
            cycle.append(at)
            at = int(permutation[at])
        if len(cycle) > 1:
            parts.append(f"({' '.join(map(str, cycle))})")
    return "".join(parts) or "()"

"""`erlangen classify`: what a relation assumes, with the evidence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from erlangen.commands.exit_codes import reports_errors
from erlangen.commands.guards import SECONDS, Seconds, small_enough, time_limit
from erlangen.errors import ParameterError
from erlangen.relations.parse import parse
from erlangen.relations.relation_files import is_relation_file, read_relation

if TYPE_CHECKING:
    from erlangen.taxonomy import Bias, Certificate, TernaryBias

HELP = """What the relation EXPRESSION assumes: its kind, its row of Table 1, its symmetry, its properties.

EXPRESSION is a relation as written in Python, or a file: a mask (.npy, .csv) or a list of edges `query key`
(.edges, .txt). Without --n the answer is for every n where theory gives one. --json adds the certificates.

\b
Examples:
  erlangen classify "Causal()"
  erlangen classify "Window(lookback=8)" --n 8
  erlangen classify "Bipartite(encoder=3, decoder=4)" --json
  erlangen classify --file mask.npy
"""

SHOWN = 60
"""Evidence longer than this is cut in the table; --json has it in full."""


@reports_errors
def classify(
    expression: Annotated[
        str | None, typer.Argument(metavar="[EXPRESSION]", help="The relation, or a file with one.")
    ] = None,
    n: Annotated[int | None, typer.Option("--n", help="How many positions.")] = None,
    file: Annotated[
        Path | None, typer.Option("--file", help="A mask or edge list instead of EXPRESSION.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the verdict as JSON instead.")] = False,
    seconds: Seconds = SECONDS,
) -> None:
    """Parse or read, classify, print."""
    from erlangen.taxonomy import classify as decide

    with time_limit(seconds):
        relation, n = relation_of(expression, file, n)
        small_enough(relation, n)
        bias: Any = decide(relation, n)
        if as_json:
            typer.echo(json.dumps(bias.as_dict()))
        else:
            (print_bias if relation.arity == 2 else print_ternary)(bias)


def relation_of(expression: str | None, file: Path | None, n: int | None) -> tuple[Any, int | None]:
    """The relation of an expression or of a file, and at which size; exactly one of them must be given.

    An edge list without a number of positions has as many as its largest index says.
    """
    if (expression is None) == (file is None):
        raise ParameterError(f"give either EXPRESSION or --file, got {expression!r} and {file!r}")
    given = expression if file is None else str(file)
    assert given is not None
    if file is None and not is_relation_file(given):
        return parse(given), n
    relation: Any = read_relation(given, n)
    if n is None and hasattr(relation, "nodes"):
        n = relation.nodes if relation.nodes is not None else int(relation.edges().max(initial=-1)) + 1
    return relation, n


def print_bias(bias: Bias) -> None:
    """The verdict as a table."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    where = f"on {bias.n} positions" if bias.n is not None else _without_size(bias)
    console.print(f"{bias.relation} {where}", markup=False, style="bold")
    kind = "not decided without --n" if bias.kind is None else bias.kind
    width = f", p = {bias.p}" if bias.p is not None else ""
    also = [other for other in bias.kinds if other != bias.kind]
    console.print(f"kind       {kind}{width}" + (f"  (also {', '.join(also)})" if also else ""), markup=False)
    if bias.table1 is not None:
        row = bias.table1
        console.print(
            f"Table 1    {row.mechanism}: {row.relations}; symmetry as printed: {row.symmetry_group}; "
            f"data: {row.data_type}",
            markup=False,
            soft_wrap=True,
        )
    if bias.weights is not None:
        console.print(f"weights    {bias.weights}", markup=False, soft_wrap=True)
    group = "not decided" if bias.symmetry is None else f"{bias.symmetry}  ({bias.symmetry.evidence})"
    console.print(f"symmetry   {group}", markup=False, soft_wrap=True)
    table = Table("property", "holds", "evidence", box=None, header_style="bold", pad_edge=False)
    answers = {True: "yes", False: "no", None: "not decided"}
    for name, value in bias.properties.items():
        proof = bias.certificates.get(name)
        table.add_row(name.replace("_", " "), answers[value], "" if proof is None else told(proof))
    console.print(table)


def print_ternary(bias: TernaryBias) -> None:
    """The verdict as lines: what is meaningful for three positions, then the shadow's kind."""
    shadow = bias.shadow
    lines = [
        f"{bias.relation} on {bias.n} positions",
        f"kind       {bias.kind}, arity {bias.arity}, {bias.num_triples:,} triples",
        f"symmetry   {bias.symmetry}  ({bias.symmetry.evidence})",
        f"shadow     {shadow.kind}; symmetry {shadow.symmetry}",
        f"{'property':<16} holds  evidence",
    ]
    for name, holds in bias.properties.items():
        told = "checked by definition" if holds else f"not in T: {bias.witnesses[name]}"
        if name == "distinct" and not holds:
            told = f"in T: {bias.witnesses[name]}"
        lines.append(f"{name.replace('_', ' '):<16} {'yes' if holds else 'no':<5}  {told}")
    typer.echo("\n".join(lines))


def _without_size(bias: Bias) -> str:
    if bias.evidence == "data-dependent":
        return "depends on the data"
    return f"for every n >= {bias.from_n}" if bias.from_n else "for every n"


def told(proof: Certificate) -> str:
    """The evidence of a certificate in a few words.

    >>> from erlangen.taxonomy import Certificate
    >>> told(Certificate("transitive", False, {"triple": [3, 1, 0]}, size=5))
    'triple: [3, 1, 0]'
    """
    if not proof.data:
        return "by law, at every size" if proof.every_size else "checked by definition"
    text = "; ".join(f"{name.replace('_', ' ')}: {value}" for name, value in proof.data.items())
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."

"""What `erlangen show` and `erlangen classify` print of ternary relations."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from erlangen.errors import ParameterError

if TYPE_CHECKING:
    from erlangen.relations import HyperRelation
    from erlangen.taxonomy.ternary import TernaryBias


def show(
    relation: HyperRelation, n: int | None, keys: int | None, out: Path | None, *, as_json: bool
) -> None:
    """The numbers as text or JSON, and a picture where one was asked for."""
    from erlangen.show import ternary
    from erlangen.show.matrix import charset

    if keys is not None:
        raise ParameterError(f"{relation} relates positions of one sequence: --keys does not apply")
    bound = relation.on(n)
    if as_json:
        import json

        typer.echo(json.dumps(ternary.facts(relation, bound)))
    else:
        typer.echo(
            ternary.text(relation, bound, shutil.get_terminal_size().columns, charset(sys.stdout.encoding))
        )
    if out is not None:
        ternary.save(relation, bound, out)
        typer.echo(f"wrote {out}", err=as_json)


def print_verdict(bias: TernaryBias) -> None:
    """The verdict as lines: what is meaningful for three positions, then the shadow's kind."""
    shadow = bias.shadow
    wide = {name: name.replace("_", " ") for name in bias.properties}
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
        lines.append(f"{wide[name]:<16} {'yes' if holds else 'no':<5}  {told}")
    typer.echo("\n".join(lines))

"""`erlangen demo`: a tour of the package on built-in examples, chapter by chapter."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from erlangen.commands.exit_codes import reports_errors

HELP = """Run the tour: every chapter prints what it does and writes its pictures.

\b
Examples:
  erlangen demo
  erlangen demo --out pictures
"""


@reports_errors
def demo(
    out: Annotated[
        Path, typer.Option("--out", help="Directory for the output; made if it does not exist.")
    ] = Path("erlangen-demo"),
) -> None:
    """Run every chapter, then say where the output lies."""
    from rich.console import Console

    from erlangen.paper.demo import CHAPTERS

    out.mkdir(parents=True, exist_ok=True)
    console = Console(highlight=False)
    for number, (title, chapter) in enumerate(CHAPTERS, start=1):
        console.rule(f"[bold]{number}/{len(CHAPTERS)}  {title}", align="left")
        chapter(console, out)
    console.rule("[bold]Done", align="left")
    console.print(f"The output lies in {out.resolve()}", markup=False, soft_wrap=True)
    console.print("Try next:")
    console.print('  erlangen show "Causal() & Window(lookback=3) | Global(keys=[0])" --n 16', markup=False)
    console.print('  erlangen show "Grid((32, 32), 2)" --out grid.png', markup=False)
    console.print("  erlangen --help")

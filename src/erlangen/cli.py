"""The command line: `erlangen COMMAND ...`. Each command's work lies in its own module of `commands`."""

from __future__ import annotations

from typing import Annotated

import typer

from erlangen.commands import audit, classify, demo, hierarchy, show, symmetry, table2, theorems, train

HELP = """Attention, characterised by its relations and symmetries.

A relation says which keys each query reads. Every command takes relations as they are written in Python.

\b
Start with:
  erlangen demo
  erlangen show "Causal() & Window(lookback=3)" --n 12
"""

# Plain help and error text: loading the decorated one would cost every start a tenth of a second.
app = typer.Typer(
    name="erlangen",
    help=HELP,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"erlangen {version('erlangen')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options of `erlangen` itself."""


for command in (show, classify, symmetry, audit, hierarchy, theorems, table2, demo):
    function = getattr(command, command.__name__.rpartition(".")[2])
    app.command(help=command.HELP)(function)
app.add_typer(train.app, name="train")


def main() -> None:
    """Entry point of the console script."""
    app(prog_name="erlangen")


if __name__ == "__main__":
    main()

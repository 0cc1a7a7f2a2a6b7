"""How commands report errors: a message on standard error and exit code 2, never a traceback."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import typer

from erlangen.errors import ErlangenError

P = ParamSpec("P")
R = TypeVar("R")

BAD_USAGE = 2
"""Exit code for bad usage and for input that erlangen refuses."""
CLOSED_PIPE = 128 + 13
"""What a shell says of a process that SIGPIPE ended."""


def reports_errors(command: Callable[P, R]) -> Callable[P, R]:
    """A command that turns `ErlangenError` and failed file access into a message and exit code 2.

    >>> @reports_errors
    ... def command() -> None:
    ...     raise ErlangenError("what was wrong")
    >>> try:
    ...     command()
    ... except typer.Exit as exit:
    ...     exit.exit_code
    2
    """

    @wraps(command)
    def reporting(*arguments: P.args, **named: P.kwargs) -> R:
        try:
            return command(*arguments, **named)
        except BrokenPipeError:
            # `erlangen theorems | head`: nobody reads on. Shells end such a process by SIGPIPE, and no exit
            # code of a command may be taken for its answer.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(CLOSED_PIPE) from None
        except (ErlangenError, OSError) as error:
            typer.echo(f"error: {error}", err=True)
            raise typer.Exit(BAD_USAGE) from None
        except MemoryError:
            typer.echo("error: this does not fit into memory; choose smaller sizes", err=True)
            raise typer.Exit(BAD_USAGE) from None

    return reporting

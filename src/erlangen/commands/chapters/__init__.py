"""The chapters of the demo, in the order they run.

Each module has a function `chapter(console, out)` that prints to the console and writes below the directory
`out`. To add one, write the module and add a line to `CHAPTERS`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

Chapter = Callable[["Console", Path], None]

CHAPTERS: tuple[tuple[str, str], ...] = (
    ("Relations: which keys each query reads", "relations"),
    ("Attention: cost that follows the edges", "attention"),
    ("Bias: what a relation assumes, with certificates", "bias"),
    ("Audit: which relation do real models really compute?", "audit"),
)
"""(title, module of this package) of every chapter."""


def load(module: str) -> Chapter:
    """The chapter of a module, imported only now: chapters may need torch."""
    return import_module(f"{__name__}.{module}").chapter

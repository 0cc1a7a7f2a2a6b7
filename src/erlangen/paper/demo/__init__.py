"""The chapters of the demo, in the order they run.

Each is a function `chapter(console, out)` that prints to the console and writes below the directory `out`. To
add one, write its module and add a line to `CHAPTERS`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from erlangen.paper.demo import attention_timed, bias_proven, models_audited, relations_drawn

CHAPTERS: tuple[tuple[str, Callable[[Console, Path], None]], ...] = (
    ("Relations: which keys each query reads", relations_drawn.chapter),
    ("Attention: cost that follows the edges", attention_timed.chapter),
    ("Bias: what a relation assumes, with certificates", bias_proven.chapter),
    ("Audit: which relation do real models really compute?", models_audited.chapter),
)
"""(title, function) of every chapter."""

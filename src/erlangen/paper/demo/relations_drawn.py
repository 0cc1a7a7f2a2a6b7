"""Chapter: the paper's relations and some beyond, printed, and Figures 1-4 as pictures."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.progress import track

from erlangen.paper.figures_1_to_4 import FIGURES
from erlangen.relations import Causal, Documents, Global, Graph, Grid, Random, Relation, Window
from erlangen.show.drawing import drawing

PAPER = tuple((one.title, one.relation, one.n) for one in FIGURES)
BEYOND: tuple[tuple[str, Relation, int | None], ...] = (
    (
        "A window, a global position and random keys, as in BigBird",
        Window(lookback=1, lookahead=1) | Global(keys=[0], queries=[0]) | Random(2, seed=0),
        12,
    ),
    ("Packed documents, causal inside each", Causal() & Documents([3, 5, 4]), None),
    ("Pixels of a 3 x 4 image, each reading its neighbours", Grid((3, 4), 1), None),
    ("Any graph: a path from 0 to 4, read backwards", Graph([(1, 0), (2, 1), (3, 2), (4, 3)], nodes=5), None),
)  # fmt: skip


def chapter(console: Console, out: Path) -> None:
    """Print every relation with its matrix; write Figures 1-4 as PNG and SVG below `out`."""
    for title, relation, n in (*PAPER, *BEYOND):
        console.print(f"\n{title}", style="bold", markup=False)
        console.print(drawing(relation, n).text(), markup=False, soft_wrap=True)
    console.print()
    for one in track(FIGURES, "Drawing Figures 1-4", console=console):
        path = out / f"figure{one.number}"
        drawing(one.relation, one.n).save(path.with_suffix(".png"), path.with_suffix(".svg"), title=one.title)
    for one in FIGURES:
        path = out / f"figure{one.number}"
        console.print(f"wrote {path}.png and {path}.svg", markup=False, soft_wrap=True)

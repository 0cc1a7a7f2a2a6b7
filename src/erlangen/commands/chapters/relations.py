"""Chapter: the paper's relations and some beyond, printed, and Figures 1-4 as pictures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from erlangen.paper.figures import FIGURES
from erlangen.relations import (
    Causal,
    Documents,
    Global,
    Graph,
    Grid,
    Random,
    Relation,
    Window,
)
from erlangen.show.binding import bind, sizes_for
from erlangen.show.matrix import charset, draw
from erlangen.show.summary import header

if TYPE_CHECKING:
    from rich.console import Console

PAPER: tuple[tuple[str, Relation, int | None], ...] = tuple(
    (one.title, one.relation, one.n) for one in FIGURES
)
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
        bound = bind(relation, *sizes_for(relation, n, None))
        console.print(f"\n{title}", style="bold", markup=False)
        console.print(header(relation, bound), markup=False, soft_wrap=True)
        console.print(draw(bound, console.width, charset(console.encoding)), markup=False, soft_wrap=True)
    console.print()
    draw_figures(console, out)


def draw_figures(console: Console, out: Path) -> None:
    """Write the pictures, with a progress bar: loading the drawing library takes a moment."""
    from rich.progress import track

    paths = [out / f"figure{number}" for number in range(1, len(PAPER) + 1)]
    for path, (title, relation, n) in track(
        list(zip(paths, PAPER, strict=True)), "Drawing Figures 1-4", console=console
    ):
        from erlangen.show.figures import save

        bound = bind(relation, *sizes_for(relation, n, None))
        save([("", relation, bound)], [path.with_suffix(".png"), path.with_suffix(".svg")], title)
    for path in paths:
        console.print(f"wrote {path}.png and {path}.svg", markup=False, soft_wrap=True)

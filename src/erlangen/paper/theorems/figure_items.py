"""Figures 1-4: what the text says of each, against a real layer and against the picture that is drawn.

The pictures are judged by their captions and by the sentences that refer to them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.colors import to_rgb

from erlangen.paper import figures_1_to_4
from erlangen.paper.theorems.apparatus import layer, output, rows, weights
from erlangen.paper.theorems.item import Trial, statement
from erlangen.show.figures import figure
from erlangen.show.palette import UNREAD


def _check(trial: Trial, number: int, region: np.ndarray, made: Any, *inputs: Any) -> None:
    """The layer weighs exactly the region the text names, and the picture shows exactly those cells."""
    drawn = figures_1_to_4.FIGURES[number - 1]
    bound = drawn.relation.on(drawn.n)
    trial.exact(
        "the relation that is drawn is the one told of", np.array_equal(bound.dense(), region), n=drawn.n
    )
    alpha = weights(made, *inputs).numpy()
    trial.measured("the layer weighs exactly these pairs", np.array_equal(alpha > 0, region))
    picture = figure([("", drawn.relation, bound)], drawn.title)
    cells = np.asarray(picture.axes[0].images[0].get_array())[..., :3]
    shown = np.abs(cells - to_rgb(UNREAD)).max(-1) > 0
    trial.exact("the picture shows exactly these pairs", np.array_equal(shown, region), n=drawn.n)


@statement(
    "Figure 1",
    paper="self-attention relates every pair of entities: E = x times x",
    corrected="all n^2 cells of the matrix, the diagonal among them",
    printed="holds",
    meant="holds",
)
def figure_1(trial: Trial) -> None:
    n = figures_1_to_4.FIGURES[0].n
    _check(trial, 1, np.ones((n, n), bool), layer("SelfAttention"), rows(n))


@statement(
    "Figure 2",
    paper="encoder-decoder attention connects the lower left block alone",
    corrected="rows of the decoder, columns of the encoder, with the encoder first: all cells of that block "
    "and no other",
    printed="holds",
    meant="holds",
)
def figure_2(trial: Trial) -> None:
    drawn = figures_1_to_4.FIGURES[1]
    n, m = drawn.n, 3
    region = np.zeros((n, n), bool)
    region[m:, :m] = True
    x = rows(n)
    _check(trial, 2, region, layer("SparseAttention", drawn.relation), x)
    made = layer("EncoderDecoderAttention")
    trial.measured("of two sequences the block is everything", (weights(made, x[m:], x[:m]) > 0).all())
    joint = output(layer("SparseAttention", drawn.relation), x)
    trial.close("and its rows are those of the joint layer", joint[m:], output(made, x[m:], x[:m]))


@statement(
    "Figure 3",
    paper="the nonzero weights of masked attention are the lower triangle",
    corrected="with the diagonal: n (n + 1) / 2 cells, all of them nonzero",
    printed="holds",
    meant="holds",
)
def figure_3(trial: Trial) -> None:
    n = figures_1_to_4.FIGURES[2].n
    _check(trial, 3, np.tri(n, dtype=bool), layer("MaskedAttention"), rows(n))


@statement(
    "Figure 4",
    paper="strided attention has zeros in the lower triangle too: a fixed number of previous elements is "
    "left",
    corrected="a band: the diagonal and the p diagonals below it, here p = 2; rows before p have fewer",
    printed="holds",
    meant="holds",
)
def figure_4(trial: Trial) -> None:
    n = figures_1_to_4.FIGURES[3].n
    region = np.tri(n, dtype=bool) & ~np.tri(n, k=-3, dtype=bool)
    _check(trial, 4, region, layer("StridedAttention", 3), rows(n))
    trial.exact("zeros in the lower triangle", (np.tri(n, dtype=bool) & ~region).any(), n=n)

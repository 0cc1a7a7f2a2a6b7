"""Draws the pictures of the documentation into docs/images. Run it when the look of the pictures changes."""

from pathlib import Path

import numpy as np
from draw_higher_order import save as save_fano
from draw_kernels import save as save_kernels
from PIL import Image
from rich.console import Console

from erlangen.commands.table2 import draw, outcomes_of
from erlangen.models.sparse_transformer import fixed, strided
from erlangen.models.vit import with_class_token
from erlangen.paper.hasse import save as save_hierarchy
from erlangen.paper.table2.architectures import TABLE2
from erlangen.paper.three_orders import ORDERS, hierarchy
from erlangen.relations import (
    ALiBi,
    Bipartite,
    Causal,
    Dilated,
    Distance,
    Full,
    Global,
    Graph,
    Grid,
    GridOffset,
    Identity,
    Nearest,
    Offset,
    PerHead,
    Prefix,
    RelativeBias,
    Window,
    reach,
)
from erlangen.show.density import shares
from erlangen.show.figures import draw_matrix, save
from erlangen.show.palette import INK
from erlangen.show.style import sheet, write
from erlangen.training import ViTRecipe, train, vit_run
from erlangen.training.plot import save_plot
from erlangen.training.vit import load_digits

IMAGES = Path(__file__).parent / "images"

PAPER = [
    ("self-attention", Full(), Full().on(7)),
    ("encoder-decoder", Bipartite(encoder=3, decoder=4), Bipartite(encoder=3, decoder=4).on(7)),
    ("masked", Causal(), Causal().on(7)),
    ("strided", Window(lookback=2), Window(lookback=2).on(7)),
]
MODELS = [
    ("BERT, ViT", Full(), Full().on(10)),
    ("GPT", Causal(), Causal().on(10)),
    ("Transformer, T5 (4 + 6)", Prefix(4), Prefix(4).on(10)),
    ("ViT, strided", Window(2), with_class_token(Window(2), 9).on(10)),
    ("ViT, 2-D window", Grid((3, 3), 1), with_class_token(Grid((3, 3), 1), 9).on(10)),
]
CORNER = GridOffset((3, 4), (-1, -1))
CONVOLUTION = [
    *[(f"head {d:+d}", Offset(d), Offset(d).on(12)) for d in (-1, 0, 1)],
    ("upper left of a 3 x 3 kernel", CORNER, CORNER.on(12)),
]
SPARSE = [
    ("strided, near", strided(4)[0], strided(4)[0].on(16)),
    ("strided, far", strided(4)[1], strided(4)[1].on(16)),
    ("one layer reaches", Causal(), reach([PerHead(strided(4))]).on(16)),
    ("fixed, near", fixed(4, 16)[0], fixed(4, 16)[0].on(16)),
    ("fixed, far", fixed(4, 16)[1], fixed(4, 16)[1].on(16)),
    ("two layers of either reach", Causal(), reach([PerHead(fixed(4, 16))] * 2).on(16)),
]
RING = Graph([(i, (i + s) % 12) for i in range(12) for s in (1, 11)], nodes=12)
WEIGHTED = [
    ("ALiBi, causal", ALiBi(0.25).on(12)),
    ("ALiBi over all pairs", ALiBi(0.25, relation=Full()).on(12)),
    ("T5's buckets", RelativeBias([0, -1, -1.5, -2, 0, -0.2, -0.5, -0.9], max_distance=9).on(12)),
    ("distance in a ring", Distance(RING, [0, -0.4, -0.8, -1.2, -1.6, -2, -2.4]).on(12)),
]
LONG = Window(lookback=256) | Causal() & (Global(keys=range(16)) | Dilated(512))
IMAGE = Grid((4, 5), 1)

_graph = Graph([(0, 1), (1, 2), (1, 4), (2, 3), (3, 6), (5, 6), (5, 7), (6, 7)], nodes=9)
NEIGHBOURS = _graph | _graph.T | Identity()
_states = np.random.default_rng(3).normal(size=(2, 9, 4))
GRAPHS = [
    ("GAT: a graph and self loops", NEIGHBOURS, NEIGHBOURS.on(9)),
    ("Unlimiformer, head 1", Nearest(3), Nearest(3).on(_states[0])),
    ("Unlimiformer, head 2", Nearest(3), Nearest(3).on(_states[1])),
]

PICTURES = {
    "relations": (PAPER, "One layer, four relations"),
    "convolution": (CONVOLUTION, "A convolution: one head for each offset"),
    "sparse": (SPARSE, "The heads of Sparse Transformers, stride 4"),
    "graphs": (GRAPHS, "Relations that come with the data"),
    "models": (MODELS, "The relations of the models"),
    "long": ([("", LONG, LONG.on(8192))], None),
    "grid": ([("", IMAGE, IMAGE.on(20))], None),
}


def save_weighted(path: Path) -> None:
    """Draw the first head of four weighted relations beside one another."""
    picture = sheet(2.9 * len(WEIGHTED), 3.5)
    for axes, (name, bound) in zip(picture.subplots(1, len(WEIGHTED)), WEIGHTED, strict=True):
        draw_matrix(axes, bound.neighborhoods, name, shares(bound, 0))
    note = "darker: nearer to the largest weight of the row; grey: not read"
    picture.suptitle(f"Four weighted relations\n{note}", fontsize=10, color=INK)
    write(picture, [path])


def main() -> None:
    """Draw every picture, and keep 64 colours of it so that the files stay small."""
    IMAGES.mkdir(exist_ok=True)
    for name, (bound, title) in PICTURES.items():
        save(bound, [IMAGES / f"{name}.png"], title)
    save_hierarchy([hierarchy(order) for order in ORDERS], IMAGES / "hierarchy.png")
    save_fano(IMAGES / "higher-order.png")
    save_kernels(IMAGES / "kernels.png")
    save_weighted(IMAGES / "weighted.png")
    t5 = [row for row in TABLE2 if row.model == "T5"]
    draw(outcomes_of(tuple(t5), Console(stderr=True)), IMAGES)
    (IMAGES / "t5.png").replace(IMAGES / "table2.png")
    run = vit_run(load_digits(), ViTRecipe())
    save_plot(train(run), IMAGES / "training.png", "ViT: cross-entropy of the digit", "test")
    for path in (
        IMAGES / f"{name}.png"
        for name in (*PICTURES, "weighted", "hierarchy", "higher-order", "kernels", "table2", "training")
    ):
        with Image.open(path) as picture:
            picture.convert("RGB").quantize(64).save(path, optimize=True)


if __name__ == "__main__":
    main()

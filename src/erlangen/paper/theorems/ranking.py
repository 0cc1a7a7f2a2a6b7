"""Tables 1 and 2: the ranking of mechanisms, and which mechanism the models use."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from erlangen.bias.classify import classify
from erlangen.bias.hierarchy import hierarchy
from erlangen.bias.table1 import TABLE1
from erlangen.paper.theorems.item import Trial, statement
from erlangen.relations import Bipartite, Causal, Full, Identity, Nearest, Window

N = 6

FAMILY = {
    ("Graph", "Sparse"),
    ("Sparse", "Self"),
    ("Sparse", "Window"),
    ("Sparse", "Encoder-Decoder"),
    ("Window", "Masked"),
    ("Window", "Identity"),
}


@statement(
    "Table 1",
    paper="one ranking from general to specific: graph, sparse, self, masked, strided, encoder-decoder",
    corrected="three orders: by family, by mask inclusion, by symmetry. The ranking extends the second and "
    "contradicts the first (masked above strided) and the third (encoder-decoder below masked)",
    printed=False,
)
def table_1(trial: Trial) -> None:
    family, mask, group = (hierarchy(order, n=N) for order in ("family", "mask", "symmetry"))
    trial.exact("O1", {(e.upper, e.lower) for e in family.edges} == FAMILY, n=N)
    chain = ["Full", "Masked", "Window 4", "Window 3", "Window 2", "Window 1", "Identity"]
    steps = {*pairwise(chain), ("Masked", "Encoder-Decoder")}
    trial.exact("O2", {(e.upper, e.lower) for e in mask.edges} == steps, n=N)
    groups = [("S6", "S3 x S3"), ("S3 x S3", "1")]
    trial.exact("O3", [(e.upper, e.lower) for e in group.edges] == groups, n=N)
    trial.exact("Table 1 extends O2", mask.table1 and not mask.disagreements, n=N)
    against = [(c.upper, c.lower) for order in (family, group) for c in order.disagreements]
    expected = [("previous", "total-order"), ("bipartite", "total-order"), ("bipartite", "previous")]
    trial.exact("what it contradicts", against == expected, n=N)
    rows = {
        "full": Full(),
        "total-order": Causal(),
        "previous": Window(lookback=2),
        "bipartite": Bipartite(3, 3),
    }
    for kind, relation in rows.items():
        bias = classify(relation, N)
        trial.exact(f"the row of {relation}", bias.kind == kind and bias.table1 == TABLE1[kind], n=N)
    trial.exact("identity is strided, p = 0", classify(Identity(), N).table1 == TABLE1["previous"], n=N)
    trial.refuted(
        "strided contains masked (p = n - 1), yet stands below it; S3 x S3 contains the group of masked, "
        "yet encoder-decoder stands below masked",
        against == expected,
    )


@statement(
    "Table 2",
    paper="ViT and S4 use strided attention, Unlimiformer sparse attention, T5 encoder-decoder attention",
    corrected="ViT: full attention over patches (the stride is in the patch embedding). S4: no attention, a "
    "signed causal convolution. Unlimiformer: data-dependent nearest keys. T5: full, causal and bipartite",
    printed=False,
)
def table_2(trial: Trial) -> None:
    import torch

    from erlangen.paper.theorems.layers import WIDTH, layer, output, rows

    made, patches = layer("SelfAttention"), torch.nn.Conv2d(1, WIDTH, 4, stride=4).double()
    with torch.no_grad():
        image = torch.randn(1, 1, 8, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        tokens = patches(image).flatten(2)[0].T
        alpha = made(tokens + rows(len(tokens), seed=8))[1]
    full = bool((alpha > 0).all())
    trial.measured("ViT: a strided patch embedding, then all pairs of patches", full and len(tokens) == 6)
    constant = rows(1).expand(N, -1)
    attended = output(layer("MaskedAttention"), constant)
    trial.close(
        "attention keeps constants: every row is W_V c", attended, layer("MaskedAttention").V(constant)
    )
    kernel = np.array([1.0, -1.0])
    convolved = np.convolve(np.ones(N), kernel)[1:N]
    trial.exact("a signed causal convolution does not: it takes 1 to 0", bool((convolved == 0).all()), n=N)
    keys = np.random.default_rng(0).normal(size=(2, N, 3))
    trial.exact("nearest keys depend on the data", Nearest(2).on(keys[0]) != Nearest(2).on(keys[1]), n=N)
    trial.exact("so their kind is graph", classify(Nearest(2)).kind == "graph")
    kinds = [classify(r, N).kind for r in (Full(), Causal(), Bipartite(3, 3))]
    trial.exact("T5: three relations", kinds == ["full", "total-order", "bipartite"], n=N)
    trial.refuted("self-attention over the 6 patches of an image reads all 36 pairs: no window", full)


ITEMS = (table_1, table_2)

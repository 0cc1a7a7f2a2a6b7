"""Table 1: the ranking of mechanisms from general to specific."""

from __future__ import annotations

from itertools import pairwise

from erlangen.paper.theorems.item import Trial, statement
from erlangen.relations import Bipartite, Causal, Full, Identity, Window
from erlangen.taxonomy.classifier import classify
from erlangen.taxonomy.hierarchy import hierarchy
from erlangen.taxonomy.table1 import TABLE1

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
    paper="one ranking from general to specific, by relations and equivariances: graph, sparse, self, "
    "masked, strided, "
    "encoder-decoder",
    corrected="three orders: by family, by mask inclusion, by symmetry. The ranking extends the second and "
    "contradicts the first (masked above strided) and the third (encoder-decoder below masked)",
    printed="fails",
    meant="with correction",
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
    trial.gap(
        "strided contains masked (p = n - 1), yet stands below it; S3 x S3 contains the group of masked, "
        "yet encoder-decoder stands below masked",
        against == expected,
    )


ITEMS = (table_1,)

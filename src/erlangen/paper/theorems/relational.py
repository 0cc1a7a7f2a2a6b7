"""Proposition 1, attention as a graph layer, Lemma 1, Theorems 1-4: which relation each mechanism assumes."""

from __future__ import annotations

import numpy as np
import torch

from erlangen.nn import GraphLayer
from erlangen.paper.theorems.apparatus import WIDTH, every_mask, layer, output, probe, rows, weights
from erlangen.paper.theorems.item import Trial, statement
from erlangen.relations import Bipartite, Causal, FromMask, Full, Graph, Identity, Relation, Window
from erlangen.taxonomy.classifier import classify
from erlangen.taxonomy.ten_properties import PROPERTIES
from erlangen.taxonomy.verify import verify

N = 6
SIZES = range(2, 9)


@statement(
    "Proposition 1",
    paper="attention layers take the relations among entities to be stochastic: alpha, a softmax, is a "
    "stochastic matrix",
    corrected="each non-empty row of alpha is a distribution with support exactly N_i; an empty row, such as "
    "the encoder rows in the proof of Theorem 2, is zero and sums to 0",
    printed="with correction",
    meant="with correction",
)
def proposition_1(trial: Trial) -> None:
    relations: list[Relation] = [
        Full(), Causal(), Window(lookback=2), Graph([(0, 1), (3, 2), (3, 5)]), Bipartite(2, 4),
    ]  # fmt: skip
    for relation in relations:
        bound = relation.on(N)
        alpha = weights(layer("SparseAttention", relation), rows(N)).numpy()
        busy = bound.degrees > 0
        trial.close(f"{relation}: rows sum to 1", alpha[busy].sum(1), np.ones(busy.sum()))
        trial.measured(f"{relation}: support is N_i", np.array_equal(alpha > 0, bound.dense()))
    empty = weights(layer("SparseAttention", relations[-1]), rows(N))[0]
    trial.gap(
        f"{relations[-1]}, the relation of Theorem 2: the encoder row 0 has no neighbours and sums to "
        f"{float(empty.sum()):g}",
        float(empty.abs().sum()) == 0.0,
    )


@statement(
    "attention is a graph layer",
    paper="attention falls within the layers of Definition 4: with the message alpha(x_i, x_j) v(x_j), "
    "summed",
    corrected="it does, with messages (e^k, e^k v), summed, and the update s / z. The message that is listed "
    "is none: alpha needs all of N_i",
    printed="holds",
    meant="holds",
    proof="with correction",
)
def graph_layer(trial: Trial) -> None:
    for relation in (Full(), Causal(), Window(lookback=2), Graph([(0, 1), (3, 2), (3, 5)])):
        made, x = layer("SparseAttention", relation), rows(N)

        def message(
            xi: torch.Tensor, xj: torch.Tensor, made: object = made
        ) -> tuple[torch.Tensor, torch.Tensor]:
            power = ((made.Q(xi) * made.K(xj)).sum(-1, keepdim=True) / WIDTH**0.5).exp()  # type: ignore[attr-defined]
            return power * made.V(xj), power  # type: ignore[attr-defined]

        def update(xi: torch.Tensor, sums: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
            numerator, denominator = sums
            return torch.where(denominator > 0, numerator / denominator.where(denominator > 0, 1.0), 0.0)

        with torch.no_grad():
            trial.close(f"{relation}", GraphLayer(message, "sum", update)(x, relation), output(made, x))
    made, x = layer("SelfAttention"), rows(N)
    other = x.clone()
    other[5] += 1.0
    before, after = (float(weights(made, rows_)[0, 1]) for rows_ in (x, other))
    with torch.no_grad():
        trial.step(
            "summing alpha_ij v(x_j) gives the layer",
            torch.allclose(weights(made, x) @ made.V(x), output(made, x), atol=1e-12),
        )
    trial.slip(
        "alpha(x_i, x_j) v(x_j) as a message: with x_0 and x_1 fixed and x_5 moved alpha(x_0, x_1) goes from "
        f"{before:.3f} to {after:.3f}, so it is no function of the pair",
        abs(before - after) > 1e-4,
    )


@statement(
    "Lemma 1",
    paper="the relations of a mechanism show in the attention matrix as a masking: -inf scores, zero weights",
    corrected="masks and relations correspond one to one, and supp(alpha_i) = N_i iff N_i is not empty; a "
    "row of -inf alone has no softmax, and must be said to be zero",
    printed="with correction",
    meant="with correction",
    proof="with correction",
)
def lemma_1(trial: Trial) -> None:
    n = 3
    masks = every_mask(n)
    bound = [FromMask(mask).on(n) for mask in masks]
    trial.exact("512 masks, 512 relations", len(set(bound)) == len(masks) == 512, n=n)
    trial.exact(
        "mask -> relation -> mask",
        all((b.dense() == m).all() for b, m in zip(bound, masks, strict=True)),
        n=n,
    )
    made = layer("GraphAttention")
    x = rows(n).expand(len(masks), n, -1)
    adjacency = torch.from_numpy(masks)
    h, alpha = output(made, x, adjacency), weights(made, x, adjacency)
    trial.measured("supp(alpha) is the relation, all 512", ((alpha > 0).numpy() == masks).all())
    busy = adjacency.any(2)
    trial.close("empty rows give zero", h[~busy], np.zeros((int((~busy).sum()), x.shape[-1])))
    trial.close("other rows sum to 1", alpha.sum(-1)[busy], np.ones(int(busy.sum())))
    with torch.no_grad():
        scores = made.Q(x) @ made.K(x).transpose(-1, -2) / WIDTH**0.5
        printed = scores.masked_fill(~adjacency, -torch.inf).softmax(-1)
    trial.close("the printed masking on non-empty rows", printed[busy], alpha[busy])
    trial.step(
        "-inf before the softmax gives the weight 0", bool((printed[busy][~adjacency[busy]] == 0).all())
    )
    trial.step("and a score above -inf a weight above 0", bool((printed[busy][adjacency[busy]] > 0).all()))
    nowhere = bool(printed[~busy].isnan().all()) and int((~busy).sum()) > 0
    trial.gap(
        "a row without neighbours, such as an encoder row of Theorem 2, is -inf alone; its softmax is 0 / "
        "0, nan",
        nowhere and Bipartite(2, 3).on(5).degrees[0] == 0,
    )
    trial.slip("the softmax of a row of -inf alone is not 0 but nan: 0 / 0", nowhere)


@statement(
    "Theorem 1",
    paper="self-attention assumes a fully connected graph",
    corrected="R = all pairs, loops included",
    printed="holds",
    meant="holds",
    proof="holds",
)
def theorem_1(trial: Trial) -> None:
    for n in SIZES:
        bias = classify(Full(), n)
        trial.exact("kind full", bias.kind == "full" and verify(bias.certificates["full"], Full().on(n)), n=n)
        trial.exact("reflexive", bias.properties["reflexive"], n=n)
    made = layer("SelfAttention")
    trial.by_theorem("all pairs", "Definition 5 sums over all j", lambda n: Full().on(n).dense().all())
    trial.by_theorem(
        "the layer reads all pairs", "Definition 5 sums over all j", lambda n: probe(made, n).all()
    )
    trial.step("every score is finite, so every weight is above 0", (weights(made, rows(N)) > 0).all())


@statement(
    "Theorem 2",
    paper="encoder-decoder attention assumes a bipartite graph",
    corrected="R = Y x X inside X + Y: complete and directed, encoder rows empty. With X first the block is "
    "the lower left one, as the proof says in words; its last formula has i and j exchanged",
    printed="holds",
    meant="holds",
    proof="with correction",
)
def theorem_2(trial: Trial) -> None:
    for m, n in ((1, 1), (3, 4), (4, 2), (3, 3)):
        relation = Bipartite(encoder=m, decoder=n)
        block = np.zeros((m + n, m + n), bool)
        block[m:, :m] = True
        bound = relation.on(m + n)
        bias = classify(relation)
        trial.exact("lower left block", np.array_equal(bound.dense(), block), n=m + n)
        trial.exact("kind bipartite", bias.kind == "bipartite", n=m + n)
        trial.exact("certificate", verify(bias.certificates["bipartite"], bound), n=m + n)
        trial.exact("encoder rows empty", np.array_equal(bound.empty_queries(), np.arange(m)), n=m + n)
        made = layer("SparseAttention", relation)
        trial.measured("the layer reads the block", np.array_equal(probe(made, m + n), block))
        encoder, decoder = rows(m, seed=2), rows(n, seed=3)
        h = output(made, torch.cat([encoder, decoder]))
        apart = output(layer("EncoderDecoderAttention"), decoder, encoder)
        trial.close("decoder rows are encoder-decoder attention", h[m:], apart)
        trial.close("encoder rows are zero", h[:m], np.zeros((m, h.shape[1])))
    m, n = 3, 4
    i, j = np.indices((m + n, m + n))
    cases, last = (i >= m) & (j < m), (i < m) & (j >= m)
    read = probe(layer("SparseAttention", Bipartite(m, n)), m + n)
    trial.step("the cases of K: scores where i is in Y and j in X", np.array_equal(read, cases))
    trial.step("the block is the lower left one", not read[:m].any() and not read[:, m:].any())
    trial.slip(
        "the last formula, alpha_ij > 0 iff i is in X and j in Y, is the upper right block: its transpose, "
        f"with {int((last & read).sum())} of {int(last.sum())} pairs in common",
        np.array_equal(last, cases.T) and not (last & read).any(),
    )


LAWS = ("reflexive", "antisymmetric", "transitive", "total")


def _lawful(mask: np.ndarray) -> dict[str, bool]:
    """The four laws of a total order by their definitions, over all positions, pairs and triples."""
    loop = np.eye(len(mask), dtype=bool)
    return {
        "reflexive": bool(mask.diagonal().all()),
        "antisymmetric": not (mask & mask.T & ~loop).any(),
        "transitive": not ((mask.astype(int) @ mask > 0) & ~mask).any(),
        "total": bool((mask | mask.T).all()),
    }


@statement(
    "Theorem 3",
    paper="masked attention assumes a total order",
    corrected="reflexive, antisymmetric, transitive and total: four laws, each with a witness where it "
    "fails. The proof shows the first three, which make a partial order; the fourth is j <= i or i <= j. The "
    "order is the reflexive transitive closure of the O(x) that the proof writes down",
    printed="holds",
    meant="holds",
    proof="with correction",
)
def theorem_3(trial: Trial) -> None:
    everywhere = classify(Causal())
    trial.exact("kind", everywhere.kind == "total-order" and everywhere.from_n == 2, n=2)
    trial.by_theorem(
        "the four laws",
        "j <= i is the order of the integers",
        lambda n: all(_lawful(Causal().on(n).dense()).values()),
    )
    for n in SIZES:
        bound = Causal().on(n)
        for law in (*LAWS, "total-order"):
            proof = everywhere.certificates[law]
            trial.exact(law, proof.value and verify(proof, bound), n=n)
    read = FromMask(probe(layer("MaskedAttention"), N))
    for law in LAWS:
        proof = PROPERTIES[law](read.on(N))
        trial.measured(f"the layer's relation is {law}", proof is not None and proof.value)
    order = classify(read).order
    trial.exact(
        "the order of the layer is the order of positions",
        order is not None and (np.diff(order) == 1).all(),
        n=N,
    )
    broken = {
        "reflexive": Causal() - Identity(),
        "antisymmetric": Causal() | Graph([(0, 2)]),
        "transitive": Causal() - Graph([(2, 0)]),
        "total": Causal() - Graph([(2, 0)]),
    }
    for law, relation in broken.items():
        proof = PROPERTIES[law](relation.on(N))
        fails = proof is not None and not proof.value and verify(proof, relation.on(N))
        trial.exact(f"a relation that is not {law} has a witness", fails, n=N)
        trial.exact(f"and not {law} by definition", not _lawful(relation.on(N).dense())[law], n=N)
    reads = read.on(N).dense()
    trial.step("nonzero entries are the lower triangle", np.array_equal(reads, np.tri(N, dtype=bool)))
    for law in LAWS[:3]:
        trial.step(law, _lawful(reads)[law])
    laws = _lawful(Identity().on(N).dense())
    trial.slip(
        "the order is concluded to be total from three laws, and the identity has these three without being "
        "total",
        [laws[law] for law in LAWS] == [True, True, True, False],
    )
    steps = np.eye(N, k=-1, dtype=bool)
    closed = np.linalg.matrix_power((steps | np.eye(N, dtype=bool)).astype(int), N) > 0
    trial.slip(
        f"O(x) holds the {int(steps.sum())} pairs of neighbours only, and alpha_ij != 0 for "
        f"{int(reads.sum())}: meant is its closure",
        np.array_equal(closed, reads) and steps.sum() != reads.sum(),
    )


@statement(
    "Theorem 4",
    paper="strided attention connects each element to the p before it, for a fixed p and a given order",
    corrected="to itself and to the p before it as far as there are: min(i, p) + 1 keys, acyclic without its "
    "loops, with one topological order for p >= 1. The scores are masked where j < t or j > i, with t = "
    "max(0, i - p)",
    printed="holds",
    meant="holds",
    proof="with correction",
)
def theorem_4(trial: Trial) -> None:
    i, j = np.indices((N, N))
    for p in range(1, N):
        t = np.maximum(0, i - p)
        bound = Window(lookback=p).on(N)
        trial.exact(f"p = {p}: what is not masked", np.array_equal(bound.dense(), ~((j < t) | (j > i))), n=N)
        trial.exact(
            f"p = {p}: row sizes", np.array_equal(bound.degrees, np.minimum(np.arange(N), p) + 1), n=N
        )
        read = probe(layer("StridedAttention", p + 1), N)
        trial.measured(f"p = {p}: the layer", np.array_equal(read, bound.dense()))
        bias = classify(bound)
        for name in ("acyclic", "unique_topological_order"):
            trial.exact(
                f"p = {p}: {name}", bias.properties[name] and verify(bias.certificates[name], bound), n=N
            )
        if p < N - 1:
            trial.exact(f"p = {p}: kind", (bias.kind, bias.p) == ("previous", p), n=N)
    everywhere = classify(Window(lookback=2))
    trial.exact("kind", (everywhere.kind, everywhere.p, everywhere.from_n) == ("previous", 2, 4), n=4)
    trial.by_theorem(
        "itself and the p before it, every p < n", "W_p is 0 <= i - j <= p", _windows_are_previous
    )
    read = probe(layer("StridedAttention", 3), N)
    trial.step(
        "the scores that are kept: t <= j <= i", np.array_equal(read, (np.maximum(0, i - 2) <= j) & (j <= i))
    )
    trial.step(
        "without loops a DAG: every key comes before its query",
        not np.triu(read & ~np.eye(N, dtype=bool)).any(),
    )
    printed = (np.maximum(0, i - 2) > j) & (j > i)
    trial.slip(
        f"the scores are masked where t > j > i, which is so for {int(printed.sum())} of {N * N} pairs at p "
        "= 2: nothing would be masked",
        not printed.any() and not read.all(),
    )
    trial.slip(
        f"a DAG has no loops, and with j = i allowed {int(read.diagonal().sum())} of {N} positions have one",
        read.diagonal().all(),
    )


def _windows_are_previous(n: int) -> bool:
    """Every W_p on n positions by the definition, acyclic without loops, with one topological order."""
    i, j = np.indices((n, n))
    for p in range(n):
        mask = Window(lookback=p).on(n).dense()
        if not np.array_equal(mask, (i - j >= 0) & (i - j <= p)):
            return False
        # Keys come first, so the order of positions is topological; it is the only one iff each
        # position reads the one right before it.
        if np.triu(mask, 1).any() or (mask.diagonal(-1).all() if n > 1 else True) != (p >= 1 or n == 1):
            return False
    return True

"""Proposition 1, attention as a graph layer, Lemma 1, Theorems 1-4: which relation each mechanism assumes."""

from __future__ import annotations

import numpy as np

from erlangen.bias.classify import classify
from erlangen.bias.properties import PROPERTIES
from erlangen.bias.verify import verify
from erlangen.paper.theorems.item import Trial, statement
from erlangen.relations import Bipartite, Causal, FromMask, Full, Graph, Identity, Relation, Window

N = 6
SIZES = range(2, 9)


def _all_masks(n: int) -> np.ndarray:
    """Every relation on n positions, as masks of shape (2^(n^2), n, n)."""
    codes = np.arange(2 ** (n * n))
    return (codes[:, None] >> np.arange(n * n) & 1).astype(bool).reshape(-1, n, n)


@statement(
    "Proposition 1",
    paper="attention layers take the relations among entities to be stochastic: alpha is a stochastic matrix",
    corrected="each non-empty row of alpha is a distribution with support exactly N_i, for positive kernels; "
    "an empty row sums to 0, and a signed kernel gives negative weights",
    printed=False,
)
def proposition_1(trial: Trial) -> None:
    from erlangen.paper.theorems.layers import layer, rows, weights

    relations: list[Relation] = [Full(), Causal(), Window(lookback=2), Graph([(0, 1), (3, 2), (3, 5)])]
    for relation in relations:
        bound = relation.on(N)
        alpha = weights(layer("SparseAttention", relation), rows(N)).numpy()
        busy = bound.degrees > 0
        trial.close(f"{relation}: rows sum to 1", alpha[busy].sum(1), np.ones(busy.sum()))
        trial.measured(f"{relation}: support is N_i", np.array_equal(alpha > 0, bound.dense()))
    empty = weights(layer("SparseAttention", relations[-1]), rows(N))[1]
    signed = np.array([1.0, -2.0, 3.0]) / 2.0  # k(x, y) = x y at x = 1 and y = 1, -2, 3, divided by its sum
    trial.refuted(
        f"a row without neighbours sums to {float(empty.sum()):g}; the kernel k(x, y) = x y gives "
        f"the weights {signed.tolist()}",
        float(empty.abs().sum()) == 0.0 and signed.sum() == 1.0 and signed.min() < 0,
    )


@statement(
    "attention is a graph layer",
    paper="attention is the graph layer with message alpha(x_i, x_j) v(x_j), summed",
    corrected="alpha needs all of N_i, so that is no message; with messages (e^k, e^k v), summed, and the "
    "update s / z it is one",
    printed=False,
)
def graph_layer(trial: Trial) -> None:
    import torch

    from erlangen.nn import GraphLayer
    from erlangen.paper.theorems.layers import WIDTH, layer, output, rows, weights

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
    trial.refuted(
        f"x_0 and x_1 fixed, x_5 moved: alpha(x_0, x_1) goes from {before:.3f} to {after:.3f}, "
        "so it is no function of the pair",
        abs(before - after) > 1e-4,
    )


@statement(
    "Lemma 1",
    paper="the relations of a mechanism show in the attention matrix as a masking: -inf scores, zero weights",
    corrected="masks and relations correspond one to one, and supp(alpha_i) = N_i iff N_i is not empty; an "
    "empty row is zero",
    printed=False,
)
def lemma_1(trial: Trial) -> None:
    import torch

    from erlangen.paper.theorems.layers import equation, layer, output, rows, weights

    n = 3
    masks = _all_masks(n)
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
    empty = ~masks.any(2)
    trial.close("empty rows give zero", h[torch.from_numpy(empty)], np.zeros((int(empty.sum()), x.shape[-1])))
    trial.close("other rows sum to 1", alpha.sum(-1)[torch.from_numpy(~empty)], np.ones(int((~empty).sum())))
    mask = np.array([[1, 0, 0], [0, 0, 0], [1, 1, 1]], bool)
    _, filled = equation(made, rows(n), mask, fill=-1e9)
    trial.refuted(
        f"N_1 empty: a fill of -1e9 gives the weights {[round(w, 3) for w in filled[1].tolist()]}, the "
        "support of a full row",
        bool((filled[1] > 0.3).all()),
    )


@statement(
    "Theorem 1",
    paper="self-attention assumes a fully connected graph",
    corrected="R = all pairs, loops included",
    printed=True,
)
def theorem_1(trial: Trial) -> None:
    from erlangen.paper.theorems.layers import layer, probe

    for n in SIZES:
        bias = classify(Full(), n)
        trial.exact("kind full", bias.kind == "full" and verify(bias.certificates["full"], Full().on(n)), n=n)
        trial.exact("reflexive", bias.properties["reflexive"], n=n)
    trial.exact("for every n >= 2", classify(Full()).kind == "full")
    trial.measured("the layer reads all pairs", probe(layer("SelfAttention"), N).all())


@statement(
    "Theorem 2",
    paper="encoder-decoder attention assumes a bipartite graph",
    corrected="R = Y x X inside X + Y: complete and directed, encoder rows empty; with X first the block is "
    "the lower left one (the proof's last line has i and j exchanged)",
    printed=True,
)
def theorem_2(trial: Trial) -> None:
    import torch

    from erlangen.paper.theorems.layers import layer, output, probe, rows

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


@statement(
    "Theorem 3",
    paper="masked attention assumes a total order",
    corrected="reflexive, antisymmetric, transitive and total: four laws, each with a witness where it fails",
    printed=True,
)
def theorem_3(trial: Trial) -> None:
    from erlangen.paper.theorems.layers import layer, probe

    laws = ("reflexive", "antisymmetric", "transitive", "total")
    everywhere = classify(Causal())
    trial.exact("for every n >= 2", everywhere.kind == "total-order" and everywhere.from_n == 2)
    for n in SIZES:
        bound = Causal().on(n)
        for law in (*laws, "total-order"):
            proof = everywhere.certificates[law]
            trial.exact(law, proof.value and verify(proof, bound), n=n)
    read = FromMask(probe(layer("MaskedAttention"), N))
    for law in laws:
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


@statement(
    "Theorem 4",
    paper="strided attention connects each element to the p before it; its scores are masked where t > j > i",
    corrected="masked where j < t or j > i, with t = max(0, i - p); min(i, p) + 1 keys, acyclic without its "
    "loops, with one topological order for p >= 1",
    printed=False,
)
def theorem_4(trial: Trial) -> None:
    from erlangen.paper.theorems.layers import layer, probe

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
    trial.exact(
        "for every n >= p + 2", (everywhere.kind, everywhere.p, everywhere.from_n) == ("previous", 2, 4)
    )
    printed = (np.maximum(0, i - 2) > j) & (j > i)
    trial.refuted(
        f"t > j > i holds for {int(printed.sum())} of {N * N} pairs at p = 2: as printed nothing is masked",
        not printed.any(),
    )


ITEMS = (proposition_1, graph_layer, lemma_1, theorem_1, theorem_2, theorem_3, theorem_4)

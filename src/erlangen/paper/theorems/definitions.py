"""Definitions 1-10 as constructions: each is built and checked to be what it says."""

from __future__ import annotations

import numpy as np

from erlangen.paper.theorems.item import Trial, statement
from erlangen.relations import Causal, Documents, Full, Graph, Window

N = 6


@statement(
    "Definition 1",
    paper="an inductive bias is the set of assumptions from which the predictions follow, given the data",
    corrected="for a layer over R: the rows in N_i (and x_i where |N_i| >= 2) determine h_i, no others",
    printed=True,
)
def definition_1(trial: Trial) -> None:
    from erlangen.paper.theorems.layers import layer, output, rows

    relation = Window(lookback=2) | Graph([(0, 3)])
    bound = relation.on(N)
    made, x = layer("SparseAttention", relation), rows(N)
    before = output(made, x)
    reads = bound.dense() | np.diag(bound.degrees >= 2)
    felt = np.zeros((N, N), bool)
    for j in range(N):
        changed = x.clone()
        changed[j] += 1.0
        felt[:, j] = (output(made, changed) - before).abs().amax(dim=1).numpy() > 1e-9
    trial.measured("a row of the output moves exactly with the rows it reads", np.array_equal(felt, reads))


@statement(
    "Definition 2",
    paper="a relational bias is a graph on the set of entities of an instance",
    corrected="a graph on the indices of the entities: a set would merge equal tokens",
    printed=False,
)
def definition_2(trial: Trial) -> None:
    from erlangen.paper.theorems.layers import layer, output, rows

    a, b = rows(2)
    x = rows(3)
    x[0], x[1], x[2] = a, b, a
    h = output(layer("MaskedAttention"), x)
    gap = trial.apart("equal tokens at different indices are represented differently", h[0], h[2])
    trial.exact("the relation lives on three indices", Causal().on(3).num_edges == 6, n=3)
    trial.refuted(f"x = (a, b, a) is a set of two entities, yet h_0 and h_2 differ by {gap:.2g}", gap > 1e-4)


@statement(
    "Definition 3",
    paper="f is equivariant when acting before f and acting after f agree, with one action rho on one space",
    corrected="input and output may differ in action: encoder-decoder has f(sigma X, tau Y) = tau f(X, Y)",
    printed=False,
)
def definition_3(trial: Trial) -> None:
    from erlangen.paper.theorems.layers import act, layer, output, rows

    made, encoder, decoder = layer("EncoderDecoderAttention"), rows(4, seed=2), rows(4, seed=3)
    sigma, tau = [2, 0, 1, 3], [1, 3, 0, 2]
    h = output(made, decoder, encoder)
    trial.close(
        "tau follows, sigma does not show",
        output(made, act(tau, decoder), act(sigma, encoder)),
        act(tau, h),
    )
    gap = trial.apart(
        "acting by sigma on the output as on the encoder is wrong",
        output(made, decoder, act(sigma, encoder)),
        act(sigma, h),
    )
    trial.refuted(
        f"one action for input and output: permuting the encoder by (0 2 1) is off by {gap:.2g}", gap > 1e-4
    )


@statement(
    "Definition 4",
    paper="a graph layer updates x_i with messages from its neighbours, combined by a commutative operator",
    corrected="the operator is a commutative monoid: associative too, with a unit for empty neighbourhoods",
    printed=False,
)
def definition_4(trial: Trial) -> None:
    import torch

    from erlangen.nn import GraphLayer
    from erlangen.paper.theorems.layers import rows

    x, relation = rows(N), Graph([(0, 1), (0, 4), (0, 2), (3, 0), (3, 3)])
    order = torch.tensor([5, 3, 0, 4, 1, 2])
    for aggregate, unit, combine in (
        ("sum", 0.0, lambda m: m.sum(0)),
        ("max", -torch.inf, lambda m: m.amax(0)),
        ("min", torch.inf, lambda m: m.amin(0)),
    ):
        made = GraphLayer(lambda xi, xj: xi * xj, aggregate, lambda xi, total: total)
        out = made(x, relation)
        for i in (0, 3):
            keys = relation.on(N).edges()
            keys = keys[keys[:, 0] == i, 1]
            trial.close(f"{aggregate} of the messages of {i}", out[i], combine(x[i] * x[keys]))
        trial.measured(f"{aggregate} of nothing is its unit", (out[1] == unit).all())
        renamed = Graph(order.numpy()[relation.on(N).edges()], nodes=N)
        moved = torch.empty_like(x)
        moved[order] = x
        trial.measured(
            f"{aggregate} does not see the order of the edges",
            torch.allclose(made(moved, renamed)[order], out, atol=1e-12),
        )
    left, right = ((1 + 2) / 2 + 3) / 2, ((3 + 2) / 2 + 1) / 2
    trial.refuted(
        f"the midpoint is commutative, yet over 1, 2, 3 it gives {left} or {right} by order", left != right
    )


@statement(
    "Definition 5",
    paper="self-attention: each entity sums over all entities with softmax weights",
    corrected="the relation is all pairs, loops included",
    printed=True,
)
def definition_5(trial: Trial) -> None:
    _layer_is(trial, "SelfAttention", (), np.ones((N, N), bool))


@statement(
    "Definition 6",
    paper="encoder-decoder attention: each decoder entity sums over the encoder entities",
    corrected="the relation is Y x X: every decoder row reads every encoder row and nothing else",
    printed=True,
)
def definition_6(trial: Trial) -> None:
    from erlangen.paper.theorems.layers import equation, layer, output, rows, weights

    made, encoder, decoder = layer("EncoderDecoderAttention"), rows(5, seed=2), rows(3, seed=3)
    h, alpha = equation(made, decoder, np.ones((3, 5), bool), encoder)
    trial.close("h", output(made, decoder, encoder), h)
    trial.close("alpha", weights(made, decoder, encoder), alpha)
    trial.measured("every pair (y, x) is related", (weights(made, decoder, encoder) > 0).all())


@statement(
    "Definition 7",
    paper="masked attention: each entity sums over itself and the entities before it",
    corrected="the relation is j <= i",
    printed=True,
)
def definition_7(trial: Trial) -> None:
    i = np.arange(N)
    _layer_is(trial, "MaskedAttention", (), i[None, :] <= i[:, None])


@statement(
    "Definition 8",
    paper="strided attention: each entity sums over the entities from max(0, i - k) to i",
    corrected="the relation is W_k, 0 <= i - j <= k: min(i, k) + 1 keys, so `stride` = k + 1",
    printed=True,
)
def definition_8(trial: Trial) -> None:
    i = np.arange(N)
    gap = i[:, None] - i[None, :]
    for k in (0, 1, 2, N - 1):
        expected = (gap >= 0) & (gap <= k)
        _layer_is(trial, "StridedAttention", (k + 1,), expected)
        trial.exact(
            f"k = {k}: min(i, k) + 1 keys",
            np.array_equal(Window(lookback=k).on(N).degrees, np.minimum(i, k) + 1),
            n=N,
        )


@statement(
    "Definition 9",
    paper="graph attention: each entity sums over its given neighbours",
    corrected="any relation, another for each instance; a row with no neighbours is zero",
    printed=True,
)
def definition_9(trial: Trial) -> None:
    import torch

    from erlangen.paper.theorems.layers import equation, layer, output, probe, rows, weights

    made, x = layer("GraphAttention"), rows(N)
    for seed in range(4):
        mask = np.random.default_rng(seed).random((N, N)) < 0.4
        mask[seed] = False
        adjacency = torch.from_numpy(mask)
        h, alpha = equation(made, x, mask)
        trial.close("h", output(made, x, adjacency), h)
        trial.close("alpha", weights(made, x, adjacency), alpha)
        trial.measured("the probe returns the graph", np.array_equal(probe(made, N, adjacency), mask))
    for relation in (Full(), Causal(), Window(lookback=2), Documents([2, 4])):
        same = layer("SparseAttention", relation)
        adjacency = torch.from_numpy(relation.on(N).dense())
        trial.close(f"simulates {relation}", output(made, x, adjacency), output(same, x))


@statement(
    "Definition 10",
    paper="an attention layer returns the expected value of psi_v over a distribution on each neighbourhood",
    corrected="so it does where N_i is not empty; an empty N_i carries no distribution, and h_i = 0",
    printed=False,
)
def definition_10(trial: Trial) -> None:
    from erlangen.paper.theorems.layers import layer, output, rows, weights

    relation = Graph([(0, 1), (0, 2), (1, 1), (3, 0), (3, 4), (3, 5), (4, 2)])
    made, x = layer("SparseAttention", relation), rows(N)
    h, alpha = output(made, x), weights(made, x)
    busy = relation.on(N).degrees > 0
    trial.close("the mean of the values under alpha", h, alpha @ made.V(x))
    trial.close("alpha is a distribution on non-empty rows", alpha.sum(1)[busy], np.ones(busy.sum()))
    trial.close("empty rows are zero", h[~busy], np.zeros((int((~busy).sum()), x.shape[1])))
    total = float(alpha[2].sum())
    trial.refuted(f"position 2 has no neighbours: its weights sum to {total:g}, not to 1", total == 0.0)


def _layer_is(trial: Trial, kind: str, arguments: tuple[int, ...], expected: np.ndarray) -> None:
    """The layer reads exactly the expected pairs, and its values are those of the defining sums."""
    from erlangen.paper.theorems.layers import equation, layer, output, probe, rows, weights

    made, x = layer(kind, *arguments), rows(N)
    h, alpha = equation(made, x, expected)
    trial.close("h", output(made, x), h)
    trial.close("alpha", weights(made, x), alpha)
    trial.measured("the probe returns the relation", np.array_equal(probe(made, N), expected))


ITEMS = (
    definition_1,
    definition_2,
    definition_3,
    definition_4,
    definition_5,
    definition_6,
    definition_7,
    definition_8,
    definition_9,
    definition_10,
)

"""Definitions 1-10 as constructions: each is built and checked to be what it says."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import torch

from erlangen.nn import GraphLayer
from erlangen.paper.theorems.apparatus import act, equation, layer, output, probe, rows, weights
from erlangen.paper.theorems.item import Trial, statement
from erlangen.relations import Bipartite, Causal, Documents, FromMask, Full, Graph, Window

N = 6


@statement(
    "Definition 1",
    paper="an inductive bias is a minimal set of assumptions from which, with the data, the predictions "
    "follow; the data are the pairs (x, f*(x)) for x in X",
    corrected="the data are pairs for some x in X only. For a layer over R the assumption is: the rows in "
    "N_i (and x_i where |N_i| >= 2) determine h_i, no others",
    printed="with correction",
    meant="holds",
)
def definition_1(trial: Trial) -> None:
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
    functions = list(product((0, 1), repeat=3))
    agreeing = [[sum(f[:seen] == g[:seen] for g in functions) for f in functions] for seen in (2, 3)]
    trial.exact(
        "two of three values leave two functions: an assumption must decide", set(agreeing[0]) == {2}, n=3
    )
    trial.refuted(
        "two readings: with a pair for every x in X, as printed, the data are f* itself (of the "
        f"{len(functions)} functions on 3 points {agreeing[1][0]} agrees with them) and nothing is left to "
        "predict; with a sample, as meant, a bias is needed",
        set(agreeing[1]) == {1},
    )


@statement(
    "Definition 2",
    paper="a relational bias is a graph on the set of entities x = {x_1, ..., x_n} of an instance",
    corrected="a graph on the indices of the entities. Read as a set, equal tokens merge; read as a family "
    "with indices, which the notation suggests, it holds",
    printed="with correction",
    meant="holds",
)
def definition_2(trial: Trial) -> None:
    a, b = rows(2)
    x = rows(3)
    x[0], x[1], x[2] = a, b, a
    made = layer("MaskedAttention")
    h = output(made, x)
    gap = trial.apart("equal tokens at different indices are represented differently", h[0], h[2])
    trial.exact("as a family: the relation lives on three indices", Causal().on(3).num_edges == 6, n=3)
    trial.measured("and it is the layer's", np.array_equal(probe(made, 3), Causal().on(3).dense()))
    trial.refuted(
        f"two readings: as a set x = (a, b, a) has two entities, yet h_0 and h_2 differ by {gap:.2g}; as a "
        "family it has three",
        gap > 1e-4 and len({tuple(row.tolist()) for row in x}) == 2,
    )


@statement(
    "Definition 3",
    paper="f : X -> X is equivariant when acting before f and acting after f agree, with one action rho",
    corrected="so it is on one space, to which encoder-decoder attention belongs as a map of X and Y "
    "together. As a map of two sequences, as in Definition 6, it needs two actions: f(sigma X, tau Y) = tau "
    "f(X, Y)",
    printed="holds",
    meant="with correction",
)
def definition_3(trial: Trial) -> None:
    made, encoder, decoder = layer("EncoderDecoderAttention"), rows(4, seed=2), rows(4, seed=3)
    sigma, tau = [2, 0, 1, 3], [1, 3, 0, 2]
    both, joint = [*sigma, *(4 + place for place in tau)], layer("SparseAttention", Bipartite(4, 4))
    together = torch.cat([encoder, decoder])
    trial.close(
        "one action on X and Y together",
        output(joint, act(both, together)),
        act(both, output(joint, together)),
    )
    h = output(made, decoder, encoder)
    trial.close("the decoder rows of both are the same", output(joint, together)[4:], h)
    trial.close(
        "two actions: tau follows, sigma does not show",
        output(made, act(tau, decoder), act(sigma, encoder)),
        act(tau, h),
    )
    gap = trial.apart(
        "acting by sigma on the output as on the encoder is wrong",
        output(made, decoder, act(sigma, encoder)),
        act(sigma, h),
    )
    trial.not_meant(
        "two readings: on X and Y together one action is enough; of two sequences, permuting the encoder by "
        f"(0 2 1) and the output with it is off by {gap:.2g}",
        gap > 1e-4,
    )


@statement(
    "Definition 4",
    paper="a graph layer updates x_i with messages from its neighbours, combined by a commutative operator",
    corrected="the operator is a commutative monoid: associative too, with a unit for empty neighbourhoods, "
    "which the encoder rows of Theorem 2 have",
    printed="with correction",
    meant="with correction",
)
def definition_4(trial: Trial) -> None:
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
        renamed = Graph.from_pairs(order.numpy()[relation.on(N).edges()], nodes=N)
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
    trial.gap(
        "an encoder row of Theorem 2 has no neighbours, and a sum without a unit has no value there",
        Bipartite(2, 3).on(5).degrees[0] == 0,
    )


@statement(
    "Definition 5",
    paper="self-attention: each entity sums over all entities with softmax weights",
    corrected="the relation is all pairs, loops included",
    printed="holds",
    meant="holds",
)
def definition_5(trial: Trial) -> None:
    _layer_is(trial, "SelfAttention", (), np.ones((N, N), bool))


@statement(
    "Definition 6",
    paper="encoder-decoder attention: each decoder entity sums over the encoder entities",
    corrected="the relation is Y x X: every decoder row reads every encoder row and nothing else",
    printed="holds",
    meant="holds",
)
def definition_6(trial: Trial) -> None:
    made, encoder, decoder = layer("EncoderDecoderAttention"), rows(5, seed=2), rows(3, seed=3)
    h, alpha = equation(made, decoder, np.ones((3, 5), bool), encoder)
    trial.close("h", output(made, decoder, encoder), h)
    trial.close("alpha", weights(made, decoder, encoder), alpha)
    trial.measured("every pair (y, x) is related", (weights(made, decoder, encoder) > 0).all())


@statement(
    "Definition 7",
    paper="masked attention: each entity sums over itself and the entities before it, with the weights of "
    "equation 4",
    corrected="the relation is j <= i, and the softmax is over the keys that are summed; over all keys, as "
    "in Definition 5, the weights do not sum to 1 and the future shows in them",
    printed="with correction",
    meant="holds",
)
def definition_7(trial: Trial) -> None:
    i = np.arange(N)
    _layer_is(trial, "MaskedAttention", (), i[None, :] <= i[:, None])
    _two_softmaxes(trial, "MaskedAttention", (), i[None, :] <= i[:, None])


@statement(
    "Definition 8",
    paper="strided attention: each entity sums over the entities from max(0, i - k) to i, with the weights "
    "of equation 4",
    corrected="the relation is W_k, 0 <= i - j <= k: min(i, k) + 1 keys, counted from 0, and the softmax is "
    "over the keys that are summed. The listing's `stride` is k + 1",
    printed="with correction",
    meant="holds",
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
    _two_softmaxes(trial, "StridedAttention", (3,), (gap >= 0) & (gap <= 2))


@statement(
    "Definition 9",
    paper="graph attention: each entity sums over its given neighbours, with the weights of equation 4; the "
    "other mechanisms are cases of it",
    corrected="any relation, another for each instance, and the softmax is over the neighbours; the empty "
    "sum of a row with no neighbours is zero",
    printed="with correction",
    meant="holds",
)
def definition_9(trial: Trial) -> None:
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
    mask = np.random.default_rng(0).random((N, N)) < 0.4
    _two_softmaxes(trial, "SparseAttention", (FromMask(mask),), mask)


@statement(
    "Definition 10",
    paper="an attention layer returns the expected value of psi_v over a distribution on each neighbourhood",
    corrected="so it does where N_i is not empty; an empty N_i, such as that of an encoder row of Theorem 2, "
    "carries no distribution, and h_i = 0",
    printed="with correction",
    meant="with correction",
)
def definition_10(trial: Trial) -> None:
    relation = Graph([(0, 1), (0, 2), (1, 1), (3, 0), (3, 4), (3, 5), (4, 2)])
    made, x = layer("SparseAttention", relation), rows(N)
    h, alpha = output(made, x), weights(made, x)
    busy = relation.on(N).degrees > 0
    trial.close("the mean of the values under alpha", h, alpha @ made.V(x))
    trial.close("alpha is a distribution on non-empty rows", alpha.sum(1)[busy], np.ones(busy.sum()))
    trial.close("empty rows are zero", h[~busy], np.zeros((int((~busy).sum()), x.shape[1])))
    total = float(alpha[2].sum())
    trial.gap(f"position 2 has no neighbours: its weights sum to {total:g}, not to 1", total == 0.0)


def _layer_is(trial: Trial, kind: str, arguments: tuple[int, ...], expected: np.ndarray) -> None:
    """The layer reads exactly the expected pairs, and its values are those of the defining sums."""
    made, x = layer(kind, *arguments), rows(N)
    h, alpha = equation(made, x, expected)
    trial.close("h", output(made, x), h)
    trial.close("alpha", weights(made, x), alpha)
    trial.measured("the probe returns the relation", np.array_equal(probe(made, N), expected))


def _two_softmaxes(trial: Trial, kind: str, arguments: tuple[Any, ...], allowed: np.ndarray) -> None:
    """Equation 4 does not say over which keys its softmax is. Only one of the two readings is the layer."""
    made, x = layer(kind, *arguments), rows(N)
    _, over_all = equation(made, x, np.ones((N, N), bool))
    weights = over_all.numpy() * allowed
    trial.apart("the softmax is not over all keys", weights @ made.V(x).detach().numpy(), output(made, x))
    other = x.clone()
    i, unread = next(
        (i, int(np.flatnonzero(~row)[-1])) for i, row in enumerate(allowed) if row.any() and not row.all()
    )
    other[unread] += 1.0
    moved = equation(made, other, np.ones((N, N), bool))[1].numpy() * allowed
    total, change = float(weights[i].sum()), float(np.abs(moved - weights)[i].max())
    trial.refuted(
        f"two readings of equation 4: with the softmax over all keys row {i} sums to {total:.2f}, and its "
        f"weights move by {change:.2g} with x_{unread}, which it does not read; with the softmax over the "
        "keys summed, as Lemma 1 has it, neither happens",
        total < 1 - 1e-4 and change > 1e-4,
    )

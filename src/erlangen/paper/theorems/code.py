"""The appendix code B.1-B.5: its semantics, written again from the equations, against the layers."""

from __future__ import annotations

import numpy as np
import torch

from erlangen.paper.theorems.apparatus import equation, layer, output, rows, weights
from erlangen.paper.theorems.item import Trial, statement
from erlangen.relations import Bipartite, Window

N = 6
FILL = -1e9
"""The score the appendix gives to a pair that is not related."""


@statement(
    "Code B.1",
    paper="self-attention on one sequence of shape (n, d)",
    corrected="reproduced in value; batches work too",
    printed="holds",
    meant="holds",
)
def code_1(trial: Trial) -> None:
    _same_as_code(trial, "SelfAttention", (), np.ones((N, N), bool))


@statement(
    "Code B.2",
    paper="masked attention by a fill of -1e9 above the diagonal",
    corrected="reproduced in value, for no row of a causal mask is empty; batches work too",
    printed="holds",
    meant="holds",
)
def code_2(trial: Trial) -> None:
    _same_as_code(trial, "MaskedAttention", (), np.tri(N, dtype=bool))


@statement(
    "Code B.3",
    paper="encoder-decoder attention: queries from the decoder, keys and values from the encoder",
    corrected="reproduced in value; batches work too",
    printed="holds",
    meant="holds",
)
def code_3(trial: Trial) -> None:
    made = layer("EncoderDecoderAttention")
    decoders, encoders = (torch.stack([rows(size, seed=s) for s in (4, 5)]) for size in (3, 5))
    h = output(made, decoders, encoders)
    for item in range(2):
        decoder, encoder = decoders[item], encoders[item]
        expected, alpha = equation(made, decoder, np.ones((3, 5), bool), encoder, fill=FILL)
        trial.close("h", output(made, decoder, encoder), expected)
        trial.close("alpha", weights(made, decoder, encoder), alpha)
        trial.close("in a batch", h[item], expected)


@statement(
    "Code B.4",
    paper="strided attention: what lies outside the window of `stride` is masked too",
    corrected="reproduced in value. Its window has `stride` keys, itself included: Definition 8 with k = "
    "stride - 1, and not with k = stride",
    printed="holds",
    meant="holds",
)
def code_4(trial: Trial) -> None:
    for stride in (1, 2, 3, N):
        # Row i keeps the keys 0, 1, ..., stride - 1 steps back, stopping at the first position.
        kept = np.zeros((N, N), bool)
        for i in range(N):
            kept[i, [max(0, i - back) for back in range(stride)]] = True
        _same_as_code(trial, "StridedAttention", (stride,), kept)
        same = np.array_equal(kept, Window(lookback=stride - 1).on(N).dense())
        trial.exact(f"stride = {stride} is W_{stride - 1}", same, n=N)
        longer = Window(lookback=stride).on(N).dense()
        trial.exact(
            f"stride = {stride} is not W_{stride}", np.array_equal(kept, longer) == (stride >= N), n=N
        )


@statement(
    "Code B.5",
    paper="graph attention by a fill of -1e9 where the adjacency matrix is zero; it can simulate the other "
    "kinds",
    corrected="reproduced in value on non-empty rows; on an empty row the fill spreads the weights over "
    "everything, where the layer gives zero, with zero gradient. So it simulates encoder-decoder attention "
    "on the decoder rows alone",
    printed="with correction",
    meant="with correction",
)
def code_5(trial: Trial) -> None:
    made, x = layer("GraphAttention"), rows(N)
    mask = np.random.default_rng(3).random((N, N)) < 0.4
    mask[2] = False
    adjacency = torch.from_numpy(mask)
    busy = adjacency.any(1)
    filled, alpha = equation(made, x, mask, fill=FILL)
    h = output(made, x, adjacency)
    trial.close("h on non-empty rows", h[busy], filled[busy])
    trial.close("alpha on non-empty rows", weights(made, x, adjacency)[busy], alpha[busy])
    trial.close("the layer gives zero on empty rows", h[~busy], np.zeros((int((~busy).sum()), x.shape[1])))
    given = x.clone().requires_grad_()
    made(given, adjacency)[0][2].sum().backward()
    trial.exact("with zero gradient", given.grad is None or not given.grad.any(), n=N)
    trial.apart("the fill does not", filled[2], h[2])
    joint = Bipartite(2, 4).on(N).dense()
    simulated, alpha = equation(made, x, joint, fill=FILL)
    expected = output(layer("SparseAttention", Bipartite(2, 4)), x)
    trial.close("encoder-decoder attention on decoder rows", simulated[2:], expected[2:])
    gap = trial.apart("not on encoder rows", simulated[:2], expected[:2])
    trial.gap(
        "encoder-decoder attention by its adjacency matrix: encoder row 0 has no neighbours, the fill gives "
        f"everything the weight {float(alpha[0, 0]):.3f}, and an output {gap:.2g} away from zero",
        bool((alpha[0] - 1 / N).abs().max() < 1e-9),
    )


def _same_as_code(trial: Trial, kind: str, arguments: tuple[int, ...], kept: np.ndarray) -> None:
    made = layer(kind, *arguments)
    batch = torch.stack([rows(N, seed=s) for s in (4, 5)])
    h = output(made, batch)
    for item, x in enumerate(batch):
        expected, alpha = equation(made, x, kept, fill=FILL)
        trial.close("h", output(made, x), expected)
        trial.close("alpha", weights(made, x), alpha)
        trial.close("in a batch", h[item], expected)

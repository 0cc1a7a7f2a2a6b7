"""Theorems 5-8 and Corollary 1: what each mechanism is equivariant to, and what it is not."""

from __future__ import annotations

from itertools import permutations

import numpy as np

from erlangen.bias.laws import always
from erlangen.paper.theorems.item import Trial, statement
from erlangen.relations import Bipartite, Causal, Documents, Full, Identity, Window
from erlangen.symmetry import symmetry
from erlangen.symmetry.translations import translations

N = 6
SHIFT = 2


@statement(
    "Theorem 5",
    paper="self-attention is equivariant to permutations",
    corrected="true for every permutation, without positions. The converse is false: exactly four relations "
    "have the group S_n (empty, identity, full, full without loops); absolute positions break it",
    printed=True,
)
def theorem_5(trial: Trial) -> None:
    from erlangen import equivariance
    from erlangen.paper.theorems.layers import act, layer, output, rows

    made, x = layer("SelfAttention"), rows(N)
    group = symmetry(Full(), N)
    trial.exact("the group of the relation is S_n", group.order == 720 and group.exact, n=N)
    trial.measured("kept on its generators", equivariance.check(made, group, x).holds)
    for seed in range(4):
        pi = np.random.default_rng(seed).permutation(N)
        trial.close("f(pi X) = pi f(X)", output(made, act(pi, x)), act(pi, output(made, x)))
    for n in (3, 4):
        trial.exact(f"four relations with S_{n}", _fully_symmetric(n) == 4, n=n)
    trial.exact("the identity has the same group", symmetry(Identity(), N).order == 720, n=N)
    positions, pi = rows(N, seed=7), np.roll(np.arange(N), 1)
    trial.apart(
        "absolute positions break it",
        output(made, act(pi, x) + positions),
        act(pi, output(made, x + positions)),
    )


def _fully_symmetric(n: int) -> int:
    """How many relations on n positions are kept by every permutation, over all 2^(n^2) of them."""
    codes = np.arange(2 ** (n * n))
    masks = (codes[:, None] >> np.arange(n * n) & 1).astype(bool).reshape(-1, n, n)
    kept = np.ones(len(masks), bool)
    for pi in permutations(range(n)):
        kept &= (masks[:, pi][:, :, pi] == masks).all((1, 2))
    return int(kept.sum())


@statement(
    "Theorem 6",
    paper="masked attention is equivariant to translations",
    corrected="its finite group is trivial. What holds: the mask is Toeplitz; behind a disconnected prefix a "
    "sequence is represented as before; f(X)[:k] = f(X[:k])",
    printed=False,
)
def theorem_6(trial: Trial) -> None:
    import torch

    from erlangen import equivariance
    from erlangen.paper.theorems.layers import act, layer, output, rows

    made, x = layer("MaskedAttention"), rows(N)
    h = output(made, x)
    for n in range(2, 9):
        trial.exact("the group is trivial", symmetry(Causal(), n).order == 1, n=n)
        trial.exact("Toeplitz", translations(Causal(), n).toeplitz, n=n)
    trial.exact("Toeplitz for every n", "toeplitz" in always(Causal()))
    trial.measured(
        "nothing but the identity is kept", equivariance.check(made, symmetry(Causal(), N), x).holds
    )
    prefix = rows(SHIFT, seed=5)
    behind = layer("SparseAttention", Documents([SHIFT, N]) & Causal())
    trial.close("behind a disconnected prefix", output(behind, torch.cat([prefix, x]))[SHIFT:], h)
    for k in range(1, N + 1):
        trial.close(f"prefix of {k}", output(made, x[:k]), h[:k])
    trial.exact("prefix law", translations(Causal(), N).prefix, n=N)
    shift = np.roll(np.arange(N), -1)
    gap = trial.apart("the cyclic shift", output(made, act(shift, x)), act(shift, h))
    zero = trial.apart(
        "a prefix of zero vectors is not neutral",
        output(made, torch.cat([torch.zeros_like(prefix), x]))[SHIFT:],
        h,
    )
    trial.refuted(
        f"n = {N}: shifting by one position is off by {gap:.2g} on the circle, and by {zero:.2g} behind "
        f"{SHIFT} zero vectors; the only automorphism is the identity",
        gap > 1e-4 and zero > 1e-4 and symmetry(Causal(), N).order == 1,
    )


@statement(
    "Theorem 7",
    paper="strided attention is equivariant to translations",
    corrected="its finite group is trivial for p >= 1 (S_n for p = 0). Exactly the rows "
    "Core(m) = {p, ..., n-1-m} follow the shift by m; for masked attention Core(m) is empty. On the integers "
    "the group is Z",
    printed=False,
)
def theorem_7(trial: Trial) -> None:
    import torch

    from erlangen import equivariance
    from erlangen.paper.theorems.layers import act, layer, output, rows

    n, p = 9, 2
    made, x = layer("StridedAttention", p + 1), rows(n)
    h = output(made, x)
    for width in range(1, n):
        trial.exact(f"p = {width}: trivial", symmetry(Window(lookback=width), n).order == 1, n=n)
    trial.exact("p = 0: S_n", symmetry(Window(lookback=0), 5).order == 120, n=5)
    group = symmetry(Window(lookback=p), n)
    trial.measured("the layer keeps the identity alone", equivariance.check(made, group, x).holds)
    shifts = translations(Window(lookback=p), n)
    for m in range(1, n):
        core = _core(Window(lookback=p).on(n).dense(), m)
        trial.exact(f"Core({m})", core == list(range(p, n - m)) == shifts.core(m).tolist(), n=n)
        moved = torch.cat([rows(m, seed=9), x[: n - m]])
        follows = (output(made, moved)[m:] - h[: n - m]).abs().amax(1) < 1e-9
        trial.measured(
            f"exactly Core({m}) follows the shift", torch.nonzero(follows).ravel().tolist() == core
        )
        trial.exact(f"masked: Core({m}) is empty", _core(Causal().on(n).dense(), m) == [], n=n)
    for relation in (Causal(), Window(lookback=p)):
        trial.exact("on the integers: Z", translations(relation, n).integers == "Z")
    shift = np.roll(np.arange(n), -1)
    gap = trial.apart("the cyclic shift", output(made, act(shift, x)), act(shift, h))
    trial.refuted(
        f"n = {n}, p = {p}: the shift by one is off by {gap:.2g}; rows 0 to {p - 1} do not follow it",
        gap > 1e-4,
    )


def _core(mask: np.ndarray, m: int) -> list[int]:
    """{i : N_{i+m} = N_i + m}, from the definition."""
    n = len(mask)
    sets = [set(np.flatnonzero(row).tolist()) for row in mask]
    return [i for i in range(n - m) if sets[i + m] == {j + m for j in sets[i]}]


@statement(
    "Corollary 1",
    paper="the biases of strided attention include those of masked attention, with t = n",
    corrected="as families: W_p is the order <= on [n] iff p >= n - 1. With t = n as printed one row is left",
    printed=False,
)
def corollary_1(trial: Trial) -> None:
    from erlangen.paper.theorems.layers import layer, output, rows

    for n in range(1, 9):
        same = [p for p in range(n + 2) if Window(lookback=p).on(n) == Causal().on(n)]
        trial.exact("equal iff p >= n - 1", same == list(range(n - 1, n + 2)), n=n)
    x = rows(N)
    trial.close("as layers", output(layer("StridedAttention", N), x), output(layer("MaskedAttention"), x))
    trial.apart(
        "one less is not masked",
        output(layer("StridedAttention", N - 1), x),
        output(layer("MaskedAttention"), x),
    )
    i, j = np.indices((N, N)) + 1  # the paper counts from 1
    left = ((j >= N) & (j <= i)).any(1)
    trial.refuted(f"t = n = {N} leaves {int(left.sum())} of {N} rows with a key", int(left.sum()) == 1)


@statement(
    "Theorem 8",
    paper="encoder-decoder attention is equivariant to the permutations that keep the partition into blocks",
    corrected="to those that keep each block: S_m x S_n. Swapping the blocks keeps the partition, and is no "
    "symmetry",
    printed=False,
)
def theorem_8(trial: Trial) -> None:
    from math import factorial

    from erlangen import equivariance
    from erlangen.paper.theorems.layers import act, layer, output, rows

    for m, n in ((1, 2), (3, 4), (3, 3)):
        group = symmetry(Bipartite(encoder=m, decoder=n))
        trial.exact("S_m x S_n", group.exact and group.order == factorial(m) * factorial(n), n=m + n)
        joint = layer("SparseAttention", Bipartite(encoder=m, decoder=n))
        trial.measured("the joint layer", equivariance.check(joint, group, rows(m + n)).holds)
    made, encoder, decoder = layer("EncoderDecoderAttention"), rows(3, seed=2), rows(4, seed=3)
    sigma, tau = [2, 0, 1], [1, 3, 0, 2]
    trial.close(
        "f(sigma X, tau Y) = tau f(X, Y)",
        output(made, act(tau, decoder), act(sigma, encoder)),
        act(tau, output(made, decoder, encoder)),
    )
    swap = [3, 4, 5, 0, 1, 2]
    joint, x = layer("SparseAttention", Bipartite(3, 3)), rows(6)
    gap = trial.apart("the swap", output(joint, act(swap, x)), act(swap, output(joint, x)))
    trial.refuted(
        f"m = n = 3: exchanging X and Y keeps the partition, yet is off by {gap:.2g}",
        gap > 1e-4 and not symmetry(Bipartite(3, 3)).contains(swap),
    )


ITEMS = (theorem_5, theorem_6, theorem_7, corollary_1, theorem_8)

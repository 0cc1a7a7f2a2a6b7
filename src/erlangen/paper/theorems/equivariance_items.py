"""Theorems 5-8 and Corollary 1: what each mechanism is equivariant to, and what it is not."""

from __future__ import annotations

from itertools import permutations
from math import factorial

import numpy as np
import torch

from erlangen import equivariance
from erlangen.paper.theorems.apparatus import act, every_mask, layer, output, rows
from erlangen.paper.theorems.item import Trial, statement
from erlangen.relations import Bipartite, Causal, Documents, Full, Identity, Window
from erlangen.symmetry import symmetry
from erlangen.symmetry.translations import translations
from erlangen.taxonomy.count_automorphisms import count_automorphisms

N = 6
SHIFT = 2


@statement(
    "Theorem 5",
    paper="self-attention is equivariant to permutations",
    corrected="true for every permutation, without positions. The converse is false: for n >= 2 exactly four "
    "relations have the group S_n (empty, identity, full, full without loops; two for n = 1), and absolute "
    "positions break it",
    printed="holds",
    meant="holds",
)
def theorem_5(trial: Trial) -> None:
    made, x = layer("SelfAttention"), rows(N)
    group = symmetry(Full(), N)
    trial.exact("the group of the relation is S_n", group.order == 720 and group.exact, n=N)
    trial.measured("kept on its generators", equivariance.check(made, group, x).holds)
    for seed in range(4):
        pi = np.random.default_rng(seed).permutation(N)
        trial.close("f(pi X) = pi f(X)", output(made, act(pi, x)), act(pi, output(made, x)))
    trial.exact("two relations with S_1", _fully_symmetric(1) == 2, n=1)
    for n in (2, 3, 4):
        trial.exact(f"four relations with S_{n}", _fully_symmetric(n) == 4, n=n)
    trial.by_theorem(
        "Full() has the group S_n", "all pairs stay all pairs",
        lambda n: count_automorphisms(Full().on(n).dense()) == factorial(n),
    )  # fmt: skip
    trial.by_theorem(
        "the others are three",
        "S_n has two orbits on pairs for n >= 2, loops and the rest",
        lambda n: _orbitals(n) == 2,
        least=2,
    )
    trial.exact("the identity has the same group", symmetry(Identity(), N).order == 720, n=N)
    positions, pi = rows(N, seed=7), np.roll(np.arange(N), 1)
    trial.apart(
        "absolute positions break it",
        output(made, act(pi, x) + positions),
        act(pi, output(made, x + positions)),
    )


def _orbitals(n: int) -> int:
    """How many classes of pairs the exchanges of two neighbours, which generate S_n, leave; a relation that
    S_n keeps is a union of them.

    >>> _orbitals(1), _orbitals(5)
    (1, 2)
    """
    pairs = {(i, j) for i in range(n) for j in range(n)}
    swap = [{k: k + 1, k + 1: k} for k in range(n - 1)]
    count = 0
    while pairs:
        reached, waiting = set(), [next(iter(pairs))]
        while waiting:
            i, j = pair = waiting.pop()
            if pair not in reached:
                reached.add(pair)
                waiting += [(exchange.get(i, i), exchange.get(j, j)) for exchange in swap]
        pairs -= reached
        count += 1
    return count


def _fully_symmetric(n: int) -> int:
    """How many relations on n positions are kept by every permutation, over all 2^(n^2) of them."""
    masks = every_mask(n)
    kept = np.ones(len(masks), bool)
    for pi in permutations(range(n)):
        kept &= (masks[:, pi][:, :, pi] == masks).all((1, 2))
    return int(kept.sum())


@statement(
    "Theorem 6",
    paper="masked attention is equivariant to translations",
    corrected="its finite group is trivial for n >= 2. What holds: the mask is Toeplitz; behind a "
    "disconnected prefix a sequence is represented as before; f(X)[:k] = f(X[:k]). The proof shows that a "
    "translation keeps the order of the pairs it moves; equivariance needs N_(i+m) = N_i + m, which no row "
    "has",
    printed="fails",
    meant="with correction",
    proof="fails",
)
def theorem_6(trial: Trial) -> None:
    made, x = layer("MaskedAttention"), rows(N)
    h = output(made, x)
    for n in range(2, 9):
        trial.exact("the group is trivial", symmetry(Causal(), n).order == 1, n=n)
        trial.exact("Toeplitz", translations(Causal(), n).toeplitz, n=n)
    trial.by_theorem(
        "the group is trivial",
        "an automorphism keeps the number of keys, i + 1",
        lambda n: count_automorphisms(Causal().on(n).dense()) == 1,
    )
    trial.by_theorem("Toeplitz", "j <= i iff j + 1 <= i + 1", lambda n: _toeplitz(Causal().on(n).dense()))
    trial.by_theorem(
        "no row follows a shift",
        "N_(i+m) starts at 0, N_i + m at m",
        lambda n: not any(_core(Causal().on(n).dense(), m) for m in range(1, n)),
    )
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
    moved = output(made, torch.cat([prefix, x[: N - SHIFT]]))[SHIFT:]
    follows = int(((moved - h[: N - SHIFT]).abs().amax(1) < 1e-9).sum())
    trial.not_meant(
        f"on a finite sequence {follows} of {N - SHIFT} rows follow the shift by {SHIFT}: each reads what "
        "was shifted in",
        follows == 0,
    )
    mask = Causal().on(N).dense()
    trial.step("a translation keeps the order: j <= i gives j + m <= i + m", _toeplitz(mask))
    trial.slip(
        f"that does not make f equivariant: it needs N_(i+m) = N_i + m, and {len(_core(mask, 1))} of {N - 1} "
        "rows have it for m = 1",
        not _core(mask, 1) and N > 1,
    )
    left = sorted(set((np.arange(N) + SHIFT).tolist()) - set(range(N)))
    trial.slip(
        f"i + {SHIFT} is no permutation of {N} positions: it goes to {left}, outside of them", bool(left)
    )


@statement(
    "Theorem 7",
    paper="strided attention is equivariant to translations",
    corrected="its finite group is trivial for p >= 1 (S_n for p = 0). Exactly the rows "
    "Core(m) = {p, ..., n-1-m} follow the shift by m; for masked attention Core(m) is empty. On the integers "
    "the group is Z. The proof's total order is kept by a translation, but the relation is not the order, "
    "and its "
    "first p rows do not follow",
    printed="fails",
    meant="with correction",
    proof="fails",
)
def theorem_7(trial: Trial) -> None:
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
        trial.exact("on the integers: Z", translations(relation, n).integers == "Z", n=n)
    trial.by_theorem(
        "trivial for every p from 1 to n - 1",
        "an automorphism keeps the one topological order",
        _rigid_windows,
    )
    trial.by_theorem(
        "Core(m) for every p and m",
        "N_i = {i-p, ..., i} iff i >= p",
        lambda n: all(
            _core(Window(lookback=q).on(n).dense(), m) == list(range(q, n - m))
            for q in range(n)
            for m in range(1, n)
        ),
    )
    shift = np.roll(np.arange(n), -1)
    gap = trial.apart("the cyclic shift", output(made, act(shift, x)), act(shift, h))
    trial.refuted(
        f"n = {n}, p = {p}: the shift by one is off by {gap:.2g}; rows 0 to {p - 1} do not follow it",
        gap > 1e-4,
    )
    mask = Window(lookback=p).on(n).dense()
    core = _core(mask, 1)
    trial.not_meant(
        f"on a finite sequence {n - 1 - len(core)} of {n - 1} rows do not follow the shift by 1: the first "
        f"{p}",
        core == list(range(p, n - 1)),
    )
    trial.step("not transitive", ((mask.astype(int) @ mask > 0) & ~mask).any())
    trial.step("a DAG with one topological order", mask.diagonal(-1).all() and not np.triu(mask, 1).any())
    trial.slip(
        f"a translation keeps that total order, but the relations are not the order: N_1 = {{0, 1}} moved "
        "by 1 is "
        f"{{1, 2}}, and N_2 = {{{', '.join(map(str, np.flatnonzero(mask[2])))}}}",
        1 not in core,
    )
    trial.slip(
        "for p = 0 there are no edges between positions, so every order is topological",
        not (Window(lookback=0).on(n).dense() & ~np.eye(n, dtype=bool)).any(),
    )


def _rigid_windows(n: int) -> bool:
    """Every W_p on n positions with p >= 1 has the identity alone as automorphism, by exhaustive search."""
    return all(count_automorphisms(Window(lookback=p).on(n).dense()) == 1 for p in range(1, n))


def _toeplitz(mask: np.ndarray) -> bool:
    """R[i + 1, j + 1] = R[i, j] wherever both are positions."""
    return np.array_equal(mask[1:, 1:], mask[:-1, :-1])


def _core(mask: np.ndarray, m: int) -> list[int]:
    """{i : N_{i+m} = N_i + m}, from the definition."""
    n = len(mask)
    sets = [set(np.flatnonzero(row).tolist()) for row in mask]
    return [i for i in range(n - m) if sets[i + m] == {j + m for j in sets[i]}]


@statement(
    "Corollary 1",
    paper="the biases of strided attention include those of masked attention",
    corrected="as families: W_p is the order <= on [n] iff p >= n - 1, so p follows the length; no one p "
    "does for every n. The proof's choice t = n leaves one row: meant is t = 0",
    printed="holds",
    meant="holds",
    proof="with correction",
)
def corollary_1(trial: Trial) -> None:
    trial.by_theorem(
        "equal iff p >= n - 1",
        "i - j <= p for all j <= i < n iff n - 1 <= p",
        lambda n: (
            [p for p in range(n + 2) if Window(lookback=p).on(n) == Causal().on(n)] == [n - 1, n, n + 1]
        ),
    )
    x = rows(N)
    trial.close("as layers", output(layer("StridedAttention", N), x), output(layer("MaskedAttention"), x))
    trial.apart(
        "one less is not masked",
        output(layer("StridedAttention", N - 1), x),
        output(layer("MaskedAttention"), x),
    )
    i, j = np.indices((N, N)) + 1  # the paper counts from 1
    left = ((j >= N) & (j <= i)).any(1)
    trial.step(
        "considering all previous elements is masked attention: j <= i and t = 0",
        np.array_equal((j >= 0) & (j <= i), Causal().on(N).dense()),
    )
    trial.slip(f"t = n = {N} leaves {int(left.sum())} of {N} rows with a key", int(left.sum()) == 1)


@statement(
    "Theorem 8",
    paper="encoder-decoder attention is equivariant to block permutations",
    corrected="to those that keep each block: S_m x S_n. Read as the permutations that keep the equivalence "
    "~, as the proof defines them, it fails for m = n: exchanging the blocks keeps ~, and is no symmetry",
    printed="with correction",
    meant="holds",
    proof="with correction",
)
def theorem_8(trial: Trial) -> None:
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
    block = np.array(swap) // 3
    keeps = all((block[a] == block[b]) == (a // 3 == b // 3) for a in range(6) for b in range(6))
    trial.refuted(
        "two readings of a block permutation: if it keeps each block, the layer is equivariant to it; if it "
        f"keeps the partition, exchanging X and Y at m = n = 3 is one, and is off by {gap:.2g}",
        gap > 1e-4 and keeps and not symmetry(Bipartite(3, 3)).contains(swap),
    )
    trial.by_theorem(
        "m! n! automorphisms for all m + n = N",
        "every decoder row reads X, so exactly S_m x S_n keeps Y x X",
        lambda size: all(
            count_automorphisms(Bipartite(m, size - m).on(size).dense()) == factorial(m) * factorial(size - m)
            for m in range(1, size)
        ),
        least=2,
    )
    inside = [1, 2, 0, 5, 3, 4]
    trial.step("X and Y stay disjoint", sorted(np.array(inside) // 3) == [0, 0, 0, 1, 1, 1])
    trial.step(
        "a permutation inside X and inside Y is an automorphism", symmetry(Bipartite(3, 3)).contains(inside)
    )
    trial.slip(
        "from x_i ~ x_j and sigma(x_i) ~ sigma(x_j) it does not follow that sigma(x_i) is in X: the exchange "
        "of X and Y sends both into Y",
        keeps and (block[:3] == 1).all(),
    )

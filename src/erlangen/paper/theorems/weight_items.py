"""Beyond the paper, weighted relations: the gauge of row scaling, ALiBi as a bias of keys, T5's buckets."""

from __future__ import annotations

from fractions import Fraction
from itertools import permutations
from typing import Any

import numpy as np
import torch

from erlangen import equivariance
from erlangen.paper.theorems.apparatus import layer, rows
from erlangen.paper.theorems.item import Trial, statement
from erlangen.relations import (
    ALiBi,
    Causal,
    Documents,
    FromMask,
    Full,
    Relation,
    RelativeBias,
    Weighted,
    WeightedRelation,
)
from erlangen.symmetry import symmetry

N = 6
SLOPES = (Fraction(1, 2), Fraction(1, 4))
_OPEN = "left open (section 4): relations that are not binary"


def _outputs(relation: Relation | WeightedRelation, x: Any) -> Any:
    """What one layer with two heads gives, over this relation; its parameters are always the same."""
    made = layer("Attention", 2, relation)
    with torch.no_grad():
        return made(x)


def _rational_log_weights(weighted: WeightedRelation, n: int) -> list[list[list[Fraction | None]]]:
    """b_ij as fractions by head, row and key (floats are fractions); None where nothing is read."""
    dense = weighted.on(n).dense()
    return [[[Fraction(b) if np.isfinite(b) else None for b in row] for row in head] for head in dense]


# ------------------------------------------------------------------------------ the gauge


@statement(
    "Row scaling is a gauge",
    paper=_OPEN,
    corrected="weights W and diag(c) W give the same layer, for every c > 0, so the symmetry of a weighted "
    "layer is the group of the row-normalised W, which may be larger than that of W. Scaling columns is none",
    printed="holds",
    meant="holds",
    beyond=True,
)
def row_scaling(trial: Trial) -> None:
    random = np.random.default_rng(0)
    for n in (3, 4, 5):
        mask = random.random((n, n)) < 0.8
        # Weights 2^b with b = a + c_i: constant on the blocks of a rotation, then scaled row by row.
        steps = random.integers(-2, 3, n)
        base = steps[(np.arange(n) - np.arange(n)[:, None]) % n]
        scaled = base + random.permutation(n)[:, None]
        circulant = np.ones((n, n), bool)
        for allowed in (mask, circulant):
            kept = symmetry(Weighted(FromMask(allowed), scaled))
            same = symmetry(Weighted(FromMask(allowed), base))
            share = _shares(scaled, allowed)
            expected = sum(
                all(share[i][j] == share[pi[i]][pi[j]] for i in range(n) for j in range(n))
                for pi in permutations(range(n))
            )
            trial.exact("the group is that of the row-normalised W", kept.order == expected, n=n)
            trial.exact("scaling rows keeps the group", kept.order == same.order, n=n)
        raw = sum(
            all(scaled[i, j] == scaled[pi[i], pi[j]] for i in range(n) for j in range(n))
            for pi in permutations(range(n))
        )
        trial.exact("it is larger than the group of W itself", raw < kept.order, n=n)
    weights = random.uniform(0.3, 3.0, (2, N, N))
    rotated = weights[:, (np.arange(N) - np.arange(N)[:, None]) % N, 0]  # two heads, each a circulant
    factor = random.uniform(0.2, 5.0, (2, N, 1))
    x = rows(N)
    for support in (Full(), Causal()):
        plain = _outputs(Weighted(support, np.log(weights)), x)
        trial.close("W and diag(c) W", _outputs(Weighted(support, np.log(factor * weights)), x), plain)
        columns = np.log(weights * factor.transpose(0, 2, 1))
        trial.apart("scaled columns are another layer", _outputs(Weighted(support, columns), x), plain)
        trial.apart("weights matter", _outputs(support, x), plain)
    gauged = Weighted(Full(), np.log(factor * rotated))
    group = symmetry(gauged)
    trial.measured("a circulant with scaled rows keeps the rotations", group.order == N)
    made = layer("Attention", 2, gauged)
    trial.measured("and so does the layer, and nothing else", equivariance.check(made, group, x).holds)


def _shares(log_weights: np.ndarray, mask: np.ndarray) -> list[list[Fraction]]:
    """W_ij / sum_l W_il for W = 2^b where read, exactly."""
    weights = [
        [Fraction(2) ** int(b) if read else Fraction(0) for b, read in zip(row, reads, strict=True)]
        for row, reads in zip(log_weights, mask, strict=True)
    ]
    return [[w / (sum(row) or 1) for w in row] for row in weights]


# ---------------------------------------------------------------------------------- ALiBi


class _Form:
    """a i + b j in the symbols i and j, of which is known that j <= i (`past`) or that j > i."""

    def __init__(self, i: int, j: int, past: bool) -> None:
        self.i, self.j, self.past = i, j, past

    def __sub__(self, other: _Form) -> _Form:
        return _Form(self.i - other.i, self.j - other.j, self.past)

    def __neg__(self) -> _Form:
        return _Form(-self.i, -self.j, self.past)

    def __rmul__(self, factor: int) -> _Form:
        return _Form(factor * self.i, factor * self.j, self.past)

    __mul__ = __rmul__

    def __abs__(self) -> _Form:
        if self.i != -self.j:
            raise ArithmeticError("only multiples of i - j have a known sign")
        positive = (self.i >= 0) == self.past
        return self if positive else -self


def _symbolic(weighted: WeightedRelation, *, past: bool) -> list[_Form]:
    """The log-weights that the relation itself computes for the pair of symbols (i, j), per unit of slope."""
    i, j = np.empty(1, object), np.empty(1, object)
    i[0], j[0] = _Form(1, 0, past), _Form(0, 1, past)
    return [head[0] for head in weighted._units(i, j)]


def _row_plus_key(log_weights: list[list[Fraction | None]]) -> bool:
    """Whether b_ij = r_i + k_j wherever something is read: all mixed differences vanish."""
    n = len(log_weights)
    for i in range(n):
        for k in range(i):
            both = [j for j in range(n) if log_weights[i][j] is not None and log_weights[k][j] is not None]
            differences = {log_weights[i][j] - log_weights[k][j] for j in both}  # type: ignore[operator]
            if len(differences) > 1:
                return False
    return True


@statement(
    "Causal ALiBi is a key-only bias",
    paper=_OPEN,
    corrected="on j <= i the bias -m|i - j| is m j - m i, and -m i is a gauge: it is the layer with weights "
    "e^{m j}, which the key alone decides. With |i - j| over all pairs it is not so: no bias of the key (and "
    "the row) gives that layer",
    printed="holds",
    meant="holds",
    beyond=True,
)
def causal_alibi(trial: Trial) -> None:
    causal, both_ways = ALiBi(SLOPES), ALiBi(SLOPES, relation=Full())
    past, future = _symbolic(causal, past=True), _symbolic(both_ways, past=False)
    trial.symbolic("where j <= i, b = m (j - i)", all((form.i, form.j) == (-1, 1) for form in past))
    trial.symbolic("where j > i, b = m (i - j)", all((form.i, form.j) == (1, -1) for form in future))
    for n in range(2, 9):
        for head, slope in zip(_rational_log_weights(causal, n), SLOPES, strict=True):
            constant = all(
                len({b - slope * j for j, b in enumerate(row) if b is not None}) == 1 for row in head
            )
            trial.exact("b_ij - m j is constant in each row", constant, n=n)
            trial.exact("causal: row plus key", _row_plus_key(head), n=n)
        for head in _rational_log_weights(both_ways, n):
            trial.exact("over all pairs: not row plus key", not _row_plus_key(head), n=n)
    x = rows(N)
    of_keys = np.array([[float(m) * j for j in range(N)] for m in SLOPES])[:, None].repeat(N, axis=1)
    alibi = _outputs(causal, x)
    trial.close("the layer of e^{m j}", _outputs(Weighted(Causal(), of_keys), x), alibi)
    trial.apart("not that without weights", _outputs(Causal(), x), alibi)
    trial.apart("nor that of other slopes", _outputs(Weighted(Causal(), 2 * of_keys), x), alibi)
    wide = _outputs(both_ways, x)
    for sign in (1, -1):
        trial.apart("over all pairs another layer", _outputs(Weighted(Full(), sign * of_keys), x), wide)
    trial.exact(
        "the groups agree too",
        symmetry(Weighted(Causal(), of_keys)).order == symmetry(causal, N).order == 1
        and symmetry(both_ways, N).order == 2,
        n=N,
    )


# -------------------------------------------------------------------------------- T5


@statement(
    "T5 buckets are Toeplitz",
    paper=_OPEN,
    corrected="the bias depends on j - i alone, so behind a disconnected prefix a sequence is represented as "
    "before, wherever it stands. The finite group is trivial all the same, unless the table is even",
    printed="holds",
    meant="holds",
    beyond=True,
)
def t5_buckets(trial: Trial) -> None:
    random = np.random.default_rng(0)
    for buckets, bidirectional, support in ((8, True, Full()), (32, True, Full()), (8, False, Causal())):
        table = random.permutation(2 * buckets).reshape(2, buckets)
        weighted = RelativeBias(table, relation=support, bidirectional=bidirectional, max_distance=20)
        for n in (2, 9, 40):
            dense = weighted.on(n).dense()
            trial.exact("b[i + 1, j + 1] = b[i, j]", (dense[:, 1:, 1:] == dense[:, :-1, :-1]).all(), n=n)
            last = weighted.on(1, n).dense()
            trial.exact("one query is the last row", (last == dense[:, -1:]).all(), n=n)
    table = random.permutation(16).reshape(2, 8)
    weighted, even = RelativeBias(table, max_distance=9), np.concatenate([table[:, :4], table[:, :4]], axis=1)
    trial.exact("no permutation keeps a generic table", symmetry(weighted, N).order == 1, n=N)
    mirrored = symmetry(RelativeBias(even, max_distance=9), N)
    trial.exact(
        "an even table keeps the reversal",
        mirrored.order == 2 and mirrored.contains(np.arange(N)[::-1]),
        n=N,
    )
    x, absolute = rows(N), random.uniform(-1, 1, (2, 20, 20))
    h, plain = _outputs(weighted, x), _outputs(Full(), x)
    trial.apart("the bias matters", h, plain)
    for shift in (1, 2, 9):
        longer = torch.cat([rows(shift, seed=5), x])
        behind = _outputs(weighted & Documents([shift, N]), longer)[shift:]
        trial.close("behind a disconnected prefix", behind, h)
        size = shift + N
        fixed = Weighted(Documents([shift, N]), absolute[:, :size, :size])
        trial.apart(
            "a bias of positions does change",
            _outputs(fixed, longer)[shift:],
            _outputs(Weighted(Full(), absolute[:, :N, :N]), x),
        )

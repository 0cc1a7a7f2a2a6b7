"""Beyond the paper: what relations of three positions can do that relations of two cannot."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import torch

from erlangen.attention import attend, attend_triples
from erlangen.paper.theorems.apparatus import WIDTH, every_mask, layer, rows
from erlangen.paper.theorems.item import APART, Trial, statement
from erlangen.relations import Fano, Full, Identity, Triples, Window, WindowSquared
from erlangen.symmetry import symmetry


@statement(
    "Fano plane",
    paper="beyond the paper, which leaves relations of more than two entities open: they assume more",
    corrected="true. Every two points lie on a line, so the pairwise shadow of the Fano plane is full "
    "without loops, with 5,040 symmetries; attention over its collinear triples keeps exactly the 168 that "
    "send lines to lines",
    printed="holds",
    meant="holds",
    beyond=True,
)
def fano_plane(trial: Trial) -> None:
    plane, n = Fano(), 7
    every = np.array(list(permutations(range(n))))
    lines = {frozenset(line) for line in plane.geometry.lines()}
    kept = np.array([{frozenset(pi[list(line)].tolist()) for line in lines} == lines for pi in every])
    shadow, group = symmetry(plane.shadow()), symmetry(plane)
    trial.exact("seven lines of three points", len(lines) == 7 and {len(line) for line in lines} == {3}, n=n)
    trial.exact("the shadow is full without loops", plane.shadow().on(n) == (Full() - Identity()).on(n), n=n)
    trial.exact("the shadow has 5,040 symmetries", shadow.order == len(every) == 5040 and shadow.exact, n=n)
    trial.exact("168 permutations send lines to lines", int(kept.sum()) == 168, n=n)
    trial.exact("they are the group of the triples", group.order == 168 and group.exact, n=n)
    trial.exact("its generators are among them", all(_sends(pi, lines) for pi in group.generators), n=n)
    before, after = _both_ways(layer("Attention", 1, plane.shadow()), every)
    trial.close("the pairwise layer keeps all 5,040", before, after)
    before, after = _both_ways(layer("TripleAttention", 1, plane), every)
    trial.close("the ternary layer keeps the 168", before[kept], after[kept])
    gaps = np.abs(before - after).max((1, 2))[~kept]
    trial.measured(f"and breaks each of the other {gaps.size:,}", gaps.size == 4872 and gaps.min() > APART)


@statement(
    "group A4",
    paper="beyond the paper: every group of permutations of positions is the symmetry of some relation",
    corrected="false for pairwise relations: of all 65,536 on 4 positions none has the group A4, for what A4 "
    "keeps S4 keeps too. A ternary relation has it: the 12 triples that A4 makes of (0, 1, 2)",
    printed="fails",
    meant="with correction",
    beyond=True,
)
def alternating_group(trial: Trial) -> None:
    n = 4
    every = np.array(list(permutations(range(n))))
    even = np.array([_sign(pi) == 1 for pi in every])
    masks = every_mask(n)
    kept = np.stack([(masks[:, pi][:, :, pi] == masks).all((1, 2)) for pi in every], axis=1)
    realised = int((kept == even).all(1).sum())
    trial.exact("12 permutations are even", int(even.sum()) == 12, n=n)
    trial.exact("what A4 keeps, S4 keeps", bool(kept[kept[:, even].all(1)].all()), n=n)
    ternary = Triples(n, [pi[[0, 1, 2]].tolist() for pi in every[even]])
    group = symmetry(ternary)
    same = np.array([ternary.permute(pi) == ternary for pi in every])
    trial.exact("12 triples", ternary.num_triples == 12, n=n)
    trial.exact("kept by the even permutations and no others", np.array_equal(same, even), n=n)
    trial.exact("the group of order 12", group.order == 12 and group.exact, n=n)
    before, after = _both_ways(layer("TripleAttention", 1, ternary), every)
    trial.close("the layer keeps A4", before[even], after[even])
    gaps = np.abs(before - after).max((1, 2))[~even]
    trial.measured("and breaks every odd permutation", gaps.size == 12 and gaps.min() > APART)
    trial.gap(
        f"A4 on 4 positions: {realised} of {len(masks):,} pairwise relations have exactly this group",
        realised == 0 and len(masks) == 65536,
    )


@statement(
    "additive logits on pairs",
    paper="beyond the paper: adding the logits of both keys, s_ij + s_il, gives a ternary layer",
    corrected="over N_i x N_i it collapses: the softmax of a sum is a product, so the layer is the "
    "elementwise product of two ordinary attentions. Trilinear logits do not collapse, and triples that are "
    "no product do not with any logits",
    printed="fails",
    meant="with correction",
    beyond=True,
)
def additive_logits(trial: Trial) -> None:
    n, window = 6, Window(lookback=2)
    generator = torch.Generator().manual_seed(3)
    shape = (1, 1, n, WIDTH)
    q, k1, k2, v1, v2 = (torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(5))
    pairs = WindowSquared(lookback=2).on(n)
    added = torch.zeros(shape, dtype=torch.float64)
    ranks = []
    for i in range(n):
        j, last = (torch.tensor(column) for column in zip(*pairs.row(i), strict=True))
        weights = (k1[0, 0, j] @ q[0, 0, i] + k2[0, 0, last] @ q[0, 0, i]).softmax(0)
        added[0, 0, i] = weights @ (v1[0, 0, j] * v2[0, 0, last])
        ranks.append(np.linalg.matrix_rank(_square(weights, j, last, n), tol=1e-9))
    first, second = (attend(q, k, v, window, scale=1.0, backend="reference") for k, v in ((k1, v1), (k2, v2)))
    trial.close("added logits are a product of two attentions", added, first * second)
    trial.measured("their weights have rank 1 in every row", ranks == [1] * n)
    trilinear = attend_triples(q, k1, k2, *_one_hot(n), pairs)[0, 0].view(n, n, n)
    second_value = torch.linalg.svdvals(trilinear[2:])[:, 1].min().item()
    trial.measured("trilinear weights have a larger rank", second_value > APART)
    zero = torch.zeros(1, 1, 7, 1, dtype=torch.float64)
    plane = attend_triples(zero, zero, zero, *_one_hot(7), Fano())
    trial.measured(
        "on the Fano plane even equal weights have rank 6",
        np.linalg.matrix_rank(plane[0, 0, 0].view(7, 7).numpy(), tol=1e-9) == 6,
    )
    gap = float((added - first * second).abs().max())
    trial.gap(
        f"n = {n}, pairs within a window: the layer differs from a product of two attentions by {gap:.0e}",
        gap < 1e-9,
    )


def _one_hot(n: int) -> tuple[Any, Any]:
    """Values that read the weights off: v1_j * v2_l is 1 at the place (j, l) alone."""
    place = torch.eye(n, dtype=torch.float64)
    return place.repeat_interleave(n, 1)[None, None], place.repeat(1, n)[None, None]


def _square(weights: Any, j: Any, last: Any, n: int) -> np.ndarray:
    """The weights of the pairs (j, l) as an n x n matrix."""
    matrix = np.zeros((n, n))
    matrix[j.numpy(), last.numpy()] = weights.numpy()
    return matrix


def _sends(pi: np.ndarray, lines: set[frozenset[int]]) -> bool:
    return {frozenset(pi[list(line)].tolist()) for line in lines} == lines


def _sign(permutation: np.ndarray) -> int:
    """1 for an even permutation, -1 for an odd one.

    >>> _sign(np.array([1, 0, 2])), _sign(np.array([1, 2, 0]))
    (-1, 1)
    """
    n = len(permutation)
    inversions = sum(permutation[a] > permutation[b] for a in range(n) for b in range(a + 1, n))
    return -1 if inversions % 2 else 1


def _both_ways(made: Any, every: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """f(pi X) and pi f(X) for every permutation, as arrays (permutations, n, d)."""
    x = rows(every.shape[1])
    inverse = torch.from_numpy(np.argsort(every, axis=1))
    with torch.no_grad():
        return made(x[inverse]).numpy(), made(x)[inverse].numpy()

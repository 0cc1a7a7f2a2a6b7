"""Beyond the paper, convolution: it is attention, which attention it is, and what it keeps."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import torch

from erlangen import equivariance
from erlangen.attention import attend
from erlangen.attention.binding import clear_cache
from erlangen.nn import ConvolutionAttention
from erlangen.paper.theorems.apparatus import WIDTH, act, every_mask, layer, output, probe, rows
from erlangen.paper.theorems.item import Trial, statement
from erlangen.relations import FromMask, Full, Offset, PerHead, Relation, Ring, Weighted, Window
from erlangen.symmetry import symmetry, translations

N = 6

# ------------------------------------------------------------------- a convolution is attention


def _integers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-3, 4, shape)


def _convolution(x: np.ndarray, kernel: np.ndarray, *, dilation: int, zeros: int, groups: int) -> np.ndarray:
    """A convolution by its defining sum: x (channels, *size), kernel (out, in / groups, *taps), integers."""
    axes, (outs, ins, *taps) = x.ndim - 1, kernel.shape
    size = [n + 2 * zeros - dilation * (k - 1) for n, k in zip(x.shape[1:], taps, strict=True)]
    h = np.zeros((outs, *size), np.int64)
    for o, at, c, tap in product(
        range(outs), np.ndindex(*size), range(ins), product(*(range(k) for k in taps))
    ):
        key = tuple(at[a] + dilation * tap[a] - zeros for a in range(axes))
        if all(0 <= key[a] < x.shape[1 + a] for a in range(axes)):
            h[(o, *at)] += kernel[(o, c, *tap)] * x[(o // (outs // groups) * ins + c, *key)]
    return h


@statement(
    "Convolution is attention",
    paper="convolutional layers can be seen as a subset of attention layers (section 4)",
    corrected="a convolution of stride 1 is the sum of one head for each offset d, over R_d = {(i, i + d)}: "
    "the softmax over one key is 1, the output map of the head is W_d, and zero padding is the rule that an "
    "empty row gives zero",
    printed="holds",
    meant="holds",
)
def convolution_is_attention(trial: Trial) -> None:
    clear_cache()
    kinds = {1: torch.nn.Conv1d, 2: torch.nn.Conv2d}
    cases = [
        (axes, taps, dilation, zeros, groups)
        for axes, taps in ((1, (3,)), (1, (4,)), (2, (3, 2)))
        for dilation, zeros, groups in ((1, 0, 1), (1, 2, 1), (2, 3, 1), (1, 1, 2))
    ]
    for axes, taps, dilation, zeros, groups in cases:
        size = (N,) if axes == 1 else (4, 5)
        conv = kinds[axes](4, 2, taps, dilation=dilation, padding=zeros, groups=groups, bias=False).double()
        kernel, x = _integers(*conv.weight.shape, seed=1), _integers(4, *size, seed=2)
        with torch.no_grad():
            conv.weight.copy_(torch.from_numpy(kernel))
            made = ConvolutionAttention(conv)
            h = made(torch.from_numpy(x).double()).numpy()
            # Sums of small integers are exact in float64, so equality is asked for, not closeness.
            expected = _convolution(x, kernel, dilation=dilation, zeros=zeros, groups=groups)
            same = h.shape == expected.shape and np.array_equal(h, expected)
            trial.exact(f"{taps} taps, dilation {dilation}, {zeros} zeros", same, n=int(np.prod(size)))
            conv.weight.copy_(torch.randn(conv.weight.shape, generator=torch.Generator().manual_seed(3)))
            real = torch.randn(4, *size, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
            trial.close("and in real numbers", ConvolutionAttention(conv)(real), conv(real))
        heads = made.relation(*size).members
        single = all((r.on(h[0].size, x[0].size).degrees <= 1).all() for r in heads)
        trial.exact("one key at most in every row", single and len(heads) == np.prod(taps), n=x[0].size)


# ------------------------------------------------------- which attention layers are convolutions


def _toeplitz(matrices: np.ndarray) -> np.ndarray:
    """Which matrices (..., n, n) have entries that depend on j - i alone."""
    return (matrices[..., 1:, 1:] == matrices[..., :-1, :-1]).all(axis=(-1, -2))


def _offset_sets(n: int) -> list[Relation]:
    """The relations that the converse allows: no offset, one, or two at least n apart."""
    offsets = range(1 - n, n)
    pairs = [Offset(a) | Offset(b) for a, b in product(offsets, repeat=2) if a - b >= n]
    return [Offset(n), *map(Offset, offsets), *pairs]


@statement(
    "Attention that is convolution",
    paper="not claimed; tempting: attention over a Toeplitz mask, such as a window, is a convolution",
    corrected="one head with scores (Q^T K != 0) and values (W_V != 0) is linear iff every row has at most "
    "one key, and a convolution iff it is also Toeplitz: no offset, one offset, or two that are n or more "
    "apart and so share no row. Without scores it is D^-1 A, a convolution iff that is Toeplitz. Sums of "
    "such heads are convolutions",
    printed="fails",
    meant="with correction",
    beyond=True,
)
def attention_that_is_convolution(trial: Trial) -> None:
    for n in (2, 3, 4):
        masks = every_mask(n)
        found = masks[_toeplitz(masks) & (masks.sum(axis=2) <= 1).all(axis=1)]
        listed = {relation.on(n) for relation in _offset_sets(n)}
        count = 1 + (2 * n - 1) + n * (n - 1) // 2
        trial.exact("Toeplitz with at most one key a row", {FromMask(m).on(n) for m in found} == listed, n=n)
        trial.exact("how many", len(found) == count, n=n)

    n = 3
    masks = every_mask(n)
    shares = masks / np.maximum(masks.sum(axis=2, keepdims=True), 1)
    exact = np.array([_is_toeplitz_exactly(mask) for mask in masks])
    adjacency, made = torch.from_numpy(masks), layer("GraphAttention")
    x = rows(n, seed=7).expand(len(masks), n, -1)
    mean = torch.from_numpy(shares) @ made.V(x).detach()
    gap = (output(made, x, adjacency) - mean).abs().amax(dim=(1, 2)).numpy()
    single = (masks.sum(axis=2) <= 1).all(axis=1)
    trial.measured("with at most one key a row the layer is linear", (gap[single] < 1e-9).all())
    trial.measured("with two keys in some row it is not", (gap[~single] > 1e-4).all())
    trial.exact("9 of the 512 layers are convolutions", int((single & exact).sum()) == 9, n=n)
    with torch.no_grad():
        made.Q.weight.zero_()
    flat = (output(made, x, adjacency) - mean).abs().amax().item()
    trial.measured("without scores every layer is linear, D^-1 A", flat < 1e-9)
    trial.exact("among them the mean of everything", exact[masks.all(axis=(1, 2)).argmax()], n=n)

    window = Window(lookback=1).on(N)
    first, later = Fraction(1, int(window.degrees[0])), Fraction(1, int(window.degrees[1]))
    trial.exact("the window is Toeplitz", translations(Window(lookback=1), N).toeplitz, n=N)
    trial.gap(
        f"Window(lookback=1) is Toeplitz, yet without scores position 0 reads itself with weight {first} and "
        f"position 1 with {later}; with scores the layer is not even linear",
        first != later and gap[_index(masks, Window(lookback=1), n)] > 1e-4,
    )


def _is_toeplitz_exactly(mask: np.ndarray) -> bool:
    """Whether D^-1 A is Toeplitz, in fractions."""
    share = [[Fraction(int(a), max(int(row.sum()), 1)) for a in row] for row in mask]
    n = len(share)
    return all(share[i + 1][j + 1] == share[i][j] for i in range(n - 1) for j in range(n - 1))


def _index(masks: np.ndarray, relation: Relation, n: int) -> int:
    return int((masks == relation.on(n).dense()).all(axis=(1, 2)).argmax())


# ----------------------------------------------------------- one head is no general convolution


def _one_head(kernel: list[list[int]]) -> tuple[list[Fraction], list[Fraction]] | None:
    """Weights a > 0 of sum 1 and a matrix M (flat) with W_d = a_d M for all taps, or None."""
    taps = [[Fraction(entry) for entry in tap] for tap in kernel]
    total = [sum(entries, Fraction(0)) for entries in zip(*taps, strict=True)]
    pivot = next((e for e, entry in enumerate(total) if entry != 0), None)
    if pivot is None:  # sum of a_d M is M, so M = 0
        return None
    shares = [tap[pivot] / total[pivot] for tap in taps]
    fits = all(tap[e] == a * total[e] for tap, a in zip(taps, shares, strict=True) for e in range(len(total)))
    return (shares, total) if fits and min(shares) > 0 else None


@statement(
    "One softmax head is no convolution",
    paper="not claimed; tempting: one softmax head can learn any convolution",
    corrected="weights are positive and sum to 1, so one head gives a convolution only if W_d = a_d M for "
    "all its offsets, with a_d > 0 of sum 1: positive multiples of one matrix, whose sum is W_V. A filter "
    "that takes constants to 0, such as a difference, needs W_V = 0. Two heads are enough for it",
    printed="fails",
    meant="with correction",
    beyond=True,
)
def one_head_is_no_convolution(trial: Trial) -> None:
    clear_cache()
    difference, smooth, mixed = [[1], [-1]], [[2], [4], [2]], [[1, 0], [0, 1]]
    trial.exact("a difference is none", _one_head(difference) is None)
    trial.exact("nor are two matrices that are no multiples", _one_head(mixed) is None)
    found = _one_head(smooth)
    trial.exact("2, 4, 2 is: 1/4, 1/2, 1/4 of M = 8", found is not None and found[1] == [8])
    shares = [float(a) for a in found[0]] if found else [1.0]
    trial.exact("a positive filter is one, up to W_V", shares == [0.25, 0.5, 0.25])

    # The head itself: log-weights on a circle, where no row is cut off, and no scores.
    i = np.arange(N)
    log_weights = np.full((N, N), -np.inf)
    for offset, share in zip((-1, 0, 1), shares, strict=False):
        log_weights[i, (i + offset) % N] = np.log(share)
    signal = rows(N)[:, :1]
    with torch.no_grad():
        bias = np.where(np.isinf(log_weights), 0.0, log_weights)
        head: Any = Weighted(FromMask(np.isfinite(log_weights)), bias)
        zero = torch.zeros(1, N, 1, dtype=torch.float64)
        h = attend(zero, zero, 8 * signal[None], head)[0]
        expected = 2 * signal.roll(1, 0) + 4 * signal + 2 * signal.roll(-1, 0)
    trial.close("one head is the filter 2, 4, 2 on a circle", h, expected)

    for relation in (Ring(lookback=1, lookahead=0), Ring(1, 1), Full()):
        made = layer("SparseAttention", relation)
        constant = rows(1).expand(N, -1)
        trial.close("constants go to W_V c, whatever the scores", output(made, constant), made.V(constant))
        reads = probe(made, N)
        jacobian = _jacobian(made)
        equal = all(
            torch.allclose(jacobian[a, :, b], made.V.weight / reads[a].sum(), atol=1e-9)
            for a, b in zip(*np.nonzero(reads), strict=True)
        )
        trial.measured("near zero all its taps are the same matrix", equal)

    conv = torch.nn.Conv1d(1, 1, 2, bias=False).double()
    with torch.no_grad():
        conv.weight.copy_(torch.tensor([[[1.0, -1.0]]]))
        ones = torch.ones(1, N, dtype=torch.float64)
        x = torch.from_numpy(_integers(1, N, seed=5)).double()
        two = ConvolutionAttention(conv)
        trial.exact("two heads take differences", torch.equal(two(x), x[:, :-1] - x[:, 1:]), n=N)
        killed = float(two(ones).abs().max())
    kept = layer("SparseAttention", Ring(1, 0)).V.weight.abs().max().item()
    trial.gap(
        f"the filter 1, -1 takes constants to {killed:g}; one head takes them to W_V c, so W_V = 0 and the "
        "head is zero",
        killed == 0.0 and kept > 1e-4,
    )


def _jacobian(made: Any) -> Any:
    """d h_i / d x_j at X = 0, of shape (n, d, n, d)."""
    zero = torch.zeros(N, made.d_model, dtype=torch.float64)
    return torch.autograd.functional.jacobian(lambda x: made(x)[0], zero)


# ------------------------------------------------------------------------------- its symmetry


def _ring_offset(d: int, n: int) -> Relation:
    """{(i, (i + d) mod n)} as an expression: the window of a ring without the shorter one."""
    back = -d % n
    return Ring(back, 0) - Ring(back - 1, 0) if back else Ring(0, 0)


@statement(
    "Convolution and translations",
    paper="a convolution is equivariant to translations: f(Tx) = T f(x) (footnote 2)",
    corrected="on a circle: the group of circular convolution contains C_n, and with three generic taps it "
    "is C_n (D_n for even ones). With zero padding the finite group is trivial, and only rows away from the "
    "ends follow a shift",
    printed="with correction",
    meant="with correction",
)
def convolution_and_translations(trial: Trial) -> None:
    clear_cache()
    for n in range(4, 9):
        heads = PerHead([_ring_offset(d, n) for d in (-1, 0, 1)])
        rotation, exactly = np.roll(np.arange(n), -1), np.eye(n, dtype=bool)
        trial.exact(
            "the heads are the circular shifts",
            all(
                np.array_equal(bound.dense(), np.roll(exactly, d, axis=1))
                for bound, d in zip(heads.on(n), (-1, 0, 1), strict=True)
            ),
            n=n,
        )
        group = symmetry(heads, n)
        trial.exact("their group is C_n", (group.order, group.contains(rotation)) == (n, True), n=n)
        wide = symmetry(PerHead([_ring_offset(d, n) for d in (0, 2)]), n)
        more = n if n % 2 else (n // 2) ** 2 * 2  # an even circle falls into two that may turn apart
        trial.exact("offsets 0 and 2 keep C_n", (wide.contains(rotation), wide.order) == (True, more), n=n)
        cut = PerHead([Offset(d) for d in (-1, 0, 1)])
        trial.exact("with zero padding nothing remains", symmetry(cut, n).order == 1, n=n)
        core = [translations(Offset(d), n).core(1) for d in (-1, 0, 1)]
        inner = set(core[0]) & set(core[1]) & set(core[2])
        trial.exact("rows away from the ends follow the shift by 1", inner == set(range(1, n - 2)), n=n)

    generator = torch.Generator().manual_seed(0)
    circular = torch.nn.Conv1d(WIDTH, WIDTH, 3, padding=1, padding_mode="circular", bias=False).double()
    padded = torch.nn.Conv1d(WIDTH, WIDTH, 3, padding=1, bias=False).double()
    taps = torch.randn(3, WIDTH, WIDTH, generator=generator, dtype=torch.float64)
    x, zero = rows(N), torch.zeros(1, 3, N, 1, dtype=torch.float64)
    heads = PerHead([_ring_offset(d, N) for d in (-1, 0, 1)])

    def attention(x: Any) -> Any:
        read = attend(zero, zero, x.expand(1, 3, N, WIDTH), heads)[0]
        return torch.einsum("hnc,hoc->no", read, taps)

    with torch.no_grad():
        for conv in (circular, padded):
            conv.weight.copy_(taps.permute(1, 2, 0))
        trial.close("three heads are torch's circular convolution", attention(x), circular(x.T[None])[0].T)
        kept = equivariance.check(attention, symmetry(heads, N), x)
        trial.measured("the layer keeps C_n and nothing else that was tried", kept.holds)
        circular.weight.copy_(torch.stack([taps[0], taps[1], taps[0]], dim=-1))
        even = equivariance.check(lambda y: circular(y.T[None])[0].T, symmetry(Ring(1, 1), N), x)
        trial.measured("even taps keep D_n", even.holds and even.group.order == 2 * N)
        made = ConvolutionAttention(padded)
        f = lambda y: made(y.T).T  # noqa: E731
        rotation = np.roll(np.arange(N), -1)
        h, turned = f(x), f(act(rotation, x))
        gap = trial.apart("zero padding: the rotation is no symmetry", turned, act(rotation, h))
        trial.close("its inner rows follow the shift", turned[2 : N - 1], h[1 : N - 2])
    trial.gap(f"zero padding at n = {N}: moving by one place around is off by {gap:.2g}", gap > 1e-4)

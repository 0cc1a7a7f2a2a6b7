"""The native kernels against attention written from its definition, in float64."""

from __future__ import annotations

import itertools
from types import ModuleType

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from erlangen.attention import packing
from erlangen.attention.backends import edges, tiles
from erlangen.attention.binding import Bound
from erlangen.relations import Neighborhoods

BACKENDS = [pytest.param(tiles, id="tiles"), pytest.param(edges, id="edges")]
SCALE = 0.3


def attend(backend: ModuleType, q, k, v, bound: Bound, **options):
    return backend.attend(q, k, v, bound.packed, **options)


def bind(masks: np.ndarray, index: np.ndarray | None = None) -> Bound:
    """masks (distinct, queries, keys); index (batch or 1, heads or 1) into them."""
    distinct = tuple(Neighborhoods.from_dense(mask) for mask in masks)
    index = np.zeros((1, 1), np.int64) if index is None else index
    return Bound(distinct, index, masks.shape[1], masks.shape[2])


def reference(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor, bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """From the definition; a row that reads nothing gives zero and -inf."""
    group = q.size(1) // k.size(1)
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = q @ k.mT * SCALE
    queries, keys = q.size(2), k.size(2)
    if bias is not None:
        scores = scores + bias[:, torch.arange(keys) - torch.arange(queries)[:, None] + queries - 1]
    scores = scores.masked_fill(~mask, -torch.inf)
    empty = ~mask.any(-1, keepdim=True).expand(*scores.shape[:3], 1)
    lse = scores.masked_fill(empty, 0).logsumexp(-1, keepdim=True)
    weights = torch.exp(scores - lse)
    return weights @ v, lse.masked_fill(empty, -torch.inf)[..., 0]


def compare(
    backend: ModuleType,
    shape: tuple[int, ...],
    masks: np.ndarray,
    index: np.ndarray,
    dtype: torch.dtype,
    tol: float,
    bias_heads: int = 0,
) -> None:
    """Outputs, log-sum-exp and all gradients, the log-sum-exp's own included."""
    batch, heads, kv_heads, queries, keys, dim, dim_v = shape
    generator = torch.Generator().manual_seed(0)

    def draw(*size: int, dtype: torch.dtype = dtype) -> Tensor:
        return torch.randn(size, generator=generator, dtype=torch.float64).to(dtype)

    wide = torch.float64 if dtype == torch.float64 else torch.float32
    inputs = [
        draw(batch, heads, queries, dim),
        draw(batch, kv_heads, keys, dim),
        draw(batch, kv_heads, keys, dim_v),
    ]
    if bias_heads:
        inputs.append(draw(bias_heads, max(0, queries + keys - 1), dtype=wide))
    inputs = [x.requires_grad_() for x in inputs]
    exact = [x.detach().double().requires_grad_() for x in inputs]
    mask = torch.from_numpy(masks)[torch.from_numpy(np.broadcast_to(index, (batch, heads)).copy())]

    out, lse = attend(
        backend, *inputs[:3], bind(masks, index), scale=SCALE, bias=inputs[3] if bias_heads else None
    )
    wanted, wanted_lse = reference(*exact[:3], mask, exact[3] if bias_heads else None)
    assert out.dtype == dtype
    assert lse.dtype == wide
    assert torch.equal(lse == -torch.inf, wanted_lse == -torch.inf)
    assert torch.equal(out[lse == -torch.inf], torch.zeros_like(out[lse == -torch.inf]))
    torch.testing.assert_close(out.double(), wanted, rtol=tol, atol=tol)
    torch.testing.assert_close(lse.double(), wanted_lse, rtol=tol, atol=tol)

    grad, grad_lse = draw(*out.shape), draw(*lse.shape, dtype=wide)
    grad_lse = grad_lse.masked_fill(lse == -torch.inf, 0)
    found = torch.autograd.grad((out, lse), inputs, (grad, grad_lse))
    expected = torch.autograd.grad((wanted, wanted_lse), exact, (grad.double(), grad_lse.double()))
    for a, b in zip(found, expected, strict=True):
        size = b.abs().max().item() if b.numel() else 0.0
        torch.testing.assert_close(a.double(), b, rtol=0, atol=tol * max(1.0, size))


@st.composite
def problems(draw: st.DrawFn) -> tuple[tuple[int, ...], np.ndarray, np.ndarray, int]:
    kv_heads, group = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    batch, heads = draw(st.integers(0, 2)), kv_heads * group
    queries, keys = draw(st.integers(0, 150)), draw(st.integers(0, 150))
    dim, dim_v = draw(st.integers(1, 40)), draw(st.integers(1, 40))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    count = draw(st.integers(1, 3))
    masks = rng.random((count, queries, keys)) < draw(st.sampled_from([0.0, 0.02, 0.3, 0.97, 1.0]))
    if draw(st.booleans()):  # a band, so that there are long runs, full tiles and empty ones
        i, j = np.arange(queries)[:, None], np.arange(keys)
        masks[0] = abs(i - j) <= draw(st.integers(0, 100))
    shape = (draw(st.sampled_from([1, max(batch, 1)])), draw(st.sampled_from([1, heads])))
    index = rng.integers(0, count, shape)
    bias_heads = draw(st.sampled_from([0, 0, 1, heads]))
    return (batch, heads, kv_heads, queries, keys, dim, dim_v), masks, index, bias_heads


@pytest.mark.parametrize("backend", BACKENDS)
@given(problem=problems())
@settings(max_examples=60, deadline=None)
def test_random_relations_and_shapes(backend: ModuleType, problem) -> None:
    shape, masks, index, bias_heads = problem
    compare(backend, shape, masks, index, torch.float64, 1e-9, bias_heads)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("dtype", "tol"),
    [(torch.float32, 1e-5), (torch.bfloat16, 3e-2), (torch.float16, 4e-3), (torch.float64, 1e-12)],
)
def test_dtypes_on_every_instruction_set(backend: ModuleType, dtype: torch.dtype, tol: float) -> None:
    best = packing.native.instruction_set()
    rng = np.random.default_rng(1)
    masks = rng.random((3, 130, 201)) < np.array([0.4, 0.02, 1.0])[:, None, None]
    try:
        for name in packing.native.instruction_sets():
            packing.native.choose_instruction_set(name)
            compare(backend, (2, 4, 2, 130, 201, 20, 33), masks, rng.integers(0, 3, (2, 4)), dtype, tol, 4)
    finally:
        packing.native.choose_instruction_set(best)


BANDS = [(0, 0), (5, 0), (8, 8), (15, 16), (64, 0), (70, 3), (-9, 40)]


@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize(("lookback", "lookahead"), BANDS)
def test_diagonals_pass_through_tiles_at_any_place(lookback: int, lookahead: int, mirrored: bool) -> None:
    """Beside a diagonal, tiles leave out keys and columns of queries; mirrored, it runs the other way."""
    place = np.arange(150)
    offset = place[None, :] - place[:, None]
    mask = (offset >= -lookback) & (offset <= lookahead)
    masks = (mask[:, ::-1] if mirrored else mask)[None].copy()
    best = packing.native.instruction_set()
    try:
        for name in packing.native.instruction_sets():
            packing.native.choose_instruction_set(name)
            compare(
                tiles, (1, 2, 1, 150, 150, 20, 16), masks, np.zeros((1, 1), np.int64), torch.float32, 1e-5, 1
            )
    finally:
        packing.native.choose_instruction_set(best)


@pytest.mark.parametrize("backend", BACKENDS)
def test_pieces_of_work_without_any_queries_leave_nothing_behind(backend: ModuleType) -> None:
    """Where the first block of queries reads nearly all, equal pieces of work are pieces without queries."""
    first_reads_all = np.zeros((1, 640, 700), bool)
    first_reads_all[:, :64] = True
    first_reads_all[:, 600] = True
    shape, index = (1, 1, 1, 640, 700, 16, 16), np.zeros((1, 1), np.int64)
    leaves_numbers_in_kept_memory = np.ones_like(first_reads_all)
    for masks in (leaves_numbers_in_kept_memory, first_reads_all):
        compare(backend, shape, masks, index, torch.float32, 1e-4, bias_heads=1)


@pytest.mark.parametrize("backend", BACKENDS)
def test_strided_inputs_give_the_same_numbers(backend: ModuleType) -> None:
    mask = np.random.default_rng(0).random((1, 100, 100)) < 0.3
    inside = torch.randn(2, 100, 3, 3, 16)  # (batch, length, which, heads, dim), as one projection gives them
    strided = [inside[:, :, n].transpose(1, 2) for n in range(3)]
    reversed_dims = [x.mT.contiguous().mT for x in strided]
    dense = [x.contiguous() for x in strided]
    grad = torch.randn(2, 3, 100, 16)
    results = []
    for inputs in (strided, reversed_dims, dense):
        leaves = [x.detach().requires_grad_() for x in inputs]
        out, lse = attend(backend, *leaves, bind(mask), scale=SCALE)
        results.append((out, lse, *torch.autograd.grad(out, leaves, grad)))
    for other in results[:2]:
        for a, b in zip(other, results[2], strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-6)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    ("kv_heads", "dims", "dtype"),
    [(4, (64, 32), torch.float32), (2, (63, 35), torch.float32), (4, (128, 72), torch.bfloat16)],
)
def test_rows_gathered_from_copies_give_the_same_numbers(
    kv_heads: int, dims: tuple[int, int], dtype: torch.dtype, bias: bool
) -> None:
    n, heads, native = 3000, 4, packing.native
    mask = np.random.default_rng(0).random((n, n)) < 0.02
    mask[0] = mask[:, 5] = False
    bound = bind(mask[None])
    assert mask.sum() * heads * sum(dims) * dtype.itemsize >= native.MUCH_GATHERED
    assert mask.sum() >= native.OFTEN_GATHERED * n
    generator = torch.Generator().manual_seed(0)
    shapes = [(heads, dims[0]), (kv_heads, dims[0]), (kv_heads, dims[1]), (heads, dims[1])]
    together = [torch.randn(2, n, *shape, generator=generator).to(dtype).transpose(1, 2) for shape in shapes]
    places = torch.randn(heads, 2 * n - 1, generator=generator, requires_grad=True) if bias else None
    results = []
    for tensors in (together, [x.contiguous() for x in together]):
        q, k, v = (x.detach().requires_grad_() for x in tensors[:3])
        out, lse = attend(edges, q, k, v, bound, scale=SCALE, bias=places)
        leaves = (q, k, v) if places is None else (q, k, v, places)
        results.append((out, lse, *torch.autograd.grad(out, leaves, tensors[3])))
    for copied, direct in zip(*results, strict=True):
        assert torch.equal(copied, direct)
    assert results[0][0].isfinite().all()


# Eight heads of whole vectors have their sums of dk and dv in the results themselves, others in shares.
@pytest.mark.parametrize(("heads", "kv_heads", "dim"), [(4, 2, 24), (8, 8, 32)])
@pytest.mark.parametrize("backend", BACKENDS)
def test_results_do_not_depend_on_the_number_of_threads(
    backend: ModuleType, heads: int, kv_heads: int, dim: int
) -> None:
    masks = np.random.default_rng(0).random((2, 300, 300)) < 0.5
    bound = bind(masks, np.resize([0, 1], (1, heads)))
    torch.manual_seed(0)
    inputs = [torch.randn(1, h, 300, dim, requires_grad=True) for h in (heads, kv_heads, kv_heads)]
    bias = torch.randn(heads, 599, requires_grad=True)
    grad = torch.randn(1, heads, 300, dim)
    threads = torch.get_num_threads()
    results = []
    try:
        for count in (1, 2, 3, 7):
            torch.set_num_threads(count)
            out, lse = attend(
                backend,
                *inputs,
                bound,
                scale=SCALE,
                dropout=0.2,
                seed=torch.tensor(5),
                bias=bias,
            )
            results.append((out, lse, *torch.autograd.grad(out, (*inputs, bias), grad)))
    finally:
        torch.set_num_threads(threads)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("poison", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("which", [0, 1, 2, 3])
def test_bad_numbers_stay_in_the_rows_that_read_them(backend: ModuleType, poison: float, which: int) -> None:
    """which: q, k, v or the upstream gradient is spoilt at one position; all unrelated is untouched."""
    queries, keys, spoilt = 100, 90, 70
    mask = np.random.default_rng(0).random((queries, keys)) < 0.4
    bound, read = bind(mask[None]), torch.from_numpy(mask)
    torch.manual_seed(0)
    clean = [torch.randn(1, 1, n, 12) for n in (queries, keys, keys, queries)]
    dirty = [x.clone() for x in clean]
    dirty[which][0, 0, spoilt, 3] = poison

    def run(tensors: list[Tensor]) -> list[Tensor]:
        leaves = [x.clone().requires_grad_() for x in tensors[:3]]
        out, _ = attend(backend, *leaves, bound, scale=SCALE)
        return [out, *torch.autograd.grad(out, leaves, tensors[3])]

    by_query = which in (0, 3)
    rows = torch.zeros(queries, dtype=torch.bool)  # queries that may change
    if by_query:
        rows[spoilt] = True
    else:
        rows |= read[:, spoilt]
    columns = read[rows].any(0)  # keys whose gradient may change
    for n, (a, b) in enumerate(zip(run(dirty), run(clean), strict=True)):
        untouched = ~rows if n < 2 else ~columns
        torch.testing.assert_close(a[0, 0, untouched], b[0, 0, untouched], rtol=0, atol=1e-6)
        if n == 0 and which != 3:
            assert not torch.equal(a[0, 0, rows], b[0, 0, rows])


def test_dropout_is_reproducible_unbiased_and_the_same_in_both_backends() -> None:
    n, probability = 200, 0.3
    bound = bind(np.ones((1, n, n), bool))
    q = torch.zeros(2, 3, n, 4, dtype=torch.float64)
    v = torch.eye(n, dtype=torch.float64).expand(2, 3, n, n)
    one, two, again = (
        attend(backend, q, q, v, bound, scale=1.0, dropout=probability, seed=torch.tensor(seed))[0] * n
        for backend, seed in ((tiles, 1), (tiles, 2), (edges, 1))
    )
    torch.testing.assert_close(one, again)
    kept = one != 0
    torch.testing.assert_close(one[kept], torch.full_like(one[kept], 1 / (1 - probability)))
    for mask in (kept, two != 0):
        assert abs(mask.double().mean().item() - (1 - probability)) < 0.005
        assert (mask.double().mean((0, 1, 2)) - (1 - probability)).abs().max() < 0.08
        assert (mask.double().mean((0, 1, 3)) - (1 - probability)).abs().max() < 0.08
    both = (kept & (two != 0)).double().mean().item()
    assert abs(both - (1 - probability) ** 2) < 0.01, "different seeds must be independent"
    for a, b in itertools.combinations(kept.flatten(0, 1), 2):
        assert abs((a & b).double().mean().item() - (1 - probability) ** 2) < 0.02, "and different heads"


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients_with_dropout_are_those_of_the_dropped_weights(backend: ModuleType) -> None:
    torch.manual_seed(0)
    n, dim = 70, 5
    mask = np.random.default_rng(0).random((1, n, n)) < 0.5
    bound = bind(mask)
    inputs = [torch.randn(1, 1, n, dim, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    eye = torch.eye(n, dtype=torch.float64)[None, None]
    dropped, _ = attend(
        backend,
        inputs[0],
        inputs[1],
        eye,
        bound,
        scale=SCALE,
        dropout=0.4,
        seed=torch.tensor(9),
    )
    plain, _ = reference(inputs[0], inputs[1], eye, torch.from_numpy(mask)[None])
    factor = torch.where(dropped == 0, 0, 1 / 0.6).detach()
    grad = torch.randn(1, 1, n, dim, dtype=torch.float64)
    out, _ = attend(backend, *inputs, bound, scale=SCALE, dropout=0.4, seed=torch.tensor(9))
    wanted = (plain * factor) @ inputs[2]
    torch.testing.assert_close(out, wanted)
    for a, b in zip(
        torch.autograd.grad(out, inputs, grad), torch.autograd.grad(wanted, inputs, grad), strict=True
    ):
        torch.testing.assert_close(a, b)


def test_both_backends_agree_on_everything_dropped() -> None:
    x = torch.randn(1, 1, 5, 4)
    for backend in (tiles, edges):
        out, _ = attend(backend, x, x, x, bind(np.ones((1, 5, 5), bool)), scale=1.0, dropout=1.0)
        assert torch.equal(out, torch.zeros_like(out))

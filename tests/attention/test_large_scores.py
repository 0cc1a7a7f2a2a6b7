"""Gradients where scores are tiny or huge: no backend is worse than SDPA against the truth in float64."""

from __future__ import annotations

from functools import partial
from itertools import product

import pytest
import torch
import torch.nn.functional as F

from erlangen.attention import attend, attend_triples, packing
from erlangen.attention.kernels import SoftmaxDot
from erlangen.relations import ALiBi, Causal, FromMask, Full, Weighted, WindowSquared

SIZES = [10.0**p for p in range(-8, 13, 2)]
N, DIM = 80, 16


def inputs(size: float, dtype: torch.dtype = torch.float32, seed: int = 0) -> list[torch.Tensor]:
    """q, k, v and a gradient, with scores of about `size`."""
    generator = torch.Generator().manual_seed(seed)
    q, k, v, grad = (torch.randn(1, 2, N, DIM, generator=generator, dtype=torch.float64) for _ in range(4))
    return [x.to(dtype) for x in (q * size**0.5, k * size**0.5, v, grad)]


def gradients(run, q, k, v, grad, dtype: torch.dtype) -> list[torch.Tensor]:
    leaves = [x.detach().to(dtype).clone().requires_grad_() for x in (q, k, v)]
    out = run(*leaves)
    return [x.double() for x in (out, *torch.autograd.grad(out, leaves, grad.to(dtype)))]


def errors(found: list[torch.Tensor], truth: list[torch.Tensor], sizes: list[float]) -> list[float]:
    """Errors relative to what the terms of each sum measure: a saturated softmax has gradients near zero."""
    return [
        float((a - b).detach().abs().max()) / size for a, b, size in zip(found, truth, sizes, strict=True)
    ]


def natural(q, k, v, grad) -> list[float]:
    """The size of the terms of the output and of the gradients of q, k and v."""
    q, k, v, grad = (float(x.double().abs().max()) for x in (q, k, v, grad))
    return [v, k * v * grad / DIM**0.5, q * v * grad / DIM**0.5, grad]


@pytest.mark.parametrize("backend", ["tiles", "edges", "gather", "reference", "sdpa", None])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("size", SIZES, ids="{:.0e}".format)
def test_no_worse_than_sdpa(backend: str | None, dtype: torch.dtype, size: float) -> None:
    given = inputs(size, dtype)
    truth = gradients(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), *given, torch.float64
    )
    theirs = gradients(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), *given, dtype)
    ours = gradients(lambda q, k, v: attend(q, k, v, Causal(), backend=backend), *given, dtype)
    assert all(bool(x.isfinite().all()) for x in ours)
    rounding = 8 * torch.finfo(dtype).eps
    for mine, peer in zip(
        errors(ours, truth, natural(*given)), errors(theirs, truth, natural(*given)), strict=True
    ):
        assert mine <= 2 * peer + rounding


@pytest.mark.parametrize("backend", ["tiles", "edges"])
@pytest.mark.parametrize("kind", ["plain", "cap", "alibi", "dropout", "irregular"])
@pytest.mark.parametrize("size", SIZES[4:], ids="{:.0e}".format)
def test_both_passes_see_the_same_scores(backend: str, kind: str, size: float) -> None:
    """Where one key takes all the weight of a row, its gradient is that of a copy, whatever the score is."""
    q, k, v, grad = inputs(size)
    relation = (
        FromMask(torch.rand(N, N, generator=torch.Generator().manual_seed(1)) < 0.5)
        if kind == "irregular"
        else Causal()
    )
    relation = ALiBi([0.5, 0.25]) if kind == "alibi" else relation
    options = {"kernel": SoftmaxDot(softcap=size)} if kind == "cap" else {}

    def run(q, k, v, backend=backend):
        torch.manual_seed(3)
        return attend(
            q, k, v, relation, backend=backend, dropout=0.3 if kind == "dropout" else 0.0, **options
        )

    found, truth = (gradients(run, q, k, v, grad, dtype) for dtype in (torch.float32, torch.float64))
    sizes, eps = natural(q, k, v, grad), torch.finfo(torch.float32).eps
    peer = [min(1e-2, eps * size)] * 4  # as exact as scores are
    if kind != "dropout":  # whose pairs only the kernels know
        dense = gradients(lambda *x: run(*x, backend="reference"), q, k, v, grad, torch.float32)
        peer = errors(dense, truth, sizes)
    for mine, other in zip(errors(found, truth, sizes), peer, strict=True):
        assert mine <= 3 * other + 8 * eps
    weights_sum = found[3].sum() if kind in ("plain", "alibi", "cap") else None
    if weights_sum is not None:  # rows of weights sum to 1, so that dv sums to what the gradient does
        torch.testing.assert_close(weights_sum, grad.double().sum(), atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize("size", SIZES[4:], ids="{:.0e}".format)
def test_triples_see_the_same_scores_from_each_place(size: float) -> None:
    generator = torch.Generator().manual_seed(0)
    tensors = [torch.randn(1, 2, 20, 8, generator=generator) for _ in range(5)]
    tensors[:3] = [x * size ** (1 / 3) for x in tensors[:3]]
    grad = torch.randn(1, 2, 20, 8, generator=generator)

    def gradients_of(dtype, backend):
        leaves = [x.to(dtype).clone().requires_grad_() for x in tensors]
        out = attend_triples(*leaves, WindowSquared(3), backend=backend)
        return [x.double() for x in (out, *torch.autograd.grad(out, leaves, grad.to(dtype)))]

    truth = gradients_of(torch.float64, "reference")
    x, y, z = (
        size ** (1 / 3) * 4,
        4.0,
        4.0,
    )  # about the largest entries of logits' factors, values and gradient
    sizes = [y * y, *[x * x * y * y * z] * 3, *[y * z] * 2]
    mine, peer = (errors(gradients_of(torch.float32, b), truth, sizes) for b in ("native", "reference"))
    for a, b in zip(mine, peer, strict=True):
        assert a <= 3 * b + 8 * torch.finfo(torch.float32).eps


def weighted(size: float) -> Weighted:
    """A bias for each pair, of about `size`."""
    return Weighted(Full(), size * torch.randn(N, N, generator=torch.Generator().manual_seed(2)).exp())


RELATIONS = {
    "tiles": [lambda _: Full(), lambda size: ALiBi([size, size / 3])],
    "edges": [lambda _: Full(), lambda size: ALiBi([size, size / 3]), weighted],
}


@pytest.mark.parametrize("instructions", packing.native.instruction_sets() if packing.native else [])
@pytest.mark.parametrize("backend", ["tiles", "edges"])
def test_weights_never_exceed_one(backend: str, instructions: str) -> None:
    """dv of a row is a convex combination of gradients, on every instruction set and at every score."""
    before = packing.native.instruction_set()
    packing.native.choose_instruction_set(instructions)
    try:
        for size, relation in product((1e3, 1e6, 1e9, 1e12), RELATIONS[backend]):
            q, k, v, _ = inputs(size, seed=int(size) % 7)
            ones = torch.ones_like(v)
            run = partial(attend, relation=relation(size), backend=backend)
            dv = gradients(run, q, k, v, ones, torch.float32)[3]
            assert float(dv.max()) <= N * (1 + 1e-5)
            torch.testing.assert_close(dv.sum(2), torch.full_like(dv.sum(2), N), rtol=1e-4, atol=0)
    finally:
        packing.native.choose_instruction_set(before)

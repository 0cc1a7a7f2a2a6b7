"""Numbers that a kernel's own arithmetic could lose: every backend against the oracle in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from erlangen.attention import attend
from erlangen.attention.kernels import Additive, Cosine, Gaussian, Kernel, Polynomial, SoftmaxDot
from erlangen.errors import BackendError, ParameterError
from erlangen.relations import ALiBi, Causal, Decay, Full, Identity, RelativeBias, Window

BACKENDS = ["reference", "gather", "edges", "tiles", "sdpa", None]
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 5e-3}


def inputs(length: int, offset: float, factor: float, dtype: torch.dtype) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 2, length, 8, generator=generator) for _ in range(3))
    most = torch.finfo(dtype).max
    return [(x * factor + offset).clamp(-most, most).to(dtype) for x in (q, k)] + [v.to(dtype)]


def results(given: list[torch.Tensor], backend: str | None, relation: Any, kernel: Any) -> list[torch.Tensor]:
    leaves = [x.detach().clone().requires_grad_() for x in given]
    out = attend(*leaves, relation, kernel=kernel, backend=backend)
    assert out.dtype == given[0].dtype
    weight = torch.arange(out.numel()).view_as(out).cos()
    (out * weight.to(out.dtype)).sum().backward()
    return [out.detach(), *(x.grad for x in leaves if x.grad is not None)]


def compare(
    given: list[torch.Tensor], backend: str | None, relation: Any, kernel: Kernel | None, least: float = 0.0
) -> None:
    expected = results([x.double() for x in given], "reference", relation, kernel)
    try:
        found = results(given, backend, relation, kernel)
    except BackendError:
        pytest.skip("this backend does not have the kernel, and says so")
    for a, b in zip(found, expected, strict=True):
        error = (a.double() - b).abs().max()
        assert error <= max(least, TOLERANCE[given[0].dtype]) * b.abs().max() + 1e-6, float(error)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(
    ("kernel", "offset", "factor"),
    [
        (Gaussian(1.0), 0.0, 1.0),
        (Gaussian(1.0), 300.0, 1.0),  # far from the origin: |q - k|^2 is small, |k|^2 is not
        (Gaussian(30.0), -5000.0, 20.0),
        (Cosine(0.02), 0.0, 1.0),
        (Cosine(0.2), 0.0, 2e4),  # a norm beyond float16
        (Additive(), 0.0, 3.0),
        (Additive(), 0.0, 2e4),
        (SoftmaxDot(softcap=5.0), 0.0, 30.0),
    ],
    ids=repr,
)
def test_kernels(backend, dtype, kernel, offset, factor) -> None:
    compare(inputs(12, offset, factor, dtype), backend, Window(3, 2), kernel)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("factor", [1e-25, 1e25])
def test_a_cosine_knows_no_lengths(backend, factor) -> None:
    q, k, v = inputs(12, 0.0, 1.0, torch.float32)
    expected = attend(q, k, v, Window(3), kernel=Cosine(0.2), backend="reference")
    found = attend(q * factor, k / factor, v, Window(3), kernel=Cosine(0.2), backend=backend)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(
    "relation",
    [
        ALiBi([0.5, 3.7], relation=Full() - Window(200, 200)),  # only far keys: log-weights from -100 on
        ALiBi([500.0, 3.7], relation=Full() - Window(200, 200)),  # beyond float16
        Decay([0.5, 0.01]),
        RelativeBias(1000.0 + torch.rand(2, 8, generator=torch.Generator().manual_seed(0))),
    ],
    ids=["far", "farther", "decay", "large table"],
)
def test_log_weights_keep_their_digits(backend, dtype, relation) -> None:
    # Scores of 10^5 have two digits behind the point in float32.
    compare(inputs(300, 0.0, 1.0, dtype), backend, relation, None, least=2e-2)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_sink_turned_off_leaves_empty_rows_zero(backend) -> None:
    q, k, v = (x.requires_grad_() for x in inputs(6, 0.0, 1.0, torch.float32))
    sink = torch.tensor([-torch.inf, 0.0], requires_grad=True)
    kernel, relation = SoftmaxDot(sink=sink), Causal() - Identity()
    if backend == "sdpa":
        with pytest.raises(BackendError):
            attend(q, k, v, relation, kernel=kernel, backend=backend)
        return
    out = attend(q, k, v, relation, kernel=kernel, backend=backend)
    out.sum().backward()
    without = attend(q, k, v, relation, backend=backend)
    torch.testing.assert_close(out[:, 0], without[:, 0])
    assert out[:, :, 0].abs().max() == 0
    assert all(x.grad is not None and x.grad.isfinite().all() for x in (q, k, v, sink))


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_keys_give_zero_for_large_queries(backend) -> None:
    q = torch.full((1, 1, 4, 8), 6e4, dtype=torch.float16, requires_grad=True)
    k = torch.zeros(1, 1, 0, 8, dtype=torch.float16)
    out = attend(q, k, k, Full(), backend=backend)
    out.sum().backward()
    assert out.abs().max() == 0
    assert q.grad is not None
    assert q.grad.abs().max() == 0


def test_weights_under_autocast_are_those_of_the_inputs() -> None:
    q, k, v = (x.bfloat16() for x in inputs(12, 0.0, 8.0, torch.float32))
    _, expected = attend(q, k, v, Causal(), return_weights=True)
    with torch.autocast("cpu", torch.bfloat16):
        _, found = attend(q, k, v, Causal(), return_weights=True)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kernel", [Gaussian, Cosine])
def test_a_learned_width_gets_its_gradient(backend, kernel) -> None:
    q, k, v = (x.double() for x in inputs(8, 0.0, 1.0, torch.float32))
    width = torch.tensor(1.3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda *x: attend(q, k, v, Causal(), kernel=kernel(*x), backend=backend), (width,)
    )


@pytest.mark.parametrize(
    "make",
    [
        lambda x: attend(*inputs(8, 0.0, 1.0, torch.float32), scale=x),
        lambda x: SoftmaxDot(scale=x),
        lambda x: SoftmaxDot(softcap=x),
        lambda x: Polynomial(2, offset=x),
        lambda x: Polynomial(2, scale=x),
        lambda x: Additive(slope=x),
    ],
)
def test_numbers_that_cannot_be_learned_refuse_to_be(make) -> None:
    make(torch.tensor(1.5))
    with pytest.raises(ParameterError, match="no gradient would reach"):
        make(torch.tensor(1.5, requires_grad=True))

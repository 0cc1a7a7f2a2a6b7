"""Empty, sparse, nested and foreign tensors: right answers or clear errors, in every backend."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from erlangen.attention import attend
from erlangen.errors import ShapeError
from erlangen.relations import Causal, Full, Window

BACKENDS = [None, "tiles", "edges", "reference", "sdpa", "gather"]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("shape", [(0, 2, 5, 4), (1, 2, 0, 4), (1, 2, 5, 0), (0, 2, 0, 0), (3, 2, 1, 4)])
@pytest.mark.parametrize("transposed", [False, True])
def test_empty_tensors_in_any_layout(backend, shape, transposed):
    def make():
        batch, heads, n, dim = shape
        x = torch.zeros(batch, heads, dim, n).transpose(2, 3) if transposed else torch.zeros(shape)
        return x.requires_grad_()

    q, k, v = make(), make(), make()
    out = attend(q, k, v, Causal(), backend=backend)
    assert out.shape == shape
    for grad, x in zip(torch.autograd.grad(out.sum(), (q, k, v)), (q, k, v), strict=True):
        assert grad.shape == x.shape
        assert bool(grad.isfinite().all())


@pytest.mark.parametrize("backend", BACKENDS)
def test_without_features_all_scores_are_zero(backend):
    q = k = torch.zeros(1, 2, 5, 0)
    v = torch.arange(5.0).expand(1, 2, 5).unsqueeze(-1).contiguous().requires_grad_()
    out = attend(q, k, v, Full(), backend=backend)
    torch.testing.assert_close(out, torch.full_like(out, 2.0))
    (grad,) = torch.autograd.grad(out.sum(), v)
    torch.testing.assert_close(grad, torch.ones_like(grad))


@pytest.mark.parametrize("backend", BACKENDS)
def test_values_without_features(backend):
    x = torch.randn(1, 2, 5, 4)
    assert attend(x, x, torch.zeros(1, 2, 5, 0), Window(1), backend=backend).shape == (1, 2, 5, 0)


@pytest.mark.filterwarnings("ignore")
def test_what_is_no_dense_tensor_is_refused_in_words():
    x = torch.randn(1, 2, 5, 4)
    nested = torch.nested.nested_tensor([x[0], x[0]])
    jagged = torch.nested.nested_tensor([x[0], x[0]], layout=torch.jagged)
    for wrong, message in (
        (x.to_sparse(), "dense tensor, got one of layout torch.sparse_coo"),
        (nested, r"nested one: .* Documents\(lengths\)"),
        (jagged, r"nested one: .* Documents\(lengths\)"),
        (x.numpy(), "torch tensor, got ndarray"),
        (None, "torch tensor, got NoneType"),
        (np.float32(1), "torch tensor, got float32"),
        (x.cfloat(), "floating-point"),
        (x.int(), "floating-point"),
    ):
        for place in range(3):
            given = [x, x, x]
            given[place] = wrong
            with pytest.raises(ShapeError, match=message):
                attend(*given, Causal())

"""Every backend reads N_i and nothing else, at every scale; a number that nobody reads may be NaN."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import erlangen as er
from erlangen.errors import ParameterError

BACKENDS = ["reference", "sdpa", "tiles", "edges", "gather"]


@pytest.fixture
def qkv() -> Any:
    return torch.randn(3, 1, 4, 40, 8, generator=torch.Generator().manual_seed(0)).unbind()


@pytest.mark.parametrize("scale", [-1.0, 0.0, -0.0, 0.5])
@pytest.mark.parametrize("relation", [er.Causal(), er.Full(), er.Window(3)], ids=repr)
def test_backends_agree_at_every_scale(qkv: Any, relation, scale) -> None:
    found = [er.attend(*qkv, relation=relation, scale=scale, backend=backend) for backend in BACKENDS]
    for one in found[1:]:
        torch.testing.assert_close(one, found[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("odd", [torch.nan, torch.inf])
@pytest.mark.parametrize("heads", [1, 2, 4])
@pytest.mark.parametrize("backend", BACKENDS)
def test_what_nobody_reads_is_harmless(qkv: Any, backend, heads, odd) -> None:
    per_head = er.PerHead([er.Padding(30), er.Padding(25), er.Padding(30), er.Padding(11)])
    for relation, real in ((er.Padding(30), 30), (per_head & er.Causal(), 30)):
        q, k, v = qkv[0], *(x[:, :heads].clone() for x in qkv[1:])
        clean = [x.clone().requires_grad_() for x in (q, k, v)]
        expected = er.attend(*clean, relation=relation, backend="edges")
        k[..., real:, :], v[..., real:, :] = odd, odd
        given = [x.requires_grad_() for x in (q, k, v)]
        found = er.attend(*given, relation=relation, backend=backend)
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
        gradients, wanted = (
            torch.autograd.grad(o.sin().sum(), x) for o, x in ((found, given), (expected, clean))
        )
        torch.testing.assert_close(gradients, wanted, atol=1e-5, rtol=1e-4)


def test_weights_asked_for_change_no_row(qkv: Any) -> None:
    q, k, v = qkv
    v = v.clone()
    v[..., -1, :], v[..., 20, 0] = torch.nan, torch.inf
    out = er.attend(q, k, v, er.Causal())
    dense, _ = er.attend(q, k, v, er.Causal(), return_weights=True)
    finite = out.isfinite()
    assert torch.equal(dense.isfinite(), finite)
    assert finite[..., :20, :].all()
    torch.testing.assert_close(dense[finite], out[finite], atol=1e-5, rtol=1e-5)
    layer, x = er.Attention(4, 1, er.Padding(7)), torch.randn(1, 8, 4)
    x[:, 7] = torch.nan
    torch.testing.assert_close(layer(x, need_weights=True)[0][:, :7], layer(x)[:, :7])


@pytest.mark.parametrize("queries", [1, 2])
def test_a_scale_that_would_learn_is_refused_while_decoding_too(qkv: Any, queries) -> None:
    q, k, v = qkv
    scale = torch.tensor(0.5, requires_grad=True)
    with pytest.raises(ParameterError, match="no gradient would reach"):
        er.attend(q[:, :, -queries:], k, v, er.Causal(), scale=scale)  # pyright: ignore[reportArgumentType]
    out = er.attend(q[:, :, -queries:], k, v, er.Causal(), scale=torch.tensor(0.5))  # pyright: ignore[reportArgumentType]
    torch.testing.assert_close(out, er.attend(q[:, :, -queries:], k, v, er.Causal(), scale=0.5))

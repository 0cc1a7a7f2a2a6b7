"""Derivatives of what calls the operators by another way than `attend`: compiled, exported and traced code,
and `torch.ops`. Each is the derivative, or an error; never zero, never None."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.exc import Unsupported
from torch.autograd import forward_ad
from torch.func import grad, hessian, jacfwd, jvp, vmap

import erlangen as er
from erlangen.attention.binding import clear_cache
from erlangen.attention.ternary_attention import packed

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning", "ignore:The .grad attribute"
)

X, T = torch.randn(2, 1, 2, 5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def attention(x: torch.Tensor) -> torch.Tensor:
    return er.attend(x, x, x, er.Causal())


PAIRS = er.WindowSquared(2)


def triples(x: torch.Tensor) -> torch.Tensor:
    return er.attend_triples(x, x, x, x, x, PAIRS)


class Attention(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return attention(x)


def exported() -> Any:
    return torch.export.export(Attention(), (X,)).module()


def traced() -> Any:
    return torch.jit.trace(attention, (X,))


def by_operator(name: str) -> Any:
    index = er.pack(er.Causal(), 5).index
    operator = getattr(torch.ops.erlangen, name)
    return lambda x: operator(x, x, x, None, None, index, None, 3**-0.5, 0.0, False, 0, 0.0, 0.0)[0]


def by_triples() -> Any:
    index = packed(PAIRS, 5).index
    return lambda x: torch.ops.erlangen.triples(x, x, x, x, x, index, None, 3**-0.5)[0]


PROGRAMS = {
    "exported": (exported, attention),
    "traced": (traced, attention),
    "tiles": (lambda: by_operator("tiles"), attention),
    "edges": (lambda: by_operator("edges"), attention),
    "triples": (by_triples, triples),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_forward_mode_of_programs(name: str) -> None:
    make, function = PROGRAMS[name]
    program, true = make(), (function(X + 1e-6 * T) - function(X - 1e-6 * T)) / 2e-6
    assert true.abs().max() > 0.1
    with forward_ad.dual_level():
        tangent = forward_ad.unpack_dual(program(forward_ad.make_dual(X, T))).tangent
    torch.testing.assert_close(tangent, true, atol=1e-7, rtol=1e-6)
    torch.testing.assert_close(jvp(program, (X,), (T,))[1], true, atol=1e-7, rtol=1e-6)


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name != "traced"])
def test_transforms_of_programs(name: str) -> None:
    make, function = PROGRAMS[name]
    program = make()

    def loss(f: Any) -> Any:
        return lambda x: f(x).sin().sum()

    def penalty(f: Any) -> Any:
        return lambda x: grad(loss(f))(x).square().sum()

    for derivative in (
        lambda f: grad(loss(f)),
        lambda f: hessian(loss(f)),
        lambda f: grad(penalty(f)),
        lambda f: lambda x: vmap(grad(loss(f)))(torch.stack([x, T])),
        lambda f: lambda x: vmap(f)(torch.stack([x, T])),
        lambda f: lambda x: torch.autograd.functional.hessian(loss(f), x),
    ):
        torch.testing.assert_close(derivative(program)(X), derivative(function)(X))


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_forward_mode_in_compiled_code(backend: str, warm: bool) -> None:
    torch._dynamo.reset()
    clear_cache()
    if warm:
        torch.compile(attention, backend="eager")(X)
    compiled = torch.compile(lambda x, t: jvp(attention, (x,), (t,))[1], backend=backend)(X, T)
    torch.testing.assert_close(compiled, jvp(attention, (X,), (T,))[1])
    torch.testing.assert_close(torch.compile(jacfwd(attention), backend=backend)(X), jacfwd(attention)(X))


def test_forward_mode_in_a_single_graph_is_refused_or_right() -> None:
    torch._dynamo.reset()
    for backend in (None, "tiles", "edges"):
        run = torch.compile(
            lambda x, t: jvp(lambda x: er.attend(x, x, x, er.Causal(), backend=backend), (x,), (t,))[1],  # noqa: B023
            backend="eager",
            fullgraph=True,
        )
        try:
            found = run(X, T)
        except Unsupported:
            continue
        torch.testing.assert_close(found, jvp(attention, (X,), (T,))[1])


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("function", [attention, triples])
def test_gradients_inside_compiled_code(function: Any, warm: bool) -> None:
    def loss(x: torch.Tensor) -> torch.Tensor:
        return function(x).square().sum()

    for run in (grad(loss), lambda x: vmap(grad(loss))(torch.stack([x, T]))):
        torch._dynamo.reset()
        clear_cache()
        packed.cache_clear()
        if warm:
            torch.compile(loss, backend="eager")(X)
        torch.testing.assert_close(torch.compile(run, backend="aot_eager", fullgraph=True)(X), run(X))

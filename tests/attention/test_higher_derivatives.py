"""Derivatives of derivatives, forward-mode derivatives and `torch.func`, against the dense oracle."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.autograd import forward_ad, functional

from erlangen.attention import attend, attend_triples
from erlangen.attention.backends import edges, tiles
from erlangen.attention.binding import bind
from erlangen.attention.kernels import Additive, Gaussian, Linear, Polynomial, SoftmaxDot
from erlangen.errors import ParameterError
from erlangen.relations import (
    ALiBi,
    Batch,
    Causal,
    Decay,
    Distance,
    Fano,
    FromMask,
    Full,
    Nearest,
    PerHead,
    RelativeBias,
    Weighted,
    Window,
)

BACKENDS = ["tiles", "edges", "gather", "reference"]
N = 7


def tensors(*shapes: tuple[int, ...], seed: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]


def qkv(batch: int = 1, heads: int = 2, kv_heads: int = 1) -> list[torch.Tensor]:
    return tensors((batch, heads, N, 4), (batch, kv_heads, N, 4), (batch, kv_heads, N, 3))


def relations() -> dict[str, Any]:
    mask = torch.rand(N, N, generator=torch.Generator().manual_seed(0)) < 0.4
    mask[2] = False
    return {
        "full": Full(),
        "causal": Causal(),
        "empty row": FromMask(mask),
        "window": Window(1),
        "per head": PerHead([Causal(), Window(2)]),
        "alibi": ALiBi([0.5, 0.25]),
    }


def cases() -> list[Any]:
    found = [
        pytest.param(backend, relation, {}, id=f"{backend}-{name}")
        for backend in BACKENDS
        for name, relation in relations().items()
    ]
    found += [
        pytest.param(backend, Causal(), {"kernel": kernel}, id=f"{backend}-{type(kernel).__name__}")
        for backend in BACKENDS
        for kernel in (SoftmaxDot(softcap=2.0), Gaussian(), Polynomial(2))
    ]
    found += [pytest.param(None, Causal(), {"kernel": Linear()}, id="linear")]
    found += [
        pytest.param("edges", Causal(), {"kernel": Additive(torch.ones(4).double())}, id="edges-Additive")
    ]
    return found


@pytest.mark.parametrize(("backend", "relation", "options"), cases())
def test_gradgradcheck(backend: str | None, relation: Any, options: dict[str, Any]) -> None:
    inputs = [x.requires_grad_() for x in qkv()]
    assert torch.autograd.gradgradcheck(lambda *x: attend(*x, relation, backend=backend, **options), inputs)


@pytest.mark.parametrize(("backend", "relation", "options"), cases())
def test_forward_mode_equals_reverse_mode(
    backend: str | None, relation: Any, options: dict[str, Any]
) -> None:
    inputs, tangents = qkv(), tensors((1, 2, N, 4), (1, 1, N, 4), (1, 1, N, 3), seed=1)

    def run(*x):
        return attend(*x, relation, backend=backend, **options)

    out, along = torch.func.jvp(run, tuple(inputs), tuple(tangents))
    expected = functional.jvp(run, tuple(inputs), tuple(tangents))  # two reverse passes
    torch.testing.assert_close((out, along), expected)
    assert along.abs().max() > 1e-3
    with forward_ad.dual_level():
        dual = run(*(forward_ad.make_dual(x, t) for x, t in zip(inputs, tangents, strict=True)))
        torch.testing.assert_close(forward_ad.unpack_dual(dual).tangent, along)


@pytest.mark.parametrize("backend", BACKENDS)
def test_hessians_vhp_and_third_derivatives(backend: str) -> None:
    q, k, v = qkv()

    def loss(x, backend=backend):
        return attend(x, k * x.sum(), v, Causal(), backend=backend).square().sum()

    expected = functional.hessian(lambda x: loss(x, "reference"), q)
    assert expected.abs().max() > 1e-2
    torch.testing.assert_close(functional.hessian(loss, q), expected)
    torch.testing.assert_close(torch.func.hessian(loss)(q), expected)
    torch.testing.assert_close(torch.func.jacrev(torch.func.grad(loss))(q), expected)
    torch.testing.assert_close(functional.vhp(loss, q, torch.ones_like(q))[1], expected.sum((0, 1, 2, 3)))

    def third(run):
        x = q.clone().requires_grad_()
        (first,) = torch.autograd.grad(run(x), x, create_graph=True)
        (second,) = torch.autograd.grad(first.square().sum(), x, create_graph=True)
        return torch.autograd.grad(second.sum(), x)[0]

    torch.testing.assert_close(third(loss), third(lambda x: loss(x, "reference")))


@pytest.mark.parametrize("backend", ["tiles", "edges"])
def test_the_log_sum_exp_and_the_bias_have_second_derivatives(backend: str) -> None:
    q, k, v = (x.requires_grad_() for x in qkv())
    table = torch.randn(2, 5, dtype=torch.float64, requires_grad=True)

    def run(q, k, v, table):
        relation = RelativeBias(table, bidirectional=False, relation=Causal())
        return attend(q, k, v, relation, backend=backend, return_lse=True)

    assert torch.autograd.gradgradcheck(run, (q, k, v, table))


@pytest.mark.parametrize("backend", ["tiles", "edges"])
@pytest.mark.parametrize("relation", [Full(), Window(2), PerHead([Causal(), Window(2)])], ids=str)
def test_dropout_drops_the_same_pairs_in_the_second_pass(backend: str, relation: Any) -> None:
    inputs = [x.requires_grad_() for x in qkv(batch=2)]

    def run(*x):
        torch.manual_seed(5)
        return attend(*x, relation, dropout=0.4, backend=backend)

    grads = torch.autograd.grad(run(*inputs).sin().sum(), inputs)
    again = torch.autograd.grad(run(*inputs).sin().sum(), inputs, create_graph=True)
    torch.testing.assert_close(again, grads)  # by the formula, and by the kernel
    assert torch.autograd.gradgradcheck(run, inputs)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_step_of_maml_and_a_gradient_penalty(backend: str) -> None:
    x = tensors((1, 2, N, 4))[0]

    def outer(weight, backend=backend):
        inner = attend(x @ weight, x, x, Causal(), backend=backend).square().mean()
        (step,) = torch.autograd.grad(inner, weight, create_graph=True)
        moved = attend(x @ (weight - 0.5 * step), x, x, Causal(), backend=backend)
        return moved.square().mean() + step.norm()

    weight = torch.eye(4, dtype=torch.float64, requires_grad=True)
    found, wanted = (torch.autograd.grad(outer(weight, b), weight)[0] for b in (backend, "reference"))
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("backend", BACKENDS)
def test_per_sample_gradients(backend: str) -> None:
    weight, xs = torch.eye(4, dtype=torch.float64), torch.stack(tensors(*[(2, N, 4)] * 3))

    def loss(weight, x):
        return attend(x @ weight, x, x, Causal(), backend=backend).square().sum()

    each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(weight, xs)
    second = torch.func.vmap(torch.func.hessian(loss), in_dims=(None, 0))(weight, xs)
    for n, x in enumerate(xs):
        torch.testing.assert_close(each[n], functional.jacobian(lambda w, x=x: loss(w, x), weight))
        torch.testing.assert_close(second[n], functional.hessian(lambda w, x=x: loss(w, x), weight))


@pytest.mark.parametrize("backend", ["tiles", "edges"])
def test_batched_gradients_keep_biases_of_items_apart(backend: str) -> None:
    q, k, v = qkv()
    module = {"tiles": tiles, "edges": edges}[backend]
    index = bind(Causal(), batch=1, heads=2, queries=N, keys=N).packed
    biases = torch.randn(3, 2, 2 * N - 1, dtype=torch.float64, generator=torch.Generator().manual_seed(2))

    def loss(bias):
        return module.attend(q, k, v, index, scale=1.0, bias=bias)[0].square().sum()

    each = torch.func.vmap(torch.func.grad(loss))(biases)
    for n in range(3):
        torch.testing.assert_close(each[n], torch.func.grad(loss)(biases[n]))


@pytest.mark.parametrize("backend", ["tiles", "edges"])
def test_randomness_under_vmap_is_what_vmap_says(backend: str) -> None:
    x = torch.ones(4, 2, 30, 4)

    def run(x):
        return attend(x, x, x, Full(), dropout=0.5, backend=backend)

    same = torch.vmap(run, randomness="same")(x)
    different = torch.vmap(run, randomness="different")(x)
    assert all(torch.equal(same[0], same[n]) for n in range(1, 4))
    assert not any(torch.equal(different[0], different[n]) for n in range(1, 4))
    with pytest.raises(RuntimeError, match="randomness"):
        torch.vmap(run)(x)


@pytest.mark.parametrize("backend", BACKENDS)
def test_batch_relations_in_second_derivatives(backend: str) -> None:
    inputs = [x.requires_grad_() for x in qkv(batch=2)]
    relation = Batch([Causal(), Window(1, 1)])
    assert torch.autograd.gradgradcheck(lambda *x: attend(*x, relation, backend=backend), inputs)


def test_triples_have_every_derivative() -> None:
    inputs = tensors(*[(1, 2, 7, 3)] * 5)
    leaves = [x.requires_grad_() for x in inputs]
    assert torch.autograd.gradgradcheck(lambda *x: attend_triples(*x, Fano(), backend="native"), leaves)
    plain = tuple(x.detach() for x in inputs)
    tangents = tuple(tensors(*[(1, 2, 7, 3)] * 5, seed=1))
    found, wanted = (
        torch.func.jvp(lambda *x, b=b: attend_triples(*x, Fano(), backend=b), plain, tangents)
        for b in ("native", "reference")
    )
    torch.testing.assert_close(found, wanted)
    many = torch.stack([plain[0], 2 * plain[0]])
    batched = torch.vmap(lambda q: attend_triples(q, *plain[1:], Fano(), backend="native"))(many)
    torch.testing.assert_close(batched[1], attend_triples(many[1], *plain[1:], Fano(), backend="reference"))


def test_decoding_steps_have_tangents() -> None:
    q, k, v = tensors((1, 2, 1, 4), (1, 2, N, 4), (1, 2, N, 4))
    found = torch.func.jvp(lambda q: attend(q, k, v, Causal()), (q,), (torch.ones_like(q),))[1]
    wanted = torch.func.jvp(
        lambda q: attend(q, k, v, Causal(), backend="reference"), (q,), (torch.ones_like(q),)
    )[1]
    assert found.abs().max() > 1e-3
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize(
    "relation",
    [
        lambda table: RelativeBias(table[:, :8], relation=Causal()),
        lambda table: ALiBi(table[:, 0].abs()),
        lambda table: Decay(table[:, 0].sigmoid()),
        lambda table: Weighted(Causal(), table[:, : N * N].unflatten(1, (N, N))),
        lambda table: Weighted(Window(1), offsets={-1: 2.0, 0: 0.5}),
        lambda table: Distance(FromMask(torch.eye(N).roll(1, 0) > 0), table[:, : N + 1]),
    ],
)
def test_log_weights_in_every_transform(relation: Any) -> None:
    q, k, v = qkv()
    (table,) = tensors((2, N * N))

    def run(table, q):
        return attend(q, k, v, relation(table)).square().sum()

    def by_reference(table, q):
        return attend(q, k, v, relation(table), backend="reference").square().sum()

    def by_autograd(table, q):
        table, q = table.clone().requires_grad_(), q.clone().requires_grad_()
        by_reference(table, q).backward()
        return torch.zeros_like(table) if table.grad is None else table.grad, q.grad

    expected = by_autograd(table, q)
    torch.testing.assert_close(torch.func.grad(run, argnums=(0, 1))(table, q), expected)
    along = tensors((2, N * N), tuple(q.shape), seed=1)
    _, derivative = torch.func.jvp(run, (table, q), tuple(along))
    torch.testing.assert_close(derivative, sum((a * g).sum() for a, g in zip(along, expected, strict=True)))
    stacked = torch.stack([table, 2 * table])
    found = torch.func.vmap(torch.func.grad(run, argnums=(0, 1)), in_dims=(0, None))(stacked, q)
    for n in range(2):
        torch.testing.assert_close(tuple(x[n] for x in found), by_autograd(stacked[n], q))


def test_nearest_keys_in_transforms() -> None:
    q, k, v = qkv()

    def run(q):
        return attend(q, k, v, Nearest(3)).square().sum()

    leaf = q.clone().requires_grad_()
    run(leaf).backward()
    torch.testing.assert_close(torch.func.grad(run)(q), leaf.grad)
    torch.testing.assert_close(torch.func.jvp(run, (q,), (q,))[1], (leaf.grad * q).sum())
    with pytest.raises(ParameterError, match="vmap"):
        torch.func.vmap(run)(torch.stack([q, 2 * q]))
    torch.testing.assert_close(
        torch.func.functionalize(lambda q: Nearest(3).on(q, q).num_edges)(q[0, 0]), 3 * N
    )

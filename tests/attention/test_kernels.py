"""Kernels against their formulas, pair by pair; every backend against the dense oracle, with gradients."""

from __future__ import annotations

import math
import sys
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck

import erlangen as er
from erlangen.attention import packing
from erlangen.attention.backends import gather
from erlangen.attention.binding import clear_cache
from erlangen.attention.kernels import (
    Additive,
    Cosine,
    Gaussian,
    Kernel,
    Linear,
    Polynomial,
    RandomFeatures,
    SoftmaxDot,
    violation,
)
from erlangen.errors import BackendError, ParameterError, ShapeError
from erlangen.testing.strategies import relations

DIM, HEADS = 3, 4
VECTOR = torch.randn(HEADS, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
SINK = torch.linspace(-1, 1, HEADS, dtype=torch.float64)


def leaky(x: float) -> float:
    return x if x > 0 else 0.2 * x


def elu(x: float) -> float:
    return 1 + x if x > 0 else math.exp(x)


def dot(q, k):
    return sum(a * b for a, b in zip(q, k, strict=True))


# name -> the kernel, and k(q, k) of head h written from its formula for lists of numbers
KERNELS = {
    "softmax": (SoftmaxDot(0.7), lambda q, k, h: math.exp(0.7 * dot(q, k))),
    "softcap": (
        SoftmaxDot(softcap=0.8),
        lambda q, k, h: math.exp(0.8 * math.tanh(dot(q, k) / DIM**0.5 / 0.8)),
    ),
    "gat": (Additive(), lambda q, k, h: math.exp(leaky(sum(q) + sum(k)))),
    "gatv2": (
        Additive(VECTOR),
        lambda q, k, h: math.exp(
            sum(float(a) * leaky(x + y) for a, x, y in zip(VECTOR[h], q, k, strict=True))
        ),
    ),
    "bahdanau": (
        Additive(VECTOR[0], activation="tanh"),
        lambda q, k, h: math.exp(
            sum(float(a) * math.tanh(x + y) for a, x, y in zip(VECTOR[0], q, k, strict=True))
        ),
    ),
    "gaussian": (
        Gaussian(0.9),
        lambda q, k, h: math.exp(-sum((x - y) ** 2 for x, y in zip(q, k, strict=True)) / (2 * 0.81)),
    ),
    "cosine": (
        Cosine(0.5),
        lambda q, k, h: math.exp(2 * dot(q, k) / math.sqrt(dot(q, q) * dot(k, k))),
    ),
    "square": (Polynomial(2, offset=0.3), lambda q, k, h: (dot(q, k) / DIM**0.5 + 0.3) ** 2),
    "cube": (Polynomial(3, offset=9.0, scale=0.5), lambda q, k, h: (dot(q, k) / 2 + 9) ** 3),
    "linear": (Linear(), lambda q, k, h: dot(map(elu, q), map(elu, k))),
    "features": (Linear(RandomFeatures(DIM, 8)), None),
    "own features": (Linear(torch.sigmoid, positive_features=True), None),
}
POSITIVE = [name for name in KERNELS if name != "cube"]


def tensors(queries=5, keys=5, seed=0, dtype=torch.float64, batch=2):
    generator = torch.Generator().manual_seed(seed)
    shapes = [(batch, HEADS, queries, DIM), (batch, 2, keys, DIM), (batch, 2, keys, 2)]
    return [torch.randn(s, generator=generator, dtype=torch.float64).to(dtype) for s in shapes]


@cache
def able(name: str, relation=None) -> list[str]:
    """The backends that have this kernel."""
    kernel, reads = KERNELS[name][0], er.Causal() if relation is None else relation
    found = []
    for backend in ("gather", "tiles", "edges", "sdpa", "linear"):
        try:
            er.attend(*tensors(), reads, kernel=kernel, backend=backend)
        except BackendError:
            continue
        found.append(backend)
    return found


def test_every_backend_has_the_kernels_the_plan_says():
    native = ["gather", "tiles", "edges"]
    assert {name: able(name) for name in KERNELS} == {
        "softmax": [*native, "sdpa"],
        "softcap": native,
        "gat": native,
        "gatv2": ["gather", "edges"],
        "bahdanau": ["gather", "edges"],
        "gaussian": [*native, "sdpa"],
        "cosine": [*native, "sdpa"],
        "square": native,
        "cube": ["gather"],
        "linear": [*native, "linear"],
        "features": [*native, "linear"],
        "own features": [*native, "linear"],
    }
    assert "linear" not in able("linear", er.Window(1))
    q, k, v = tensors()
    chosen = {name: er.plan(q, k, v, er.Causal(), kernel=KERNELS[name][0]).backend for name in KERNELS}
    assert chosen == dict.fromkeys(KERNELS, "edges") | {
        "cube": "gather", "linear": "linear", "features": "linear", "own features": "linear"
    }  # fmt: skip


@pytest.mark.parametrize("name", [name for name, (_, formula) in KERNELS.items() if formula])
def test_the_oracle_is_the_formula(name):
    kernel, formula = KERNELS[name]
    q, k, v = tensors()
    relation = er.Causal() - er.Identity()
    out, weights = er.attend(q, k, v, relation, kernel=kernel, return_weights=True)
    for b in range(2):
        for h in range(HEADS):
            assert (weights[b, h, 0] == 0).all()
            for i in range(1, 5):
                row = torch.tensor(
                    [formula(q[b, h, i].tolist(), k[b, h // 2, j].tolist(), h) for j in range(i)]
                )
                expected = row.double() / row.double().sum()
                torch.testing.assert_close(weights[b, h, i, :i], expected, atol=1e-6, rtol=1e-6)
                torch.testing.assert_close(out[b, h, i], weights[b, h, i, :i] @ v[b, h // 2, :i])


@pytest.mark.parametrize("name", list(KERNELS))
@given(data=st.data())
@settings(max_examples=10)
def test_backends_agree_with_the_oracle(name, data):
    kernel = KERNELS[name][0]
    keys = data.draw(st.integers(1, 9))
    queries = data.draw(st.integers(1, keys))
    relation = data.draw(relations(keys))
    inputs = [x.requires_grad_() for x in tensors(queries, keys)]
    lse = kernel.positive

    def run(backend):
        result = er.attend(
            *inputs, relation, kernel=kernel, backend=backend, return_lse=lse and backend != "sdpa"
        )
        out = result[0] if isinstance(result, tuple) else result
        grads = torch.autograd.grad(out.sin().sum(), inputs)
        return out, *grads, *(result[1:] if isinstance(result, tuple) else ())

    expected = run("reference")
    for backend in able(name):
        if backend == "linear" and er.plan(*inputs, relation, kernel=kernel).backend != "linear":
            continue
        for a, b in zip(run(backend), expected, strict=False):
            torch.testing.assert_close(a, b, atol=1e-8, rtol=1e-8)


@pytest.mark.parametrize("name", list(KERNELS))
def test_gradcheck(name):
    kernel = KERNELS[name][0]
    q, k, v = (x.requires_grad_() for x in tensors(4, 5, batch=1))
    relation = er.Causal() - er.Window(0)
    backends = [b for b in able(name) if b != "sdpa"]
    for backend in backends:
        reads = er.Full() if backend == "linear" else relation
        assert gradcheck(
            lambda *x, b=backend, r=reads: er.attend(*x, r, kernel=kernel, backend=b),
            (q, k, v),
            fast_mode=True,
        )


@pytest.mark.parametrize("backend", ["reference", "gather", "edges", "tiles"])
def test_gradients_reach_vectors_and_sinks_and_empty_rows_stay_zero(backend):
    q, k, v = (x.requires_grad_() for x in tensors(batch=1))
    relation = er.Causal() - er.Identity()  # row 0 reads nothing
    sink = SINK.clone().requires_grad_()

    def with_sink(sink, *x):
        kernel = SoftmaxDot(softcap=2.0, sink=sink)
        return er.attend(*x, relation, kernel=kernel, backend=backend, return_lse=True)

    assert gradcheck(with_sink, (sink, q, k, v), fast_mode=True)
    out, lse = with_sink(sink, q, k, v)
    assert (out[:, :, 0] == 0).all()
    assert torch.equal(lse[0, :, 0], sink)  # the denominator of a row that reads nothing is the sink alone
    if backend == "tiles":
        return
    vector = VECTOR.clone().requires_grad_()
    for activation in ("leaky_relu", "tanh"):
        assert gradcheck(
            lambda a, *x, f=activation: er.attend(*x, relation, kernel=Additive(a, f), backend=backend),
            (vector, q, k, v),
            fast_mode=True,
        )


def test_a_sink_is_one_more_key_without_a_value():
    q, k, v = tensors()
    out, weights, lse = er.attend(
        q, k, v, er.Causal(), kernel=SoftmaxDot(sink=SINK), return_weights=True, return_lse=True
    )
    scores = q @ k.repeat_interleave(2, 1).mT / DIM**0.5
    mask = torch.ones(5, 5, dtype=torch.bool).tril()
    column = SINK[None, :, None, None].expand(2, HEADS, 5, 1)
    all_scores = torch.cat([scores.masked_fill(~mask, -torch.inf), column], -1)
    torch.testing.assert_close(weights, all_scores.softmax(-1)[..., :-1])
    torch.testing.assert_close(lse, all_scores.logsumexp(-1))
    torch.testing.assert_close(out, weights @ v.repeat_interleave(2, 1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", POSITIVE)
def test_low_precision(name, dtype):
    kernel, relation = KERNELS[name][0], er.Causal()
    low = tensors(20, 20, dtype=dtype)
    exact = er.attend(*(x.double() for x in low), relation, kernel=kernel, backend="reference")
    for backend in ["reference", *able(name)]:
        out = er.attend(*low, relation, kernel=kernel, backend=backend)
        assert out.dtype == dtype
        assert (out.double() - exact).abs().max() < 40 * torch.finfo(dtype).eps, backend


def test_caps_and_logarithms_are_exact_over_their_range_in_float32():
    # one query, one key each: the log-sum-exp is the logit itself
    x = torch.cat([torch.logspace(-6, 4, 200), -torch.logspace(-6, 4, 200)]).view(1, 1, -1, 1)
    one = torch.ones_like(x)
    for backend in ("tiles", "edges"):
        for kernel, wanted in (
            (SoftmaxDot(1.0, softcap=30.0), 30 * torch.tanh(x.double() / 30)),
            (Polynomial(2, scale=1.0), 2 * x.double().abs().log()),
            (Additive(), torch.where(x > 0, x, 0.2 * x).double()),
        ):
            k = torch.zeros_like(x) if isinstance(kernel, Additive) else one
            _, lse = er.attend(x, k, one, er.Identity(), kernel=kernel, backend=backend, return_lse=True)
            torch.testing.assert_close(lse.double(), wanted.squeeze(-1), atol=2e-6, rtol=4e-7)


def test_a_row_of_vanishing_weights_gives_zero_and_no_gradient():
    q = torch.zeros(1, 1, 2, 1, dtype=torch.float64, requires_grad=True)
    k, v = (torch.ones(1, 1, 3, 1, dtype=torch.float64, requires_grad=True) for _ in range(2))
    for backend in ("reference", "gather", "tiles", "edges"):
        out = er.attend(q, k, v, er.Full(), kernel=Polynomial(2), backend=backend)
        assert (out == 0).all()
        assert all((g == 0).all() for g in torch.autograd.grad(out.sum(), (q, k, v)))


def test_keys_outside_the_relation_do_not_spoil_it():
    q, k, v = tensors(8, 8, dtype=torch.float32)
    k[:, :, -1] = torch.nan
    for name in ("softcap", "gat", "gatv2", "square"):
        kernel = KERNELS[name][0]
        for backend in able(name):
            inputs = [x.clone().requires_grad_() for x in (q, k, v)]
            out = er.attend(*inputs, er.Causal() - er.Identity(), kernel=kernel, backend=backend)
            assert out.isfinite().all(), (name, backend)
            out.sum().backward()
            assert inputs[0].grad.isfinite().all()
            assert inputs[1].grad[:, :, :-1].isfinite().all()


def test_dropout_of_kernels_keeps_the_mean():
    q, k, v = tensors(40, 40)
    for name in ("gat", "cube", "linear"):
        for backend in able(name):
            if backend == "linear":
                with pytest.raises(BackendError, match="without bias and dropout"):
                    er.attend(q, k, v, er.Full(), kernel=KERNELS[name][0], backend=backend, dropout=0.2)
                continue
            torch.manual_seed(0)
            mean = sum(
                er.attend(
                    q, k, torch.ones_like(v), er.Full(), kernel=KERNELS[name][0], backend=backend, dropout=0.2
                )
                for _ in range(20)
            )
            assert abs(float(mean.mean()) / 20 - 1) < 0.05


def test_linear_attention_is_exact_over_many_chunks_and_converges_to_softmax():
    q, k, v = tensors(200, 200)
    for relation in (er.Causal(), er.Full()):
        fast = er.attend(q, k, v, relation, kernel=Linear(), backend="linear")
        exact = er.attend(q, k, v, relation, kernel=Linear(), backend="reference")
        torch.testing.assert_close(fast, exact, atol=1e-12, rtol=0)
    softmax = er.attend(q, k, v, er.Causal())
    errors = [
        float((er.attend(q, k, v, er.Causal(), kernel=Linear(RandomFeatures(DIM, m))) - softmax).abs().mean())
        for m in (16, 2048)
    ]
    assert errors[1] < errors[0] / 3
    assert errors[1] < 0.05
    again = er.attend(q, k, v, er.Causal(), kernel=Linear(RandomFeatures(DIM, 2048)))
    other = er.attend(q, k, v, er.Causal(), kernel=Linear(RandomFeatures(DIM, 2048, seed=1)))
    assert torch.equal(er.attend(q, k, v, er.Causal(), kernel=Linear(RandomFeatures(DIM, 2048))), again)
    assert not torch.equal(other, again)


def test_gathering_in_pieces_changes_nothing(monkeypatch):
    q, k, v = (x.requires_grad_() for x in tensors(12, 12))
    whole = er.attend(q, k, v, er.Causal() - er.Identity(), kernel=Polynomial(3, 9.0))
    grads = torch.autograd.grad(whole.sum(), (q, k, v))
    monkeypatch.setattr(gather, "PAIRS", 100)
    pieces = er.attend(q, k, v, er.Causal() - er.Identity(), kernel=Polynomial(3, 9.0))
    torch.testing.assert_close(pieces, whole)
    for a, b in zip(torch.autograd.grad(pieces.sum(), (q, k, v)), grads, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("name", ["gatv2", "cube", "softcap"])
def test_families_of_relations(name):
    q, k, v = tensors()
    family = er.Batch([er.PerHead([er.Causal(), er.Full(), er.Window(1), er.Empty()]), er.Padding(3)])
    expected = er.attend(q, k, v, family, kernel=KERNELS[name][0], backend="reference")
    for backend in able(name):
        out = er.attend(q, k, v, family, kernel=KERNELS[name][0], backend=backend)
        torch.testing.assert_close(out, expected, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("name", ["softcap", "linear"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compiles_into_one_graph(name):
    torch._dynamo.reset()
    kernel = KERNELS[name][0] if name != "softcap" else SoftmaxDot(softcap=2.0, sink=SINK)
    q, k, v = (x.requires_grad_() for x in tensors())

    def f(q, k, v):
        return er.attend(q * 2, k, v, er.Causal(), kernel=kernel).sin().sum()

    compiled = torch.compile(f, fullgraph=True, backend="aot_eager")
    for a, b in zip(*(torch.autograd.grad(g(q, k, v), (q, k, v)) for g in (compiled, f)), strict=True):
        torch.testing.assert_close(a, b)


def test_flex_has_maps_and_toeplitz_biases():
    q, k, v = tensors()
    for name in ("softcap", "gat", "square"):
        out, expected = (
            er.attend(q, k, v, er.Causal(), kernel=KERNELS[name][0], backend=b) for b in ("flex", "reference")
        )
        torch.testing.assert_close(out, expected, atol=1e-6, rtol=1e-6)
    with pytest.raises(BackendError, match="does not have the kernel Additive"):
        er.attend(q, k, v, kernel=KERNELS["gatv2"][0], backend="flex")


# ------------------------------------------------------------- what kernels say of themselves


@pytest.mark.parametrize("name", list(KERNELS))
def test_stated_properties_are_not_refuted(name):
    assert violation(KERNELS[name][0], DIM, heads=HEADS) is None


def test_the_check_refutes_false_statements():
    class Odd(Polynomial):
        positive = True

    class Onesided(Kernel):
        symmetric = True

        def score(self, q, k):
            return q[..., 0]

    assert violation(Polynomial(3), DIM) is None  # it does not call itself positive
    assert "not positive" in (violation(Odd(3), DIM) or "")
    assert "not symmetric" in (violation(Onesided(), DIM) or "")


def test_positive_kernels_are_stochastic_and_signed_ones_are_not():
    q, k, v = tensors(6, 6)
    for name in POSITIVE:
        _, weights = er.attend(q, k, v, er.Causal(), kernel=KERNELS[name][0], return_weights=True)
        mask = torch.ones(6, 6, dtype=torch.bool).tril()
        assert torch.equal(weights > 0, mask.expand_as(weights)), name
        torch.testing.assert_close(weights.sum(-1), torch.ones(2, HEADS, 6, dtype=torch.float64))
    _, weights = er.attend(q, k, v, er.Causal(), kernel=Polynomial(3), return_weights=True)
    assert (weights < 0).any()


def test_a_kernel_of_ones_own():
    class Laplace(Kernel):
        symmetric = True

        def score(self, q, k):
            return -(q - k).abs().sum(-1)

    class Same(Kernel):
        def weight(self, q, k):
            return torch.exp(-(q - k).abs().sum(-1))

    q, k, v = tensors()
    assert Laplace().positive
    assert not Same().positive
    expected = er.attend(q, k, v, er.Window(2), kernel=Laplace(), backend="reference")
    for kernel in (Laplace(), Same()):
        assert er.plan(q, k, v, er.Window(2), kernel=kernel).backend == "gather"
        torch.testing.assert_close(er.attend(q, k, v, er.Window(2), kernel=kernel), expected)
    with pytest.raises(BackendError, match="does not have the kernel Laplace"):
        er.attend(q, k, v, kernel=Laplace(), backend="tiles")
    with pytest.raises(TypeError, match="must define score"):
        type("Nothing", (Kernel,), {})


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: SoftmaxDot(softcap=0.0), ParameterError, "softcap.*positive"),
        (lambda: SoftmaxDot(scale=math.inf), ParameterError, "scale"),
        (lambda: SoftmaxDot(sink=torch.zeros(2, 2)), ShapeError, "sink"),
        (lambda: Additive(activation="relu"), ParameterError, "relu"),
        (lambda: Additive(activation="tanh"), ParameterError, "needs a vector"),
        (lambda: Additive(torch.zeros(1, 1, 1)), ShapeError, "vector"),
        (lambda: Additive(slope=math.nan), ParameterError, "slope"),
        (lambda: Gaussian(0.0), ParameterError, "bandwidth"),
        (lambda: Cosine(-1.0), ParameterError, "temperature"),
        (lambda: Polynomial(0), ParameterError, "degree"),
        (lambda: Polynomial(2.5), ParameterError, "degree"),  # type: ignore[arg-type]
        (lambda: Polynomial(2, math.nan), ParameterError, "offset"),
        (lambda: Linear("relu"), ParameterError, "relu"),
        (lambda: Linear("elu", positive_features=True), ParameterError, "one's own"),
        (lambda: RandomFeatures(0), ParameterError, "at least 1"),
        (lambda: RandomFeatures(2)(torch.zeros(3)), ShapeError, "3 features"),
        (lambda: RandomFeatures(2, scale=-1.0), ParameterError, "scale"),
    ],
)
def test_bad_kernels(make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"kernel": "softmax"}, ParameterError, "erlangen.kernels.*softmax"),
        ({"kernel": Cosine(1.0), "scale": 0.5}, ParameterError, "scale=0.5"),
        ({"kernel": Additive(torch.zeros(2, DIM))}, ShapeError, "4 heads of 3"),
        ({"kernel": SoftmaxDot(sink=torch.zeros(3))}, ShapeError, "3 logits.*4 heads"),
        ({"kernel": Polynomial(3), "return_lse": True}, ParameterError, "not positive"),
        ({"kernel": SoftmaxDot(softcap=1.0), "backend": "sdpa"}, BackendError, "sdpa.*map"),
        ({"kernel": SoftmaxDot(sink=SINK), "backend": "sdpa"}, BackendError, "log-sum-exp"),
        ({"backend": "linear"}, BackendError, "kernel Linear"),
        (
            {"kernel": Linear(), "backend": "linear", "relation": er.Window(1)},
            BackendError,
            "full and the causal",
        ),
    ],
)
def test_bad_calls(options, error, message):
    with pytest.raises(error, match=message):
        er.attend(*tensors(), **options)


def test_layers_take_kernels_and_own_their_parameters():
    sink = torch.nn.Parameter(torch.zeros(2))
    layer = er.Attention(8, num_heads=2, relation=er.Causal(), kernel=SoftmaxDot(sink=sink))
    assert dict(layer.named_parameters())["kernel_sink"] is sink
    x = torch.randn(2, 5, 8)
    layer(x).sum().backward()
    assert sink.grad is not None
    assert (sink.grad != 0).any()
    cache = er.KVCache()
    steps = [layer(x[:, i : i + 1], cache=cache) for i in range(5)]
    torch.testing.assert_close(torch.cat(steps, 1), layer(x))
    with pytest.raises(ParameterError, match="kernel must be"):
        er.Attention(8, kernel="softmax")  # type: ignore[arg-type]


def test_without_the_extension_kernels_run_through_pytorch(monkeypatch):
    planning = sys.modules["erlangen.attention._attend"]
    monkeypatch.setattr(packing, "native", None)
    monkeypatch.setattr(planning, "_said", True)
    q, k, v = tensors()
    clear_cache()
    for name in KERNELS:
        kernel = KERNELS[name][0]
        out = er.attend(q, k, v, er.Window(2), kernel=kernel)
        assert er.plan(q, k, v, er.Window(2), kernel=kernel).backend in ("gather", "sdpa")
        expected = er.attend(q, k, v, er.Window(2), kernel=kernel, backend="reference")
        torch.testing.assert_close(out, expected)
    clear_cache()

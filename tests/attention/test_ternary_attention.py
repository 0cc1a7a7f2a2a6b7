"""Attention over triples: the native kernel and the gathered reference against the dense definition."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from erlangen.attention import attend_triples, packing, ternary_attention, ternary_kernel
from erlangen.attention.ternary_kernel import PackedTriples
from erlangen.errors import BackendError, ParameterError, ShapeError
from erlangen.relations import Causal, Fano, Triples, WindowSquared

TOLERANCE = {torch.float64: 1e-11, torch.float32: 1e-4, torch.bfloat16: 6e-2, torch.float16: 1e-2}


def test_the_kernel_is_built() -> None:
    assert ternary_kernel.refuses(torch.zeros(1)) is None


def dense(q, k1, k2, v1, v2, relation: Triples, scale: float):
    """By definition, over all n^3 triples at once."""
    mask = torch.zeros((relation.n,) * 3, dtype=torch.bool)
    mask[tuple(torch.from_numpy(relation.triples()).T)] = True
    logits = scale * torch.einsum("bhid,bhjd,bhld->bhijl", q, k1, k2)
    powers = torch.where(mask, logits.exp(), 0.0)
    total = powers.sum((-1, -2), keepdim=True)
    weights = powers / torch.where(total == 0, 1.0, total)
    return torch.einsum("bhijl,bhjd,bhld->bhid", weights, v1, v2)


def inputs(relation: Triples, dim: int, value_dim: int, batch: int = 2, heads: int = 2, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    return [
        torch.randn(batch, heads, relation.n, d, generator=generator, dtype=torch.float64)
        .to(dtype)
        .requires_grad_()
        for d in (dim, dim, dim, value_dim, value_dim)
    ]


def random_triples(n: int, count: int, seed: int = 0) -> Triples:
    listed = np.random.default_rng(seed).integers(0, max(n, 1), (count if n else 0, 3))
    return Triples(n, listed[listed[:, 0] != 1])  # query 1 reads nothing


def both(relation: Triples, tensors, scale: float | None = None):
    """Output and gradients of native, reference and definition."""
    grad = torch.randn(
        (*tensors[0].shape[:3], tensors[3].shape[-1]),
        generator=torch.Generator().manual_seed(1),
        dtype=torch.float64,
    ).to(tensors[0].dtype)
    results = []
    for backend in ("native", "reference"):
        out = attend_triples(*tensors, relation, scale=scale, backend=backend)
        results.append((out, *torch.autograd.grad(out, tensors, grad)))
    wide = [x.detach().double().requires_grad_() for x in tensors]
    factor = scale if scale is not None else max(tensors[0].shape[-1], 1) ** -0.5
    out = dense(*wide, relation, factor)
    results.append((out, *torch.autograd.grad(out, wide, grad.double())))
    return results


@settings(max_examples=40)
@given(
    n=st.integers(1, 12),
    count=st.integers(0, 200),
    dim=st.integers(1, 20),
    value_dim=st.integers(1, 20),
    seed=st.integers(0, 100),
)
def test_native_reference_and_definition_agree(n, count, dim, value_dim, seed):
    relation = random_triples(n, count, seed)
    native, reference, wanted = both(relation, inputs(relation, dim, value_dim))
    for a, b, c in zip(native, reference, wanted, strict=True):
        torch.testing.assert_close(a, c, rtol=1e-9, atol=1e-11)
        torch.testing.assert_close(b, c, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("instructions", packing.native.instruction_sets() if packing.native else [])
def test_every_type_and_instruction_set(dtype, instructions):
    before = packing.native.instruction_set()
    relation = random_triples(40, 900)
    try:
        packing.native.choose_instruction_set(instructions)
        native, _, wanted = both(relation, inputs(relation, 19, 33, dtype=dtype))
    finally:
        packing.native.choose_instruction_set(before)
    for a, c in zip(native, wanted, strict=True):
        assert a.dtype == dtype
        torch.testing.assert_close(a.double(), c, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@pytest.mark.parametrize("backend", ["native", "reference"])
def test_a_query_without_a_pair_gives_zero_and_no_gradient(backend):
    relation = Triples(4, [(0, 1, 2), (0, 2, 2), (3, 3, 3)])
    tensors = inputs(relation, 3, 3)
    out = attend_triples(*tensors, relation, backend=backend)
    assert torch.equal(out[:, :, [1, 2]], torch.zeros_like(out[:, :, [1, 2]]))
    gradients = torch.autograd.grad(out[:, :, [1, 2]].sum(), tensors)
    assert all(torch.equal(g, torch.zeros_like(g)) for g in gradients)


@pytest.mark.parametrize(
    ("n", "count", "dim", "value_dim", "batch", "heads"),
    [(0, 0, 3, 3, 1, 1), (3, 0, 2, 2, 1, 1), (3, 9, 0, 2, 1, 1), (3, 9, 2, 0, 1, 1), (3, 9, 2, 2, 0, 1)],
)
def test_empty_sizes(n, count, dim, value_dim, batch, heads):
    relation = random_triples(n, count)
    native, reference, _ = both(relation, inputs(relation, dim, value_dim, batch, heads))
    for a, b in zip(native, reference, strict=True):
        torch.testing.assert_close(a, b)


def test_large_logits_do_not_overflow():
    relation = random_triples(10, 300)
    tensors = [x.detach() * 30 for x in inputs(relation, 8, 8)]
    native = attend_triples(*tensors, relation, backend="native")
    assert torch.isfinite(native).all()
    torch.testing.assert_close(
        native, attend_triples(*tensors, relation, backend="reference"), rtol=1e-8, atol=1e-8
    )


def test_gradcheck():
    relation = random_triples(5, 30)
    assert torch.autograd.gradcheck(
        lambda *x: attend_triples(*x, relation, backend="native"), inputs(relation, 3, 2, 1, 2)
    )


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_opcheck():
    relation = random_triples(9, 80)
    index = PackedTriples(relation).index
    for inside in (False, True):
        tensors = [x.detach().float() for x in inputs(relation, 8, 5)]
        if inside:  # heads within positions in memory
            tensors = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in tensors]
        tensors = [x.requires_grad_() for x in tensors]
        torch.library.opcheck(ternary_kernel.operator, (*tensors, index, None, 0.3))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compiles_into_one_graph():
    torch._dynamo.reset()
    relation = WindowSquared(lookback=2)
    tensors = inputs(relation.on(6), 4, 4)
    compiled = torch.compile(
        lambda *x: attend_triples(*x, relation).sin().sum(), fullgraph=True, backend="aot_eager"
    )
    wanted = torch.autograd.grad(attend_triples(*tensors, relation).sin().sum(), tensors)
    for a, b in zip(torch.autograd.grad(compiled(*tensors), tensors), wanted, strict=True):
        torch.testing.assert_close(a, b)


def test_the_number_of_threads_changes_nothing():
    relation = random_triples(60, 20_000)
    tensors = inputs(relation, 16, 16, dtype=torch.float32)
    grad = torch.randn(2, 2, 60, 16)
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            out = attend_triples(*tensors, relation, backend="native")
            results.append([out, *torch.autograd.grad(out, tensors, grad)])
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_the_triples_are_packed_once_and_live_with_their_graph():
    relation = random_triples(6, 40, seed=77)
    tensors = inputs(relation, 4, 4)
    kept = PackedTriples(relation)
    index, weak = kept.index, weakref.ref(kept)
    assert packing.packed(index) is kept
    out = ternary_kernel.attend(tensors, kept, 1.0)
    del relation, kept
    gc.collect()
    assert all(torch.isfinite(g).all() for g in torch.autograd.grad(out.sum(), tensors))
    del out
    gc.collect()
    assert weak() is None
    again = ternary_kernel.attend(tensors, index, 1.0)  # from the numbers alone, as in another process
    torch.testing.assert_close(again, attend_triples(*tensors, random_triples(6, 40, seed=77), scale=1.0))


@pytest.mark.parametrize("numbers", [[], [0, 3], [packing.TRIPLES, 3, 0, 1], [packing.TRIPLES, 3, 0, 1, 3]])
def test_an_index_that_holds_no_triples_is_refused(numbers):
    tensors = inputs(random_triples(3, 4), 4, 4)
    with pytest.raises(BackendError, match="no packed triples"):
        ternary_kernel.attend(tensors, torch.tensor(numbers, dtype=torch.int64), 1.0)


def test_binding_is_kept():
    assert ternary_attention.packed(WindowSquared(3), 9) is ternary_attention.packed(WindowSquared(3), 9)


def test_what_does_not_fit_is_refused():
    x = torch.zeros(1, 7, 4)
    with pytest.raises(ParameterError, match="takes a ternary relation such as"):
        attend_triples(x, x, x, x, x, Causal())  # pyright: ignore[reportArgumentType]
    with pytest.raises(ParameterError, match="native, reference"):
        attend_triples(x, x, x, x, x, Fano(), backend="sdpa")
    with pytest.raises(ShapeError, match="one shape"):
        attend_triples(x, x[..., :3], x, x, x, Fano())
    with pytest.raises(ShapeError, match="v1 and v2"):
        attend_triples(x, x, x, x, x[..., :3], Fano())
    with pytest.raises(ShapeError, match="floating-point"):
        attend_triples(x, x.double(), x, x, x, Fano())
    with pytest.raises(ShapeError, match="floating-point"):
        attend_triples(*[x.int()] * 5, Fano())
    eighth = x.to(torch.float8_e5m2)
    with pytest.raises(BackendError, match="float8"):
        attend_triples(*[eighth] * 5, Fano(), backend="native")


def test_the_extension_itself_refuses_bad_triples():
    def integers(*values: int) -> np.ndarray:
        return np.array(values, np.int64)

    good = {"n": 2, "indptr": integers(0, 1, 2), "first": integers(0, 1), "second": integers(1, 1)}
    packing.native.Triples(**good)
    for change, message in (
        ({"first": integers(0, 2)}, "out of range"),
        ({"second": integers(-1, 0)}, "out of range"),
        ({"second": integers(0)}, "first and a second"),
        ({"indptr": integers(0, 2)}, "one entry per query"),
        ({"indptr": integers(0, 1, 3)}, "number of triples"),
        ({"indptr": integers(1, 1, 2)}, "from 0"),
        ({"indptr": integers(0, 3, 2)}, "must not decrease"),
        ({"n": -1}, "out of range"),
    ):
        with pytest.raises(ValueError, match=message):
            packing.native.Triples(**(good | change))


def test_the_extension_itself_refuses_bad_tensors():
    index = packing.native.Triples(*(3, np.array([0, 1, 1, 1]), np.array([2]), np.array([0])))
    x, v = torch.randn(2, 4, 3, 8), torch.randn(2, 4, 3, 5)
    good = {
        "q": x,
        "k1": x,
        "k2": x,
        "v1": v,
        "v2": v,
        "out": torch.empty(2, 4, 3, 5),
        "lse": torch.empty(2, 4, 3),
        "stats": torch.empty(2, 4, 3, 2),
    }

    def run(q, k1, k2, v1, v2, out, lse, stats, threads=1):
        packing.native.triples_forward(index, (q, k1, k2, v1, v2), 1.0, threads, (out, lse, stats))

    run(**good)
    for change, message in (
        ({"q": x[0]}, "must have shape"),
        (
            {"q": x[:, :, :2], "k1": x[:, :, :2], "k2": x[:, :, :2], "v1": v[:, :, :2], "v2": v[:, :, :2]},
            "positions",
        ),
        ({"k1": x[:, :, :2]}, "k1: unexpected shape"),
        ({"k2": x.double()}, "k2: dtype"),
        ({"v2": v[..., :4]}, "v2: unexpected shape"),
        ({"q": x.int()}, "float32"),
        ({"k1": x.mT.contiguous().mT}, "contiguous"),
        ({"out": torch.empty(2, 4, 3, 6)}, "out: unexpected shape"),
        ({"lse": torch.empty(2, 4, 3, dtype=torch.float64)}, "lse: must be float32"),
        ({"stats": torch.empty(2, 4, 3)}, "stats: unexpected shape"),
    ):
        with pytest.raises(ValueError, match=message):
            run(**(good | change))
    with pytest.raises(ValueError, match="thread"):
        run(**good, threads=0)

"""`attend` against the formula of attention, query by query, in float64, with gradients."""

from __future__ import annotations

import sys
import warnings
from math import sqrt

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck

import erlangen as er
from erlangen.attention import packing
from erlangen.attention.binding import bind, clear_cache
from erlangen.errors import BackendError, DataError, ErlangenError, ParameterError, ShapeError, SizeError
from erlangen.testing.strategies import relations

BACKENDS = ["reference", "sdpa", "tiles", "edges"]
FORWARD = [*BACKENDS, "flex"]  # FlexAttention does not train on a CPU


def formula(q, k, v, member, scale=None):
    """h_i = sum over N_i of alpha_ij v_j, written from the equation; `member(b, h)` gives the relation."""
    batch, heads, queries, dim = q.shape
    group = heads // k.shape[1]
    scale = 1 / sqrt(dim) if scale is None else scale
    out = torch.zeros(batch, heads, queries, v.shape[-1], dtype=q.dtype)
    weights = torch.zeros(batch, heads, queries, k.shape[2], dtype=q.dtype)
    for b in range(batch):
        for h in range(heads):
            for i, reads in enumerate(torch.from_numpy(member(b, h).on(queries, k.shape[2]).dense())):
                if reads.any():
                    keys, values = k[b, h // group][reads], v[b, h // group][reads]
                    alpha = torch.softmax(keys @ q[b, h, i] * scale, dim=0)
                    out[b, h, i] = alpha @ values
                    weights[b, h, i, reads] = alpha
    return out, weights


def tensors(batch=2, heads=4, kv=2, queries=5, keys=7, dim=3, width=2, seed=0, **kw):
    generator = torch.Generator().manual_seed(seed)
    shapes = [(batch, heads, queries, dim), (batch, kv, keys, dim), (batch, kv, keys, width)]
    return [torch.randn(s, generator=generator, dtype=torch.float64, **kw) for s in shapes]


@pytest.mark.parametrize("backend", FORWARD)
@given(data=st.data())
@settings(max_examples=60)
def test_every_relation_matches_the_formula(backend, data):
    keys = data.draw(st.integers(1, 7))
    queries = data.draw(st.integers(1, keys))
    relation = data.draw(relations(keys))
    q, k, v = tensors(queries=queries, keys=keys)
    out = er.attend(q, k, v, relation, backend=backend)
    expected, _ = formula(q, k, v, lambda b, h: relation)
    torch.testing.assert_close(out, expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("backend", FORWARD)
def test_families_match_the_formula(backend):
    q, k, v = tensors(queries=5, keys=5)
    heads = er.PerHead([er.Causal(), er.Window(1), er.Full(), er.Empty()])
    family = er.Batch([heads, er.Padding(3)])
    out = er.attend(q, k, v, family, backend=backend)
    expected, _ = formula(q, k, v, lambda b, h: heads[h] if b == 0 else er.Padding(3))
    torch.testing.assert_close(out, expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients(backend):
    relation = er.Causal() & ~er.Window(0)  # row 0 is empty
    q, k, v = tensors(batch=1, heads=2, kv=1, queries=4, keys=4)
    for x in (q, k, v):
        x.requires_grad_()
    assert gradcheck(lambda *x: er.attend(*x, relation, backend=backend), (q, k, v))
    out = er.attend(q, k, v, relation, backend=backend)
    grads = torch.autograd.grad(out[:, :, 0].sum(), (q, k, v))
    assert (out[:, :, 0] == 0).all()
    assert all((g == 0).all() for g in grads)


@pytest.mark.parametrize("backend", [None, *BACKENDS])
@pytest.mark.parametrize("keys", [0, 3])
def test_rows_without_keys_are_zero_with_zero_gradient(backend, keys):
    q, k, v = tensors(keys=keys, queries=3, requires_grad=True)
    out = er.attend(q, k, v, er.Empty(), backend=backend)
    assert out.shape == (2, 4, 3, 2)
    assert (out == 0).all()
    out.sum().backward()
    assert all((x.grad == 0).all() for x in (q, k, v))


def test_weights_and_lse():
    relation = er.Causal() - er.Identity()
    q, k, v = tensors(queries=5, keys=5)
    out, weights, lse = er.attend(q, k, v, relation, return_weights=True, return_lse=True)
    expected, alpha = formula(q, k, v, lambda b, h: relation)
    torch.testing.assert_close(weights, alpha, atol=1e-12, rtol=0)
    torch.testing.assert_close(out, expected, atol=1e-12, rtol=0)
    assert (lse[..., 0] == -torch.inf).all()
    scores = q @ k.repeat_interleave(2, 1).mT / sqrt(3)
    mask = torch.from_numpy(relation.on(5).dense())
    expected_lse = scores.masked_fill(~mask, -torch.inf).logsumexp(-1)
    torch.testing.assert_close(lse[..., 1:], expected_lse[..., 1:], atol=1e-12, rtol=0)
    assert torch.equal(weights > 0, mask.expand_as(weights))  # Proposition 1: the support is N_i


def test_data_dependent_relations_are_bound_to_the_data():
    q, k, v = tensors(queries=5, keys=7)
    out, weights = er.attend(q, k, v, er.Nearest(2), return_weights=True)
    scores = q @ k.repeat_interleave(2, 1).mT
    top = torch.zeros_like(scores, dtype=torch.bool).scatter(-1, scores.topk(2).indices, True)
    assert torch.equal(weights > 0, top)
    everything = er.attend(q, k, v, er.Nearest(7))
    torch.testing.assert_close(everything, er.attend(q, k, v, er.Full()), atol=1e-12, rtol=0)
    per_head = er.attend(q, k, v, er.PerHead([er.Nearest(2)] * 4))
    torch.testing.assert_close(per_head, out, atol=1e-12, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_low_precision(dtype):
    q, k, v = tensors(queries=7, keys=7)
    exact, _ = formula(q, k, v, lambda b, h: er.Causal())
    for backend in BACKENDS:
        out = er.attend(*(x.to(dtype) for x in (q, k, v)), er.Causal(), backend=backend)
        assert out.dtype == dtype
        assert (out.double() - exact).abs().max() < 20 * torch.finfo(dtype).eps


def test_leading_dimensions_and_scale():
    q, k, v = (x[0] for x in tensors(queries=4, keys=4))
    single = er.attend(q, k, v, er.Causal(), scale=0.3)
    expected, _ = formula(q[None], k[None], v[None], lambda b, h: er.Causal(), scale=0.3)
    torch.testing.assert_close(single, expected[0], atol=1e-12, rtol=0)
    many = [x.expand(2, 3, *x.shape) for x in (q, k, v)]
    assert er.attend(*many, er.Causal()).shape == (2, 3, *single.shape)


def test_neighborhoods_are_accepted_and_checked():
    q, k, v = tensors(queries=4, keys=4)
    bound = er.Causal().on(4)
    assert torch.equal(er.attend(q, k, v, bound), er.attend(q, k, v, er.Causal()))
    with pytest.raises(SizeError, match="does not fit 4 queries and 4 keys"):
        er.attend(q, k, v, er.Causal().on(3))


def test_dropout_draws_from_the_generator_and_keeps_the_mean():
    q, k, v = tensors(batch=1, heads=1, kv=1, queries=64, keys=64)
    torch.manual_seed(0)
    a = er.attend(q, k, v, er.Causal(), dropout=0.5)
    torch.manual_seed(0)
    b = er.attend(q, k, v, er.Causal(), dropout=0.5)
    c = er.attend(q, k, v, er.Causal(), dropout=0.5)
    assert torch.equal(a, b)
    assert not torch.equal(a, c)
    ones = torch.ones_like(v)
    mean = torch.stack([er.attend(q, k, ones, er.Causal(), dropout=0.5) for _ in range(200)]).mean()
    assert abs(mean - 1) < 0.05


def test_bound_relations_are_cached_and_bounded():
    clear_cache()
    sizes = {"batch": 1, "heads": 1, "queries": 4, "keys": 4}
    assert bind(er.Causal(), **sizes) is bind(er.Causal(), **sizes)
    from erlangen.attention import binding

    for n in range(2 * binding.CACHE_SIZE):
        bind(er.Window(n), **sizes)
    assert binding._kept.cache_info().currsize == binding.CACHE_SIZE


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"q": (5, 3)}, ShapeError, r"\(\.\.\., heads, length, dim\)"),
        ({"q": (2, 3, 5, 3)}, ShapeError, "not a multiple"),
        ({"q": (2, 4, 5, 6)}, ShapeError, "different dimensions"),
        ({"k": (1, 2, 7, 3)}, ShapeError, "do not fit"),
        ({"v": (2, 2, 6, 2)}, ShapeError, "do not fit"),
        ({"relation": er.Documents([3])}, SizeError, r"Documents\(lengths=\(3,\)\) has 3 positions"),
        ({"relation": er.PerHead([er.Full()] * 3)}, ShapeError, "3 heads.*4"),
        ({"relation": er.Batch([er.Full()] * 3)}, ShapeError, "3 batch items.*2"),
        ({"relation": "causal"}, ParameterError, "got 'causal'; write it without quotation marks"),
        ({"dropout": 1.5}, ParameterError, "dropout"),
        ({"backend": "magic"}, BackendError, "magic"),
        ({"relation": er.Causal() @ er.Nearest(2)}, DataError, "depends on the data"),
    ],
)
def test_bad_input(change, error, message):
    q, k, v = tensors()
    made = {"q": q, "k": k, "v": v}
    for name in made:
        if name in change:
            made[name] = torch.zeros(change.pop(name), dtype=torch.float64)
    with pytest.raises(error, match=message) as caught:
        er.attend(made["q"], made["k"], made["v"], **change)
    assert isinstance(caught.value, ErlangenError)


def test_mixed_types_are_refused():
    q, k, v = tensors()
    with pytest.raises(ShapeError, match="one floating-point type"):
        er.attend(q, k.float(), v)
    with pytest.raises(ShapeError, match="one floating-point type"):
        er.attend(q.long(), k.long(), v.long())


def test_sdpa_by_name_never_falls_back():
    q, k, v = tensors()
    with pytest.raises(BackendError, match="no weights"):
        er.attend(q, k, v, backend="sdpa", return_weights=True)


def test_plan_tells_what_attend_does():
    q, k, v = tensors()
    chosen = er.plan(q, k, v, er.Causal(), return_weights=True)
    assert chosen.backend == "reference"
    assert chosen.reason
    assert chosen.cost > 0
    assert er.plan(q, k, v, er.Causal(), backend="sdpa").backend == "sdpa"


def test_flex_block_masks_are_built_once_and_agree():
    q, k, v = (x.float() for x in tensors(queries=150, keys=150, dim=16, width=16))
    relation = er.Window(30) | er.Global(keys=[0]) | er.Random(2, seed=0)
    expected, lse = er.attend(q, k, v, relation, backend="reference", return_lse=True)
    out, flex_lse = er.attend(q, k, v, relation, backend="flex", return_lse=True)
    torch.testing.assert_close(out, expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(flex_lse, lse, atol=1e-5, rtol=0)
    with pytest.raises(BackendError, match="dropout"):
        er.attend(q, k, v, relation, backend="flex", dropout=0.1)
    with pytest.raises(BackendError, match="no backward pass on a CPU"):
        er.attend(q.requires_grad_(), k, v, relation, backend="flex")


def test_lse_from_every_backend_that_has_it():
    q, k, v = tensors(queries=6, keys=6)
    relation = er.Causal() - er.Identity()
    _, expected = er.attend(q, k, v, relation, backend="reference", return_lse=True)
    for backend in ("tiles", "edges", "flex", None):
        _, lse = er.attend(q, k, v, relation, backend=backend, return_lse=True)
        torch.testing.assert_close(lse, expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    "relation", [er.Window(3), er.Documents([3, 5]), er.PerHead([er.Causal(), er.Full()])]
)
@pytest.mark.parametrize("backend", [None, "sdpa", "edges"])
def test_attend_compiles_without_graph_breaks(relation, backend):
    torch._dynamo.reset()
    q, k, v = (torch.randn(2, 2, 8, 4, requires_grad=True) for _ in range(3))

    def f(q, k, v, relation):
        return er.attend(q, k, v, relation, backend=backend) * 2

    compiled = torch.compile(f, fullgraph=True, backend="aot_eager")
    out = compiled(q, k, v, relation)
    expected = f(q, k, v, relation)
    torch.testing.assert_close(out, expected)
    gradients = [torch.autograd.grad(x.square().sum(), (q, k, v)) for x in (out, expected)]
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b)
    other = er.Identity()
    torch.testing.assert_close(compiled(q, k, v, other), f(q, k, v, other))  # a relation is guarded on


def test_plan_prefers_tiles_for_bands_and_edges_for_scattered_pairs():
    x = torch.zeros(1, 1, 512, 8)
    assert er.plan(x, x, x, er.Window(128)).backend == "tiles"
    assert er.plan(x, x, x, er.Full()).backend == "tiles"
    assert er.plan(x, x, x, er.Random(3, seed=0)).backend == "edges"


def test_without_the_extension_attention_runs_through_torch_and_says_so_once(monkeypatch):
    planning = sys.modules["erlangen.attention._attend"]
    q, k, v = tensors()
    expected = er.attend(q, k, v, er.Causal(), backend="reference")
    monkeypatch.setattr(packing, "native", None)
    monkeypatch.setattr(packing, "missing", "no module")
    monkeypatch.setattr(planning, "_said", False)
    with pytest.warns(UserWarning, match="runs through PyTorch.*no module"):
        torch.testing.assert_close(er.attend(q, k, v, er.Causal()), expected, atol=1e-12, rtol=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        er.attend(q, k, v, er.Causal())
    with pytest.raises(BackendError, match="needs the native extension"):
        er.attend(q, k, v, er.Causal(), backend="tiles")


def test_compiled_layers_take_any_length_and_draw_dropout():
    torch._dynamo.reset()
    layer = er.Attention(16, 2, relation=er.Window(3), dropout=0.5)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    for length in (8, 12, 17):
        x = torch.randn(2, length, 16)
        assert not torch.equal(compiled(x), compiled(x))
    layer.eval()
    for length in (8, 12, 17):
        x = torch.randn(2, length, 16)
        torch.testing.assert_close(compiled(x), layer(x))


def test_autocast_computes_in_low_precision():
    q, k, v = (x.float() for x in tensors(queries=6, keys=6))
    expected = er.attend(q, k, v, er.Causal())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = er.attend(q, k, v, er.Causal())
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.float(), expected, atol=0.05, rtol=0)

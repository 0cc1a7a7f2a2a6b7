"""A step of decoding takes a way of its own; it must give what the general way gives."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from erlangen.attention import attend, native, packing
from erlangen.attention.backends import decode
from erlangen.errors import ShapeError
from erlangen.relations import Causal, Full, Global, Window

pytestmark = pytest.mark.skipif(not native.available(), reason="needs the native extension")


def tensors(keys, batch=2, heads=4, kv_heads=2, dim=5, value_dim=3, dtype=torch.float64):
    q = torch.randn(batch, heads, 1, dim, dtype=dtype)
    k = torch.randn(batch, kv_heads, keys + 7, dim, dtype=dtype)[:, :, :keys]
    v = torch.randn(batch, kv_heads, keys + 7, value_dim, dtype=dtype)[:, :, :keys]
    return q, k, v


@given(
    st.sampled_from([Full(), Causal(), Window(0), Window(3), Window(40, 2)]),
    st.integers(0, 30),
    st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
)
def test_it_equals_the_reference(relation, keys, dtype):
    q, k, v = tensors(keys, dtype=dtype)
    out = decode.step(q, k, v, relation, 0.3)
    assert out is not None
    expected = attend(q, k, v, relation, scale=0.3, backend="reference")
    torch.testing.assert_close(out, expected, rtol=2e-2 if dtype == torch.bfloat16 else 1e-5, atol=1e-5)
    assert torch.equal(attend(q, k, v, relation, scale=0.3), out)


@pytest.mark.parametrize(
    "why",
    [
        "several queries",
        "several runs",
        "a gradient is wanted",
        "three dimensions",
        "autocast",
        "strides",
        "signs",
    ],
)
def test_other_calls_are_left_to_the_general_way(why):
    q, k, v = tensors(6, dtype=torch.float32)
    relation = Global([0, 3]) if why == "several runs" else Causal()
    if why == "several queries":
        q = q.expand(-1, -1, 2, -1)
    if why == "a gradient is wanted":
        q.requires_grad_()
    if why == "three dimensions":
        q, k, v = q[0], k[0], v[0]
    if why == "strides":
        k = k.mT.contiguous().mT
    if why == "signs":
        q, k = (torch.complex(x, x)[..., :1].conj().imag for x in (q, k))
        assert q.is_neg()
    with torch.autocast("cpu", enabled=why == "autocast"):
        assert decode.step(q, k, v, relation, None) is None
        out = attend(q, k, v, relation)
        expected = attend(q, k, v, relation, backend="reference")
    torch.testing.assert_close(out.float(), expected, atol=2e-2 if why == "autocast" else 1e-5, rtol=1e-5)


def test_tensors_that_do_not_fit_are_refused_in_words():
    q, k, v = tensors(6)
    with pytest.raises(ShapeError, match="different dimensions"):
        attend(q[..., :4], k, v, Causal())
    with pytest.raises(ShapeError, match="one floating-point type"):
        attend(q.float(), k, v, Causal())


def test_masked_keys_are_not_read():
    q, k, v = tensors(6)
    k, v = k.clone(), v.clone()
    k[:, :, :3] = torch.nan
    v[:, :, :3] = torch.nan
    assert attend(q, k, v, Window(lookback=2)).isfinite().all()


def test_the_maker_of_the_tensors_makes_the_output():
    q, k, v = tensors(6)
    run_forward = packing.native.run_forward
    with torch.inference_mode():
        out = run_forward(q, k, v, 0, 6, None, 1)
    assert type(out) is torch.Tensor
    assert out.is_contiguous()
    assert out.is_inference()
    torch.testing.assert_close(out, attend(q, k, v, Full(), backend="reference"))
    with pytest.raises(ValueError, match="no exchange API"):
        run_forward(*(x.numpy() for x in (q, k, v)), 0, 6, None, 1)
    with pytest.raises(ValueError, match="keys read are not all there"):
        run_forward(q, k, v, 0, 7, None, 1)
    for wrong in (q.to("meta"), "q", None):
        with pytest.raises(TypeError):
            run_forward(wrong, k, v, 0, 6, None, 1)


def test_an_older_torch_makes_the_output_before_the_call(monkeypatch):
    q, k, v = tensors(6)
    expected = decode.step(q, k, v, Window(3), None)
    monkeypatch.setattr(decode, "MAKES_TENSORS", False)
    out = decode.step(q, k, v, Window(3), None)
    assert torch.equal(out, expected)
    given = np.empty((2, 4, 1, 3))
    assert packing.native.run_forward(*(x.numpy() for x in (q, k, v)), 2, 6, None, 1, given) is None
    assert np.array_equal(given, expected.numpy())
    with pytest.raises(ValueError, match="out: unexpected shape"):
        packing.native.run_forward(q, k, v, 2, 6, None, 1, torch.empty(2, 4, 1, 4, dtype=q.dtype))

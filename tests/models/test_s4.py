"""S4: both modes are one map, the kernel is the discretised state space, and nothing in it is attention."""

from __future__ import annotations

import cmath

import pytest
import torch

import erlangen as er
from erlangen.errors import ParameterError, ShapeError
from erlangen.models.s4 import S4, S4Layer


def random(*shape):
    return torch.randn(*shape, dtype=torch.float64)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


@pytest.mark.parametrize("n", [1, 2, 17, 256])
@pytest.mark.parametrize(("width", "state"), [(1, 1), (3, 16), (8, 32)])
def test_recurrence_equals_convolution(n, width, state):
    layer = S4Layer(width, state).double()
    u = random(2, n, width)
    assert (layer(u) - layer.scan(u)).abs().max() < 1e-10


def test_gradients_of_both_modes_are_equal():
    layer = S4Layer(3, 4).double()
    u, goal = random(2, 20, 3), random(2, 20, 3)
    grads = []
    for mode in (layer, layer.scan):
        grads.append(torch.autograd.grad((mode(u) * goal).sum(), list(layer.parameters())))
    for a, b in zip(*grads, strict=True):
        assert torch.allclose(a, b, rtol=1e-9, atol=1e-9)


def test_the_recurrence_is_the_sampled_differential_equation():
    """An input that is constant between samples, integrated in closed form, one number at a time."""
    layer = S4Layer(1, 3).double().requires_grad_(False)
    u = random(6, 1)
    step = float(layer.log_step.exp().item())
    modes = []
    for s in range(3):
        a = complex(-float(layer.log_decay[0, s].exp()), float(layer.frequency[0, s]))
        modes.append((a, complex(*layer.C[0, s].tolist())))
    states = [0j] * 3
    for i in range(6):
        value = float(u[i, 0])
        # x(t + h) of x' = a x + u, u constant
        states = [
            cmath.exp(step * a) * x + value * (cmath.exp(step * a) - 1) / a
            for (a, _), x in zip(modes, states, strict=True)
        ]
        y = sum((2 * c * x).real for (_, c), x in zip(modes, states, strict=True)) + float(layer.D) * value
        assert abs(y - layer.scan(u)[i, 0].item()) < 1e-12


def test_the_start_is_s4d_lin():
    layer = S4Layer(2, 5)
    assert torch.allclose(layer.log_decay.exp(), torch.tensor(0.5))
    assert torch.allclose(layer.frequency, torch.pi * torch.arange(5.0).expand(2, 5))
    steps = layer.log_step.exp()
    assert ((steps >= 1e-3) & (steps <= 1e-1)).all()


def test_a_wrong_kernel_is_noticed(monkeypatch):
    layer = S4Layer(2, 4).double()
    u = random(2, 12, 2)
    right = S4Layer.kernel
    monkeypatch.setattr(S4Layer, "kernel", lambda self, n: right(self, n).roll(1, -1))
    assert (layer(u) - layer.scan(u)).abs().max() > 1e-4


def test_steps_continue_where_a_scan_ended():
    layer = S4Layer(2, 4).double()
    u = random(3, 10, 2)
    whole, state = layer.scan(u), None
    for i in range(10):
        y, state = layer.step(u[:, i], state)
        assert torch.allclose(y, whole[:, i])
    assert state is not None
    assert state.shape == (3, 2, 4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_audit_says_no_attention_and_a_total_order(dtype):
    """A Fourier transform moves every output by rounding, in either precision: that is no dependence."""
    model = S4(S4.Config(features=2, outputs=2, layers=2, width=4, state=4)).to(dtype)
    report = er.audit.audit(model, torch.randn(2, 8, 2, dtype=dtype), er.Causal())
    assert report.verdict == "holds"
    assert report.without_attention == "no attention; flow: total order"
    assert "no attention; flow: total order" in str(report)
    told = report.to_json()
    assert (told["coverage"]["calls"], told["flow"]["bias"]) == (0, "total-order")
    assert told["warnings"][0] == "no attention; flow: total order"


def test_the_weights_are_signed_so_no_softmax_gives_them():
    kernel = S4Layer(4).double().kernel(100)
    assert (kernel < 0).any()
    assert (kernel > 0).any()


def test_save_and_load(tmp_path):
    model = S4(S4.Config(features=1, outputs=1, layers=1, width=4, state=3)).eval()
    model.save(tmp_path / "s4.safetensors")
    again = S4.load(tmp_path / "s4.safetensors").eval()
    u = torch.randn(2, 9, 1)
    assert again.config == model.config
    assert torch.equal(again(u), model(u))


def test_bad_input_is_refused():
    model = S4(S4.Config(features=1, outputs=1, layers=1, width=4))
    with pytest.raises(ShapeError, match=r"S4 takes \(n, 1\)"):
        model(torch.randn(5, 2))
    with pytest.raises(ShapeError, match="n >= 1"):
        model(torch.randn(2, 0, 1))
    with pytest.raises(ShapeError, match=r"S4Layer takes \(..., n, 4\)"):
        S4Layer(4)(torch.randn(5, 3))
    with pytest.raises(ParameterError, match='"convolution" or "recurrence"'):
        model(torch.randn(5, 1), mode="fast")
    with pytest.raises(ParameterError, match=r"S4.Config\(state\)"):
        S4.Config(features=1, outputs=1, layers=1, width=4, state=0)

"""An audit leaves no trace: not in the model, not in the process, not after an exception."""

import sys

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import erlangen as er
from audit_models import stack, vectors
from erlangen.audit import audit, flow
from erlangen.audit.capture.session import Session
from erlangen.audit.inputs import Inputs
from erlangen.audit.state import Snapshot
from erlangen.errors import DataError, ParameterError


def hooks(model):
    return sum(
        len(value)
        for module in model.modules()
        for name, value in vars(module).items()
        if "hooks" in name and hasattr(value, "__len__")
    )


def functions():
    """Every module-level function of the process, by place."""
    return {
        (module_name, name): id(value)
        for module_name, module in list(sys.modules.items())
        if module_name.startswith(("torch.nn", "torch_geometric", "transformers"))
        for name, value in list(vars(module).items())
        if callable(value)
    }


class Noisy(nn.Module):
    """Has everything that could be disturbed: dropout, running statistics, gradients, modes that differ."""

    def __init__(self):
        super().__init__()
        self.stack = stack([[er.Causal()]], 6, "softmax_module")
        self.norm = nn.BatchNorm1d(6)
        self.fail_at, self.calls = None, 0

    def forward(self, x):
        self.calls += 1
        if self.fail_at is not None and self.calls >= self.fail_at:
            raise ValueError("broken on purpose")
        return F.dropout(self.norm(self.stack(x)), 0.5, self.training)


def noisy():
    model = Noisy()
    model.train()
    model.stack.eval()
    model(vectors(6)).sum().backward()
    model.calls = 0
    return model


def test_outputs_modes_buffers_gradients_and_random_states():
    model = noisy()
    x = vectors(6)
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    modes = [module.training for module in model.modules()]
    torch.manual_seed(5)
    state, before_hooks, before_functions = torch.get_rng_state(), hooks(model), functions()
    report = audit(model, x, er.Causal())
    assert report.unchanged
    assert torch.equal(torch.get_rng_state(), state)
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(buffers[name], buffer) for name, buffer in model.named_buffers())
    assert all(torch.equal(gradients[n], p.grad) for n, p in model.named_parameters() if p.grad is not None)
    assert hooks(model) == before_hooks == 0
    assert functions() == before_functions


@pytest.mark.parametrize("fail_at", [1, 2, 3, 5, 8, 11])
def test_everything_is_put_back_after_an_exception(fail_at):
    model = noisy()
    model.fail_at = fail_at
    modes, state, before = [m.training for m in model.modules()], torch.get_rng_state(), functions()
    with pytest.raises((ValueError, DataError), match="broken on purpose"):
        audit(model, vectors(6), er.Causal())
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), state)
    assert hooks(model) == 0
    assert functions() == before
    assert Snapshot(model).differences() == []


def test_an_exception_inside_a_layer_under_observation():
    class Fails(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(16, 4)

        def forward(self, x):
            return self.inner(x[..., :3])

    model = Fails()
    session = Session(model, lambda call: None)
    with pytest.raises(RuntimeError), session:
        model(vectors(6))
    assert hooks(model) == 0
    assert session.frames.stack == []


def test_a_session_changes_no_bit_and_consumes_no_randomness():
    model = stack([[er.Causal(), er.Full()]] * 2, 6, "softmax_module").train()
    x = vectors(6)
    torch.manual_seed(0)
    plain, state = model(x), torch.get_rng_state()
    torch.manual_seed(0)
    seen = []
    with Session(model, seen.append):
        observed = model(x)
    assert torch.equal(plain, observed)
    assert torch.equal(torch.get_rng_state(), state)
    assert len(seen) == 2


def test_a_probe_that_fails_is_unexplained_and_the_model_runs_on():
    def fail(call):
        raise RuntimeError("no probe")

    model = stack([[er.Causal()]], 6)
    session = Session(model, fail)
    with session:
        out = model(vectors(6))
    assert out.shape == (2, 6, 16)
    assert [(one.module, one.reason) for one in session.unexplained] == [
        ("layers.0.attention", "RuntimeError: no probe")
    ]


def test_the_checks_reject():
    model = nn.BatchNorm1d(4)
    snapshot = Snapshot(model)
    model.weight.grad = torch.ones(4)
    model(torch.randn(3, 4))
    model.eval()
    model.register_forward_hook(lambda *args: None)
    with torch.no_grad():
        model.bias.add_(1)
    assert len(snapshot.differences()) == 5


def test_bad_inputs_are_refused_before_any_work():
    with pytest.raises(ParameterError, match=r"torch\.nn\.Module, got str"):
        audit("model", vectors(4))
    with pytest.raises(DataError, match="empty list"):
        audit(nn.Linear(2, 2), [])
    with pytest.raises(DataError, match="got int"):
        audit(nn.Linear(2, 2), 3)
    with pytest.raises(ParameterError, match="expect must be"):
        audit(nn.Linear(2, 2), vectors(4), "causal")
    with pytest.raises(DataError, match="does not run on these inputs"):
        audit(nn.Linear(3, 2), vectors(4))
    with pytest.raises(ParameterError, match="which it cannot be"):
        audit(stack([[er.Causal()]], 4), vectors(4), er.Documents([9]), flow=False)


def test_flow_alone_also_puts_everything_back():
    model = noisy()
    state, modes = torch.get_rng_state(), [m.training for m in model.modules()]
    flow(model, Inputs.of(vectors(6)))
    assert torch.equal(torch.get_rng_state(), state)
    assert [m.training for m in model.modules()] == modes

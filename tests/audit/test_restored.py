"""An audit leaves no trace: not in the model, not in the process, not after an exception."""

import sys
from collections import deque
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import erlangen as er
from audit_models import stack, vectors
from erlangen.audit import audit, flow
from erlangen.audit.capture.session import Session
from erlangen.audit.holding import holdings
from erlangen.audit.inputs import Inputs
from erlangen.audit.state import Snapshot, untouched
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


RUNS = []


class Noisy(nn.Module):
    """Has everything that could be disturbed: dropout, running statistics, gradients, modes that differ."""

    def __init__(self):
        super().__init__()
        self.stack = stack([[er.Causal()]], 6, "softmax_module")
        self.norm = nn.BatchNorm1d(6)
        self.fail_at = None

    def forward(self, x):
        RUNS.append(1)  # a counter of the model's own would be put back after every run
        if self.fail_at is not None and len(RUNS) >= self.fail_at:
            raise ValueError("broken on purpose")
        return F.dropout(self.norm(self.stack(x)), 0.5, self.training)


def noisy():
    model = Noisy()
    model.train()
    model.stack.eval()
    model(vectors(6)).sum().backward()
    RUNS.clear()
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
    try:
        told = str(audit(model, vectors(6), er.Causal()))
    except DataError as error:  # what a later run was to show is open, or not tried
        told = str(error)
    assert "broken on purpose" in told
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


# ------------------------------------------------------------------------- what a forward pass may change


class Changing(nn.Module):
    """Attention whose forward pass also does something to the model."""

    shared: ClassVar[list] = []

    def __init__(self, change):
        super().__init__()
        self.change = change
        self.linear = nn.Linear(16, 16)
        self.tied = nn.ModuleList([self.linear, nn.Linear(16, 16)])
        self.tied[1].weight = self.linear.weight
        self.register_buffer("empty", None)
        self.register_buffer("steps", torch.zeros(2))
        self.cache, self.table, self.calls = [], {"seen": {1}}, 0
        self.queue = deque([1, 2], maxlen=2)
        self.kept = [torch.zeros(3), np.zeros(2)]
        self.cached = SimpleNamespace(keys=[], size=0)
        self.own_random = torch.Generator().manual_seed(1)

    def forward(self, x):
        self.change(self, x)
        scores = x @ x.transpose(1, 2)
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
        return torch.softmax(scores.masked_fill(~mask, -torch.inf), -1) @ x


def replace_parameter(model, x):
    model.linear.weight = nn.Parameter(model.linear.weight + 1)


def register_lazily(model, x):
    if not hasattr(model, "cos_cached"):
        model.register_buffer("cos_cached", torch.ones(x.shape[1]), persistent=False)
        model.register_parameter("late", nn.Parameter(torch.ones(2)))
        model.add_module("part", nn.Linear(2, 2))


def fill_the_objects(model, x):
    model.cached.keys.append(x)
    model.cached.size += 1


def draw(model, x):
    torch.rand(3, generator=model.own_random)


def count_in_the_class(model, x):
    type(model).shared.append(1)
    type(model).runs = getattr(type(model), "runs", 0) + 1


CHANGES = {
    "data": lambda model, x: model.linear.weight.data.add_(1),
    "data of a buffer": lambda model, x: model.steps.data.add_(1),
    "in place": lambda model, x: model.linear.bias.detach().add_(1),
    "other memory": lambda model, x: setattr(model.linear.bias, "data", torch.ones(16)),
    "other type": lambda model, x: model.linear.half(),
    "replaced parameter": replace_parameter,
    "removed parameter": lambda model, x: setattr(model.linear, "bias", None),
    "untied": lambda model, x: setattr(model.tied[1], "weight", nn.Parameter(torch.ones(16, 16))),
    "frozen": lambda model, x: model.requires_grad_(False),
    "gradient": lambda model, x: setattr(model.linear.weight, "grad", torch.ones(16, 16)),
    "filled buffer": lambda model, x: setattr(model, "empty", torch.ones(3)),
    "registered": register_lazily,
    "replaced module": lambda model, x: setattr(model, "linear", nn.Linear(16, 16)),
    "module order": lambda model, x: model._modules.update(linear=model._modules.pop("linear")),
    "list": lambda model, x: model.cache.append(x),
    "new list": lambda model, x: setattr(model, "cache", [*model.cache, x]),
    "nested set": lambda model, x: model.table["seen"].add(len(model.table["seen"]) + 1),
    "dict": lambda model, x: model.table.update({len(model.table): x}),
    "deque": lambda model, x: model.queue.append(3),
    "counter": lambda model, x: setattr(model, "calls", model.calls + 1),
    "new attribute": lambda model, x: setattr(model, "last", x),
    "removed attribute": lambda model, x: model.__dict__.pop("calls", None),
    "tensor in a list": lambda model, x: model.kept[0].add_(1),
    "array in a list": lambda model, x: np.add(model.kept[1], 1, out=model.kept[1]),
    "object": fill_the_objects,
    "generator": draw,
    "class": count_in_the_class,
    "hook": lambda model, x: model.linear.register_forward_hook(lambda *args: None),
    "mode": lambda model, x: model.linear.train(not model.linear.training),
}


def photograph(model):
    """What a model looks like, written from the definition: names, contents and identities."""
    tensors = [*model.named_parameters(remove_duplicate=False), *model.named_buffers()]
    return (
        [(name, id(t), t.dtype, t.requires_grad, id(t.grad)) for name, t in tensors],
        [t.detach().numpy().tobytes() for _, t in tensors],
        [(name, id(m), m.training, sorted(vars(m))) for name, m in model.named_modules()],
        [model.cache[:], id(model.cache), list(model.table), list(model.table["seen"])],
        [getattr(model, "calls", None), list(model.queue), model.kept[0].tolist(), model.kept[1].tolist()],
        [len(model.cached.keys), model.cached.size, model.own_random.get_state().tolist()],
        [list(type(model).shared), getattr(type(model), "runs", None), hooks(model)],
        [name for name, buffer in model._buffers.items() if buffer is None],
    )


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_a_forward_pass_changes_is_put_back(change):
    model = Changing(CHANGES[change])
    before = photograph(model)
    report = audit(model, vectors(5), er.Causal(), flow=False, variants=False)
    assert photograph(model) == before
    assert report.unchanged
    assert report.contradictions == []


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_is_seen_until_it_is_put_back(change):
    model = Changing(CHANGES[change])
    before, snapshot = photograph(model), Snapshot(model)
    assert snapshot.differences() == []
    with torch.no_grad():
        model(vectors(5))
    assert snapshot.differences()
    assert photograph(model) != before
    snapshot.restore()
    assert snapshot.differences() == []
    assert photograph(model) == before


@pytest.mark.parametrize("change", [name for name in CHANGES if name != "mode"])
def test_the_state_is_put_back_between_runs_but_not_the_mode(change):
    model = Changing(CHANGES[change]).eval()
    before = photograph(model)
    with untouched(model) as snapshot:
        for _ in range(3):
            model(vectors(5))
            snapshot.restore_state()
            assert photograph(model) == before
        model.train()
        snapshot.restore_state()
        assert model.training
    assert photograph(model) == before


def test_a_cache_that_grows_gives_the_same_run_every_time():
    class Cached(nn.Module):
        def __init__(self):
            super().__init__()
            self.seen = []

        def forward(self, x):
            self.seen.append(x)
            keys = torch.cat(self.seen, 1)
            return F.scaled_dot_product_attention(x, keys, keys.cumsum(1))

    model = Cached()
    with untouched(model) as snapshot:
        runs = []
        for _ in range(3):
            runs.append(model(vectors(4)))
            snapshot.restore_state()
        assert all(torch.equal(run, runs[0]) for run in runs)
        model(vectors(4))
        assert not torch.equal(model(vectors(4)), runs[0])
    assert model.seen == []


def test_the_checks_reject():
    model = nn.BatchNorm1d(4)
    snapshot = Snapshot(model)
    model.weight.grad = torch.ones(4)
    model(torch.randn(3, 4))
    model.eval()
    model.register_forward_hook(lambda *args: None)
    with torch.no_grad():
        model.bias.add_(1)
    told = {text.partition(" ")[0].partition("[")[0] for text in snapshot.differences()}
    statistics = {"running_mean", "running_var", "num_batches_tracked"}
    assert told == {"training", "weight", "bias", "_forward_hooks"} | statistics


def test_what_cannot_be_put_back_is_said(monkeypatch):
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    monkeypatch.setattr(holdings, "LARGE", 100)
    snapshot = Snapshot(model)
    with torch.no_grad():
        model[0].weight.data.add_(1)  # 64 bytes: too large beside the others
        model[1].running_mean.add_(1)
    snapshot.restore()
    assert snapshot.differences() == ["0.weight is not as it was, and is too large to have been copied"]
    assert model[1].running_mean.tolist() == [0] * 4


def test_a_large_model_that_was_left_alone_is_unchanged(monkeypatch):
    monkeypatch.setattr(holdings, "LARGE", 0)
    model = stack([[er.Causal()]], 6).eval()
    with untouched(model) as outer, untouched(model) as inner:
        model(vectors(6))
    assert outer.differences() == inner.differences() == []


def test_an_iterator_is_said_to_be_unknown():
    model = nn.Linear(2, 2)
    model.batches = iter([1, 2, 3])
    assert [text.partition(" ")[0] for text in Snapshot(model).differences()] == ["batches"]


def test_modules_of_other_kinds():
    """Lazy modules, parametrizations, slots, compiled wrappers, scripts: audited and left as they were."""

    class Slotted(nn.Module):
        __slots__ = ("count",)

        def forward(self, x):
            self.count = getattr(self, "count", 0) + 1
            return x

    class Scripted(nn.Module):
        def __init__(self):
            super().__init__()
            self.calls: int = 0
            self.register_buffer("steps", torch.zeros(1))

        def forward(self, x):
            self.calls += 1
            self.steps += 1
            return x

    lazy, slotted, script = nn.LazyLinear(16), Slotted(), torch.jit.script(Scripted())
    normed = nn.utils.parametrizations.spectral_norm(nn.Linear(16, 16))
    compiled = torch.compile(nn.Linear(16, 16), backend="eager")
    model = nn.Sequential(lazy, slotted, script, normed, compiled, stack([[er.Causal()]], 5))
    vector = normed.parametrizations.weight[0]._u.clone()
    attributes = sorted(vars(lazy))
    report = audit(model, vectors(5), er.Causal())
    assert report.unchanged, report.contradictions
    assert isinstance(lazy, nn.LazyLinear)
    assert lazy.has_uninitialized_params()
    assert sorted(vars(lazy)) == attributes
    assert not hasattr(slotted, "count")
    assert (script.calls, script.steps.item()) == (0, 0)
    assert torch.equal(normed.parametrizations.weight[0]._u, vector)
    with torch.no_grad():
        model(vectors(5))
    assert type(lazy) is nn.Linear
    assert slotted.count == 1


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

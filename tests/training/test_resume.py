"""Resuming: what an honest run saved goes on exactly; any other file is refused before a step, in words."""

from __future__ import annotations

import copy
import json

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from erlangen.errors import DataError, ParameterError
from erlangen.training import Run, Verdict, train
from erlangen.training import checkpoint as checkpoints

STEPS = 6


class Stop(Exception):
    pass


class Net(nn.Module):
    """Weights of every kind: used, tied, of half precision, frozen, never reached, reached late; a buffer."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 3)
        self.tied = self.second.weight
        self.rough = nn.Parameter(torch.ones(3, dtype=torch.bfloat16))
        self.frozen = nn.Parameter(torch.ones(2), requires_grad=False)
        self.apart = nn.Parameter(torch.ones(2))
        self.late = nn.Parameter(torch.ones(3))
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x, step):
        y = self.norm(self.second(self.first(x).tanh()) * self.rough.float())
        return y * self.late if step >= 3 else y


def run(make=torch.optim.AdamW, rule=None, **options) -> Run:
    torch.manual_seed(0)
    model = Net()
    optimizer = make(model.parameters(), lr=0.1, **options)
    evaluate = {} if rule is None else {"evaluate": lambda model: {"x": 1.0}, "every": 1, "rule": rule}
    return Run(
        model,
        optimizer,
        lambda step: 0.1 / (1 + step),
        lambda step: (torch.arange(15.0).reshape(5, 3).sin() + step, step),
        lambda model, batch: (model(*batch) - 1).square().mean(),
        steps=STEPS,
        **evaluate,
    )


def saved(path, given: Run, step: int = 4):
    """Train until so many steps are saved; the tensors and facts of the file."""

    if step < STEPS:
        given = copy.copy(given)
        batch = given.batch

        def stopping(at):
            if at == step:
                raise Stop
            return batch(at)

        object.__setattr__(given, "batch", stopping)
        with pytest.raises(Stop):
            train(given, path, save_seconds=0)
    else:
        train(given, path, save_seconds=0)
    return checkpoints.load(path)


def written(path, tensors, facts):
    save_file(
        {name: tensor.contiguous().clone() for name, tensor in tensors.items()},
        path,
        metadata={"kind": checkpoints.KIND, "facts": json.dumps(facts)},
    )
    return path


def refused(path, given: Run, *says: str) -> None:
    """Refused before a step, with the words; neither the file nor the run is changed."""
    before, weights = path.read_bytes(), copy.deepcopy(given.model.state_dict())
    object.__setattr__(given, "batch", lambda step: pytest.fail("a step was taken"))
    with pytest.raises(DataError) as caught:
        train(given, path, resume=True)
    for words in says:
        assert words in str(caught.value)
    assert path.read_bytes() == before
    assert all(map(torch.equal, weights.values(), given.model.state_dict().values()))


class Finer(torch.optim.Optimizer):
    """Someone's own: attributes of its own, and states finer than their weights, with plain numbers."""

    def __init__(self, weights, lr):
        super().__init__(weights, {"lr": lr})
        self.share = 0.5

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    state = self.state[weight]
                    state.setdefault("mean", torch.zeros(weight.shape, dtype=torch.float64))
                    state["count"] = state.get("count", 0) + 1
                    state["mean"].lerp_(weight.grad.double(), self.share / state["count"])
                    weight.sub_((group["lr"] * state["mean"]).to(weight.dtype))


def in_groups(parameters, lr):
    weights = list(parameters)
    return torch.optim.AdamW([{"params": weights[:2], "weight_decay": 0.5}, {"params": weights[2:]}], lr=lr)


def scheduled(parameters, lr):
    """A scheduler of torch wraps `step` of the optimizer that it is given."""
    optimizer = torch.optim.SGD(parameters, lr=lr, momentum=0.9)
    torch.optim.lr_scheduler.StepLR(optimizer, 1)
    return optimizer


def hooked(parameters, lr):
    optimizer = torch.optim.Adam(parameters, lr=lr)
    optimizer.taken = 0
    optimizer.register_step_post_hook(lambda *_: setattr(optimizer, "taken", optimizer.taken + 1))
    return optimizer


OPTIMIZERS = {
    "AdamW": torch.optim.AdamW,
    "fused": lambda weights, lr: torch.optim.AdamW(weights, lr=lr, fused=True),
    "amsgrad": lambda weights, lr: torch.optim.Adam(weights, lr=lr, amsgrad=True),
    "SGD": torch.optim.SGD,
    "momentum": lambda weights, lr: torch.optim.SGD(weights, lr=lr, momentum=0.9),
    **{
        name: getattr(torch.optim, name)
        for name in ("Adagrad", "Adadelta", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Adafactor")
        if hasattr(torch.optim, name)
    },
    "Rprop": torch.optim.Rprop,
    "groups": in_groups,
    "scheduled": scheduled,
    "hooked": hooked,
    "finer": Finer,
}  # fmt: skip


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("step", [1, 2, 4, STEPS])
def test_honest_runs_resume_exactly_with_any_optimizer(tmp_path, name, step):
    whole = run(OPTIMIZERS[name])
    expected = train(whole).losses
    saved(tmp_path / "a.safetensors", run(OPTIMIZERS[name]), step)
    again = run(OPTIMIZERS[name])
    assert train(again, tmp_path / "a.safetensors", resume=True).losses == expected
    assert all(map(torch.equal, whole.model.state_dict().values(), again.model.state_dict().values()))
    if name == "hooked":
        assert again.optimizer.taken == STEPS - step


def test_a_checkpoint_without_a_step_is_one_without_a_state(tmp_path):
    path, fresh = tmp_path / "a.safetensors", run()
    tensors, facts = saved(path, run())
    bare = {name: tensor for name, tensor in tensors.items() if name.startswith("model.")}
    bare = checkpoints.prefixed("model", fresh.model.state_dict()) | {
        "history.losses": tensors["history.losses"][:0]
    }
    facts["optimizer"]["untouched"] = list(range(9))
    bare = {name: tensor.clone() for name, tensor in bare.items()}
    written(path, bare, facts)
    assert train(fresh, path, resume=True).losses == train(run()).losses
    written(path, tensors | {"history.losses": tensors["history.losses"][:0]}, facts)
    refused(path, run(), "there and absent here")


def sgd(weights, lr):
    return torch.optim.SGD(weights, lr=lr, momentum=0.9)


OTHER = [
    torch.bool,
    torch.uint8,
    torch.int64,
    torch.float16,
    torch.float64,
    torch.complex64,
    torch.float8_e5m2,
]


@pytest.mark.parametrize("make", [torch.optim.AdamW, sgd, torch.optim.Adagrad])
def test_tensors_that_the_run_would_not_have_written_are_refused(tmp_path, make):
    """Each of the tensors of a file lost, of another type, of another shape, or under another name."""
    path = tmp_path / "a.safetensors"
    tensors, facts = saved(path, run(make, rule=lambda seen: Verdict(keep=len(seen) == 2)))
    given = lambda: run(make, rule=lambda seen: Verdict(keep=len(seen) == 2))  # noqa: E731
    assert {name.partition(".")[0] for name in tensors} == {"model", "best", "optimizer", "history"}
    for name, tensor in tensors.items():
        rest = {other: value for other, value in tensors.items() if other != name}
        changed = [rest, rest | {f"{name}.x": tensor}, tensors | {f"{name}.x": tensor}]
        changed += [
            rest | {name: torch.zeros(tensor.shape, dtype=kind)} for kind in OTHER if kind != tensor.dtype
        ]
        changed += [rest | {name: tensor[None]}, rest | {name: tensor[..., None]}]
        changed += [rest | {name: tensor.reshape(-1)[0]}] * bool(tensor.dim())
        if name == "history.losses":
            changed.pop(3)  # without the losses of the last step: another number of steps
        for other in changed:
            refused(written(path, other, facts), given(), str(path))
    for prefix in ("optimizer", "best", "model", "history", "optimizer.1."):
        rest = {name: value for name, value in tensors.items() if not name.startswith(prefix)}
        refused(written(path, rest, facts), given())
    junk = tensors | {
        "junk": torch.ones(1),
        "optimizer.99.exp_avg": torch.ones(1),
        "optimizer.00.x": torch.ones(1),
    }
    refused(written(path, junk, facts), given(), "junk is float32 (1,) there and absent here")
    written(path, tensors, facts)
    assert train(given(), path, resume=True).losses == train(given()).losses


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_settings_of_the_optimizer_other_than_those_of_the_run_are_refused(tmp_path, name):
    path = tmp_path / "a.safetensors"
    tensors, facts = saved(path, run(OPTIMIZERS[name]))
    expected = train(run(OPTIMIZERS[name])).losses
    for number, group in enumerate(facts["optimizer"]["groups"]):
        for key, value in group.items():
            for other in ("lost", None, not value, -1, [value], "0"):
                changed = copy.deepcopy(facts)
                changed["optimizer"]["groups"][number][key] = other
                if other == "lost":
                    del changed["optimizer"]["groups"][number][key]
                written(path, tensors, changed)
                if key == "lr":  # the schedule sets it, whatever the file says
                    assert train(run(OPTIMIZERS[name]), path, resume=True).losses == expected
                elif other != value:
                    refused(path, run(OPTIMIZERS[name]), f"{key} of ")
    for groups in ([], facts["optimizer"]["groups"] * 2, None, {}, "", [None]):
        changed = facts | {"optimizer": facts["optimizer"] | {"groups": groups}}
        refused(written(path, tensors, changed), run(OPTIMIZERS[name]))


def test_settings_that_were_changed_in_the_code_are_named(tmp_path):
    path = tmp_path / "a.safetensors"
    saved(path, run(weight_decay=0.0))
    refused(path, run(weight_decay=5.0), "weight_decay of the optimizer is 0.0 there and 5.0 here")
    refused(path, run(torch.optim.SGD), "betas of the optimizer is [0.9, 0.999] there and absent here")
    saved(tmp_path / "b.safetensors", run(in_groups))
    refused(tmp_path / "b.safetensors", run(), "of group 1 of the optimizer is", "there and absent here")


@pytest.mark.parametrize(
    ("part", "name", "values"),
    [
        ("history", "seconds", [None, "1", [], float("nan"), float("inf"), -1, True]),
        ("history", "stopped", [None, 0, 1, "", [], True]),
        ("history", "evaluations", [None, {}, "", 3, [1], [{}], [[]], [{"x": 1.0}], []]),
        ("optimizer", "plain", [None, [], {"0": {"step": 3}}, {"x": {"y": 1}}, {"99": {"step": 3}}]),
        ("optimizer", "untouched", [None, 3, [0], [[]], [{}], list(range(9)), [9, "a"]]),
    ],
)  # fmt: skip
def test_facts_that_the_run_would_not_have_written_are_refused(tmp_path, part, name, values):
    rule = lambda seen: Verdict(keep=len(seen) == 2)  # noqa: E731
    path = tmp_path / "a.safetensors"
    tensors, facts = saved(path, run(rule=rule))
    for value in values:
        changed = facts | {part: facts[part] | {name: value}}
        refused(written(path, tensors, changed), run(rule=rule), str(path))
        lost = {key: value for key, value in facts[part].items() if key != name}
        refused(written(path, tensors, facts | {part: lost}), run(rule=rule), str(path))


def test_a_run_that_its_rule_has_ended_is_not_one_that_goes_on(tmp_path):
    path = tmp_path / "a.safetensors"
    stopping = lambda seen: Verdict(keep=False, stop=len(seen) == 3)  # noqa: E731
    history = train(run(rule=stopping), path)
    assert (history.step, history.stopped) == (3, True)
    assert train(run(rule=stopping), path, resume=True).step == 3
    tensors, facts = checkpoints.load(path)
    facts["history"]["stopped"] = False
    refused(
        written(path, tensors, facts), run(rule=stopping), "stopped by its rule is False there and True here"
    )


def test_plain_numbers_of_a_state_are_compared_by_their_type(tmp_path):
    path = tmp_path / "a.safetensors"
    tensors, facts = saved(path, run(Finer))
    for value in (None, "3", [3], True):
        changed = copy.deepcopy(facts)
        changed["optimizer"]["plain"]["0"]["count"] = value
        refused(written(path, tensors, changed), run(Finer), "the type of 0.count of the optimizer is")
    del changed["optimizer"]["plain"]["0"]
    refused(written(path, tensors, changed), run(Finer), "is absent there and number here")


def test_an_optimizer_that_cannot_be_rehearsed_is_named_in_words(tmp_path):
    class Fails(torch.optim.SGD):
        def step(self):
            if all(weight.grad is None or not weight.grad.any() for weight in self.param_groups[0]["params"]):
                raise OSError("no gradient at all")
            super().step()

    saved(tmp_path / "a.safetensors", run(Fails))
    with pytest.raises(ParameterError, match=r"step with gradients of zero.* OSError: no gradient at all"):
        train(run(Fails), tmp_path / "a.safetensors", resume=True)


@pytest.mark.parametrize(
    ("changed", "named"),
    [({"schedule": lambda step: 0.3}, "learning rates"), ({"clip": 0.5}, "clip"), ({"seed": 3}, "seed")],
)
def test_a_run_of_other_settings_is_refused_by_name(tmp_path, changed, named):
    path = tmp_path / "checkpoint.safetensors"
    saved(path, run())
    other = run()
    for name, value in changed.items():
        object.__setattr__(other, name, value)
    with pytest.raises(DataError, match=named):
        train(other, str(path), resume=True)
    assert train(run(), str(path), resume=True).step == STEPS

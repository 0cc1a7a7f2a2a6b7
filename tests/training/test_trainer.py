"""The loop: what it computes, when it evaluates and saves, and that a resumed run takes the same steps."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
import torch
from torch import nn

from erlangen.errors import DataError, ParameterError
from erlangen.training import Constant, Cosine, Diverged, History, Interrupted, Run, Verdict, train
from erlangen.training.randomness import STEP, generator, mixed

STEPS = 30


def example(seed: int = 0, steps: int = STEPS, **options) -> Run:
    """A small network with dropout and AdamW, so that a resumed run needs every kind of state."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.Dropout(0.3), nn.Linear(16, 1))

    def batch(step):
        x = torch.randn(8, 4, generator=generator(seed, step))
        return x, x.square().sum(1, keepdim=True)

    options = {"every": 7, "evaluate": lambda model: {"square": measured(model)}, "clip": 1.0, **options}
    return Run(
        model,
        torch.optim.AdamW(model.parameters(), lr=1.0, weight_decay=0.1),
        Cosine(0.05, steps, warmup=min(5, steps)),
        batch,
        lambda model, batch: (model(batch[0]) - batch[1]).square().mean(),
        steps=steps,
        seed=seed,
        config={"width": 16},
        **options,
    )


def measured(model: nn.Module) -> float:
    x = torch.randn(32, 4, generator=generator(99))
    return (model(x) - x.square().sum(1, keepdim=True)).square().mean().item()


def stopping_after(step: int, number: int = signal.SIGINT):
    def report(history: History) -> None:
        if history.step == step:
            signal.raise_signal(number)

    return report


def same(a: nn.Module, b: nn.Module) -> bool:
    pairs = zip(a.state_dict().values(), b.state_dict().values(), strict=True)
    return all(torch.equal(x, y) for x, y in pairs)


def test_the_loop_is_the_textbook_loop():
    run, by_hand = example(), example()
    history = train(run)
    losses = []
    for step in range(STEPS):
        torch.manual_seed(mixed(0, STEP, step, 0))
        by_hand.optimizer.param_groups[0]["lr"] = by_hand.schedule(step)
        by_hand.optimizer.zero_grad()
        loss = by_hand.loss(by_hand.model.train(), by_hand.batch(step))
        loss.backward()
        nn.utils.clip_grad_norm_(by_hand.model.parameters(), 1.0)
        by_hand.optimizer.step()
        losses.append(loss.item())
    assert history.losses == losses
    assert same(run.model, by_hand.model)
    assert losses[-1] < losses[0]


def test_evaluations_come_every_so_often_and_at_the_end():
    history = train(example())
    assert [evaluation["step"] for evaluation in history.evaluations] == [7, 14, 21, 28, 30]


def test_training_leaves_the_generator_of_its_user_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    train(example())
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("step", [1, 7, 20])
def test_an_interrupted_run_resumes_exactly(tmp_path, number, step):
    uninterrupted = example()
    expected = train(uninterrupted, tmp_path / "a.safetensors")
    before = signal.getsignal(number)
    with pytest.raises(Interrupted, match=f"after {step + 1} steps; saved in") as caught:
        train(example(), tmp_path / "b.safetensors", report=stopping_after(step, number))
    assert caught.value.signal == number
    assert signal.getsignal(number) is before
    torch.manual_seed(1234)  # what was drawn in between must not matter
    run = example()
    history = train(run, tmp_path / "b.safetensors", resume=True)
    assert history.losses == expected.losses
    assert history.evaluations == expected.evaluations
    assert same(run.model, uninterrupted.model)


def test_a_killed_run_resumes_from_its_last_checkpoint(tmp_path):
    def killed(history):
        if history.step == 19:
            raise MemoryError

    with pytest.raises(MemoryError):
        train(example(), tmp_path / "a.safetensors", report=killed, save_seconds=0)
    steps = []
    history = train(
        example(), tmp_path / "a.safetensors", resume=True, report=lambda history: steps.append(history.step)
    )
    assert steps[0] == 20  # 19 steps were saved
    assert history.losses == train(example()).losses


def test_a_run_killed_early_has_saved_nothing(tmp_path):
    def killed(history):
        raise MemoryError

    with pytest.raises(MemoryError):
        train(example(), tmp_path / "a.safetensors", report=killed, save_seconds=60)
    assert not (tmp_path / "a.safetensors").exists()


def test_a_signal_at_the_last_step_lets_the_run_end():
    assert train(example(), report=stopping_after(STEPS - 1)).step == STEPS


def test_a_second_signal_ends_a_run_at_once(tmp_path):
    def twice(history):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    # Whoever starts the tests in the background may have had them ignore Ctrl-C.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            train(example(), tmp_path / "a.safetensors", report=twice)
    finally:
        signal.signal(signal.SIGINT, before)


def test_the_rule_keeps_the_best_weights_and_stops(tmp_path):
    kept = []

    def rule(evaluations):
        values = [evaluation["square"] for evaluation in evaluations]
        best = values.index(min(values))
        return Verdict(keep=best == len(values) - 1, stop=len(values) - best > 3)

    def evaluate(model):
        # Falls to its least at the third evaluation, then rises.
        kept.append([parameter.clone() for parameter in model.parameters()])
        return {"square": abs(len(kept) - 3.0)}

    run = example(steps=200, every=2, rule=rule, evaluate=evaluate)
    history = train(run, tmp_path / "a.safetensors")
    assert history.stopped
    assert history.step == 12
    assert all(map(torch.equal, run.model.parameters(), kept[2]))
    again = example(steps=200, every=2, rule=rule, evaluate=evaluate)
    assert train(again, tmp_path / "a.safetensors", resume=True).step == 12
    assert same(run.model, again.model)


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    train(example(steps=2), tmp_path / "a.safetensors")
    with pytest.raises(DataError, match="steps is 2 there and 3 here"):
        train(example(steps=3), tmp_path / "a.safetensors", resume=True)
    with pytest.raises(DataError, match="seed is 0 there and 1 here"):
        train(example(seed=1, steps=2), tmp_path / "a.safetensors", resume=True)
    with pytest.raises(DataError, match="is the checkpoint of a run"):
        train(example(steps=2), tmp_path / "a.safetensors")
    with pytest.raises(ParameterError, match="needs the checkpoint"):
        train(example(), resume=True)


def test_a_loss_that_is_no_number_ends_the_run(tmp_path):
    run = example(steps=3)
    run.model[0].weight.data.fill_(float("nan"))
    with pytest.raises(Diverged, match="the loss is nan at step 1"):
        train(run, tmp_path / "a.safetensors")
    assert not (tmp_path / "a.safetensors").exists()


def test_a_run_without_steps_is_refused():
    with pytest.raises(ParameterError, match="at least 1"):
        example(steps=0)
    with pytest.raises(ParameterError, match="positive"):
        Constant(0.0)
    with pytest.raises(ParameterError, match="warmup <= steps"):
        Cosine(1.0, steps=3, warmup=4)


def test_no_draft_stays_behind(tmp_path):
    train(example(steps=2), Path(tmp_path / "a.safetensors"))
    assert [path.name for path in tmp_path.iterdir()] == ["a.safetensors"]

"""Training mode, and other draws of random numbers, where these decide which code is run: a mask that is
dropped now and then, a layer that is left out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from erlangen.audit.calls.over_draws import drawn_by
from erlangen.audit.feeding import FEW, Feeding, Given, Way, register
from erlangen.audit.observed import observe
from erlangen.audit.state import RandomState
from erlangen.audit.support import Support
from erlangen.audit.witnesses.runs import TRAINING, Mode

DRAWS = 32
"""So many draws of random numbers are run once each: what happens with probability 0.15 is then missed one
time in 180."""
EXAMINED = 3
"""So many of those that run other code than the first are examined."""


@register
class Training(Way):
    """Training mode with gradients: batch statistics over time read the future in training alone."""

    name = "training"
    order = 30
    at_full_length = True

    def make(self, given: Given) -> Iterator[Feeding]:
        yield given.feeding(
            "training",
            given.inputs,
            TRAINING,
            thorough=True,
            same_relations=True,
            described="in training mode",
        )
        yield from _other_steps(given)


def _other_steps(given: Given) -> Iterator[Feeding]:
    """One feeding for each of the first few draws under which the model takes other steps in training, or
    where the same steps let attention read otherwise, each a few times."""
    if given.on is None or not _draws_numbers(given):
        return
    seen, made = {_steps(given, None)}, set[int]()
    for seed in range(1, DRAWS):
        drawn = drawn_by(seed)
        steps = _steps(given, drawn)
        if steps in seen:
            continue
        seen.add(steps)
        made.add(seed)
        yield _feeding(given, seed, drawn)
        if len(seen) > EXAMINED:
            break
    if len(made) < EXAMINED:
        relations = {seed: _relations(given, drawn_by(seed)) for seed in range(1, EXAMINED + 1)}
        if any(one != relations[1] for one in relations.values()):
            yield from (_feeding(given, seed, drawn_by(seed)) for seed in relations if seed not in made)


def _feeding(given: Given, seed: int, drawn: RandomState) -> Feeding:
    mode = Mode("training", train=True, grad=True, random=drawn)
    return given.feeding(
        f"training (draw {seed})", given.inputs, mode,
        exact=False, at_most=True, same_relations=True, spread=FEW,
    )  # fmt: skip


def _relations(given: Given, drawn: RandomState) -> list[Support]:
    """What the attention calls of one run in training read."""
    try:
        with TRAINING.on(given.model):
            seen = observe(given.model, given.inputs, given.reading.batch, drawn)
    except Exception:
        return []  # the training feeding says why
    return [call.kernel for call in seen.calls]


class _Steps(TorchFunctionMode):
    """Writes down which functions are called, with which integers and on which shapes."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[Any] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        self.steps.append((getattr(func, "__name__", ""), *map(_told, (*args, *kwargs.values()))))
        return func(*args, **kwargs)


def _told(value: Any) -> Any:
    """What of an argument tells one step from another: numbers that are drawn do not."""
    if isinstance(value, torch.Tensor):
        yes = value.dtype == torch.bool and value.numel() == 1 and value.device.type != "meta"
        return bool(value) if yes else tuple(value.shape)
    if isinstance(value, list | tuple):
        return tuple(map(_told, value))
    return str(value) if isinstance(value, int | str | slice) else type(value).__name__


def _steps(given: Given, drawn: RandomState | None) -> str:
    """The steps of one run in training."""
    assert given.on is not None
    steps = _Steps()

    @contextmanager
    def within() -> Iterator[None]:
        with TRAINING.on(given.model), steps:
            if drawn is not None:
                drawn.set()
            yield

    try:
        given.on(given.inputs, within())
    except Exception as error:
        return type(error).__name__
    return repr(steps.steps)


def _draws_numbers(given: Given) -> bool:
    """Whether training draws random numbers outside modules of dropout."""
    assert given.on is not None
    before: RandomState | None = None

    @contextmanager
    def within() -> Iterator[None]:
        nonlocal before
        with TRAINING.on(given.model):
            for module in given.model.modules():
                if isinstance(module, nn.modules.dropout._DropoutNd):
                    module.training = False
            before = RandomState.now()
            yield

    try:
        given.on(given.inputs, within())
    except Exception:
        return False  # the training feeding says why
    assert before is not None
    return not before.same(RandomState.now())

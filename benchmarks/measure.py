"""Time: contenders take turns, and each one's time is the median of its turns."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from random import Random
from statistics import median
from typing import Any

import torch
from torch import Tensor

from benchmarks.peers import Run


@dataclass(frozen=True)
class Budget:
    """How often to measure: of `most` turns a contender takes as many as fit into `seconds`, and `least`."""

    least: int
    most: int
    seconds: float


FULL = Budget(least=5, most=31, seconds=1.5)
WARM = 1.0
"""Seconds of a first call below which a contender has an unmeasured call before each turn: the one before it
may have gone through a gigabyte, and leaves it no cache."""
TURN = 5e-3
"""The least seconds of a turn: a quicker contender is called again and again, as in a loop, and its time is
the mean."""
QUICK = Budget(least=1, most=3, seconds=0.2)


def step(run: Run, inputs: tuple[Tensor, ...], upstream: Tensor | None) -> tuple[Any, ...]:
    """One call: the output alone, or in training the output and the gradient of every input."""
    if upstream is None:
        with torch.no_grad():
            return (run(*inputs),)
    out = run(*inputs)
    return (out.detach(), *torch.autograd.grad(out, inputs, upstream))


def fastest(runs: Iterable[Run], inputs: tuple[Tensor, ...]) -> Run:
    """The one of several ways to run a peer whose best of three forward passes is the quickest."""

    def seconds(run: Run) -> float:
        run(*inputs)
        taken = []
        for _ in range(3):
            start = time.perf_counter()
            run(*inputs)
            taken.append(time.perf_counter() - start)
        return min(taken)

    with torch.no_grad():
        return min(runs, key=seconds)


def interleaved(
    contenders: Mapping[str, Callable[[], Any]],
    budget: Budget,
    warm: Mapping[str, float],
    told: Callable[[], None] = lambda: None,
) -> dict[str, float]:
    """The median time of every contender in milliseconds.

    In each turn a contender runs for `TURN`, or once. The order changes: whoever always came after the same
    one would always find the caches as that one leaves them. A slow one leaves turns out, evenly, so that all
    meet the same disturbances: if it left when its seconds are spent, the quick ones would have the machine
    for themselves afterwards. `warm` is the time of a first call, and one whose turns take more than four
    times its seconds need not take more than one. Quick ones run once unmeasured before each turn.
    """
    times: dict[str, list[float]] = {name: [] for name in contenders}
    order = Random(0)
    enabled = gc.isenabled()
    gc.disable()
    try:
        for turn in range(budget.most):
            share = (turn + 1) / budget.most
            playing = [name for name in contenders if _plays(times[name], warm.get(name, 0.0), budget, share)]
            order.shuffle(playing)
            for name in playing:
                if warm.get(name, 0.0) < WARM:
                    contenders[name]()
                times[name].append(_turn(contenders[name]))
            gc.collect()
            told()
    finally:
        if enabled:
            gc.enable()
    return {name: 1e3 * median(taken) for name, taken in times.items()}


def _turn(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    calls = 0
    while True:
        call()
        calls += 1
        taken = time.perf_counter() - start
        if taken >= TURN:
            return taken / calls


def _plays(taken: list[float], warm: float, budget: Budget, share: float) -> bool:
    least = 1 if min([warm, *taken]) > 4 * budget.seconds else budget.least
    return len(taken) < least * share or sum(taken) < budget.seconds * share

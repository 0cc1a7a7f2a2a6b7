"""The learning rate as a function of the step."""

from __future__ import annotations

from dataclasses import dataclass
from math import cos, pi

from erlangen.errors import ParameterError


@dataclass(frozen=True)
class Cosine:
    """A linear rise to `peak` over `warmup` steps, then half a cosine wave down to `floor * peak` at `steps`.

    The rate of step s (from 0) is peak (s + 1) / warmup while s < warmup, and then
    peak (floor + (1 - floor) (1 + cos(pi t)) / 2) with t = (s - warmup) / (steps - warmup).

    >>> rate = Cosine(peak=1.0, steps=100, warmup=10, floor=0.1)
    >>> rate(0), rate(9), round(rate(55), 6), round(rate(100), 6)
    (0.1, 1.0, 0.55, 0.1)
    """

    peak: float
    steps: int
    warmup: int = 0
    floor: float = 0.1

    def __post_init__(self) -> None:
        if not (self.peak > 0 and 0 <= self.warmup <= self.steps and 0 <= self.floor <= 1):
            raise ParameterError(f"needed: peak > 0, 0 <= warmup <= steps and 0 <= floor <= 1; got {self!r}")

    def __call__(self, step: int) -> float:
        if step < self.warmup:
            return self.peak * (step + 1) / self.warmup
        t = (step - self.warmup) / max(self.steps - self.warmup, 1)
        return self.peak * (self.floor + (1 - self.floor) * (1 + cos(pi * t)) / 2)


@dataclass(frozen=True)
class Constant:
    """The same rate at every step.

    >>> Constant(0.005)(17)
    0.005
    """

    rate: float

    def __post_init__(self) -> None:
        if not self.rate > 0:
            raise ParameterError(f"a learning rate must be positive, got {self.rate!r}")

    def __call__(self, step: int) -> float:
        return self.rate

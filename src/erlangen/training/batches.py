"""Which examples a step sees, as a function of seed and step alone: training can resume anywhere."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from erlangen.caches import cached
from erlangen.errors import ParameterError
from erlangen.training.processes import ALONE, Processes
from erlangen.training.randomness import BATCH, generator


@dataclass(frozen=True)
class Shuffled:
    """Batches from `examples` examples in an order drawn anew for every pass; a batch may span two passes.

    Step s sees the positions s B, ..., (s + 1) B - 1 of the endless sequence of shuffled passes, where B is
    `size` times the number of processes; each process takes its own `size` of them.

    >>> batches = Shuffled(examples=5, size=2, seed=0)
    >>> seen = torch.cat([batches(step) for step in range(5)])  # two passes
    >>> sorted(seen[:5].tolist()), sorted(seen[5:].tolist())
    ([0, 1, 2, 3, 4], [0, 1, 2, 3, 4])
    >>> halves = [Shuffled(5, 1, 0, Processes(rank, 2))(3) for rank in (0, 1)]
    >>> bool((torch.cat(halves) == batches(3)).all())
    True
    """

    examples: int
    size: int
    seed: int
    processes: Processes = ALONE

    def __post_init__(self) -> None:
        if self.examples < 1 or self.size < 1:
            raise ParameterError(f"needed: at least one example and a batch of at least one; got {self!r}")

    def __call__(self, step: int) -> Tensor:
        first = (step * self.processes.count + self.processes.rank) * self.size
        positions = range(first, first + self.size)
        return torch.stack(
            [_order(self.examples, self.seed, p // self.examples)[p % self.examples] for p in positions]
        )


@cached(4)
def _order(examples: int, seed: int, epoch: int) -> Tensor:
    return torch.randperm(examples, generator=generator(seed, BATCH, epoch))


@dataclass(frozen=True)
class Places:
    """Batches of places drawn from `range(places)` with replacement; each process takes `size` of its own.

    >>> both = Places(places=1000, size=4, seed=0)(7)
    >>> halves = [Places(1000, 2, 0, Processes(rank, 2))(7) for rank in (0, 1)]
    >>> both.shape, bool((torch.cat(halves) == both).all())
    (torch.Size([4]), True)
    """

    places: int
    size: int
    seed: int
    processes: Processes = ALONE

    def __post_init__(self) -> None:
        if self.places < 1 or self.size < 1:
            raise ParameterError(f"needed: at least one place and a batch of at least one; got {self!r}")

    def __call__(self, step: int) -> Tensor:
        drawn = torch.randint(
            self.places, (self.processes.count, self.size), generator=generator(self.seed, BATCH, step)
        )
        return drawn[self.processes.rank]

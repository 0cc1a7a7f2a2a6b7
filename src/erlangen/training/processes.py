"""Several processes that train one model, as started by torchrun."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import distributed, nn

from erlangen.errors import DataError


@dataclass(frozen=True)
class Processes:
    """This process among those that train together: number `rank` of `count`. `Processes()` is one alone.

    >>> Processes().first, Processes().mean([2.0, 0.0])
    (True, [2.0, 0.0])
    """

    rank: int = 0
    count: int = 1

    @classmethod
    def current(cls) -> Processes:
        """The process group that is initialised, or one process alone.

        >>> Processes.current()
        Processes(rank=0, count=1)
        """
        if distributed.is_available() and distributed.is_initialized():
            return cls(distributed.get_rank(), distributed.get_world_size())
        return cls()

    @property
    def first(self) -> bool:
        """Whether this is the process that writes files and speaks."""
        return self.rank == 0

    def mean(self, numbers: list[float]) -> list[float]:
        """The mean over the processes of each number."""
        if self.count == 1:
            return numbers
        total = torch.tensor(numbers, dtype=torch.float64)
        distributed.all_reduce(total)
        return (total / self.count).tolist()

    def wait(self) -> None:
        """Go on when every process has come here."""
        if self.count > 1:
            distributed.barrier()

    def from_first(self, value: Any) -> Any:
        """What the first process gives as `value`, in every process."""
        if self.count == 1:
            return value
        box = [value]
        distributed.broadcast_object_list(box, src=0)
        return box[0]

    def wrapped(self, model: nn.Module) -> nn.Module:
        """The model, its gradients averaged over the processes in every backward pass."""
        return model if self.count == 1 else nn.parallel.DistributedDataParallel(model)


ALONE = Processes()
"""One process alone."""


@contextmanager
def joined() -> Iterator[Processes]:
    """Join the processes that torchrun started (over gloo); one process alone where it started none.

    >>> with joined() as processes:
    ...     processes.count
    1
    """
    if "WORLD_SIZE" not in os.environ or int(os.environ["WORLD_SIZE"]) == 1:
        yield ALONE
        return
    if not distributed.is_available():
        raise DataError("this build of torch has no torch.distributed: start one process, without torchrun")
    distributed.init_process_group("gloo")
    try:
        yield Processes.current()
    finally:
        distributed.destroy_process_group()

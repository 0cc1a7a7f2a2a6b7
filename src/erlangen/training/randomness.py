"""Random numbers as a function of what they are for, so that no generator has a state to be saved."""

from __future__ import annotations

import numpy as np
import torch

BATCH, STEP, INITIAL, SAMPLE, MOVES = range(5)
"""What a random number is for: the choice of a batch, the noise of a step, initial weights,
samples, the moves of images."""


def mixed(*numbers: int) -> int:
    """A seed of 63 bits that depends on every one of the numbers, and on their order.

    >>> mixed(0, 1) == mixed(0, 1), mixed(0, 1) == mixed(1, 0)
    (True, False)
    """
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> np.uint64(1))


def generator(*numbers: int) -> torch.Generator:
    """A generator seeded with `mixed(*numbers)`.

    >>> bool((torch.rand(3, generator=generator(7, 1)) == torch.rand(3, generator=generator(7, 1))).all())
    True
    """
    return torch.Generator().manual_seed(mixed(*numbers))

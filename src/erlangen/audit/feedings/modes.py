"""The same inputs in the modes that training and mixed precision switch on."""

from __future__ import annotations

from collections.abc import Iterator

from erlangen.audit.feedings.draws import draws
from erlangen.audit.feedings.feeding import FEW, Feeding, Given
from erlangen.audit.witnesses.runs import AUTOCAST, GRADIENTS, TRAINING, TRAINING_AUTOCAST


def training(given: Given) -> Iterator[Feeding]:
    """Training mode with gradients: batch statistics over time read the future in training alone."""
    yield given.feeding("training", given.inputs, TRAINING, thorough=True)
    yield from draws(given)


def gradients(given: Given) -> Iterator[Feeding]:
    """Evaluation mode with gradients: code may ask `torch.is_grad_enabled()`."""
    yield given.feeding("with gradients", given.inputs, GRADIENTS)


def autocast(given: Given) -> Iterator[Feeding]:
    """Autocast to bfloat16, in evaluation and as people train: kernels and masks of another type.

    What is too small for bfloat16 is looked at in double precision, which autocast leaves as it is.
    """
    yield given.feeding("autocast", given.inputs, AUTOCAST)
    yield given.feeding("autocast (training)", given.inputs, TRAINING_AUTOCAST, spread=FEW)

"""Mixed precision, in evaluation and in training."""

from __future__ import annotations

from collections.abc import Iterator

from erlangen.audit.feeding import FEW, Feeding, Given, Way, register
from erlangen.audit.witnesses.runs import AUTOCAST, TRAINING_AUTOCAST


@register
class Autocast(Way):
    """Autocast to bfloat16, in evaluation and as people train: kernels and masks of another type.

    What is too small for bfloat16 is looked at in double precision, which autocast leaves as it is.
    """

    name = "autocast"
    order = 80

    def make(self, given: Given) -> Iterator[Feeding]:
        yield given.feeding("autocast", given.inputs, AUTOCAST, same_relations=True)
        yield given.feeding(
            "autocast (training)", given.inputs, TRAINING_AUTOCAST, same_relations=True, spread=FEW
        )

"""Evaluation with gradients."""

from __future__ import annotations

from collections.abc import Iterator

from erlangen.audit.feeding import Feeding, Given, Way, register
from erlangen.audit.witnesses.runs import GRADIENTS


@register
class WithGradients(Way):
    """Evaluation mode with gradients: code may ask `torch.is_grad_enabled()`."""

    name = "with gradients"
    order = 70

    def make(self, given: Given) -> Iterator[Feeding]:
        yield given.feeding("with gradients", given.inputs, GRADIENTS, same_relations=True)

"""The first sequence of the batch by itself."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from erlangen.audit.feeding import Feeding, Given, Way, register


@register
class Alone(Way):
    """A batch of one: released models dropped their mask when the batch had one sequence."""

    name = "alone"
    order = 60

    def make(self, given: Given) -> Iterator[Feeding]:
        first = given.reading.contents[0] if given.reading.contents else None
        if first is None or first.batch < 2 or first.batch_axis is None or given.inputs.vary is not None:
            return
        batch, axis = first.batch, first.batch_axis
        contents = {
            id(one.tensor): one.batch_axis for one in (*given.reading.contents, *given.reading.labels)
        }

        def one_item(tensor: torch.Tensor) -> torch.Tensor:
            along = contents.get(id(tensor), 0 if axis == 0 else None)
            square = tensor.dim() == 2 and tensor.shape[0] == tensor.shape[1] and id(tensor) not in contents
            if along is None or tensor.dim() <= along or tensor.shape[along] != batch or square:
                return tensor
            return tensor.narrow(along, 0, 1).contiguous()

        yield given.feeding("alone", given.inputs.map(one_item, "alone"), same_relations=True)

"""One sequence more in the batch, and every sequence shorter by one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from erlangen.audit.feedings.feeding import FEW, Feeding, Given, cut, may_cut
from erlangen.audit.inputs import Inputs


def feedings(given: Given) -> Iterator[Feeding]:
    """Another batch size and a length of the other parity: code may ask for either.

    Both at once where the model takes it, otherwise each by itself.
    """
    shorter, more = _shorter(given), more_items(given, given.inputs)
    both = (
        None
        if shorter is None
        else more_items(replace(given, reading=given.reading.of(given.model, shorter)), shorter)
    )
    if both is not None and given.runs(both):
        yield given.feeding("other sizes", both, resized=True, spread=FEW)
        return
    for label, inputs in (("other sizes (length)", shorter), ("other sizes (batch)", more)):
        if inputs is not None and given.runs(inputs):
            yield given.feeding(label, inputs, resized=True, spread=FEW)


def _shorter(given: Given) -> Inputs | None:
    found = [one for one in given.reading.sequences if one.sequence and one.batch_axis is not None]
    if not found or given.inputs.vary is not None or any(one.length < 3 for one in found):
        return None
    lengths = {one.name: (0, one.length - 1) for one in found}
    if not all(may_cut(given, one, lengths[one.name]) for one in found):
        return None
    return cut(given, lengths, "other sizes")


def more_items(given: Given, inputs: Inputs) -> Inputs | None:
    """The batch and one item more, whose content is another one."""
    first = given.reading.contents[0] if given.reading.contents else None
    if first is None or first.batch_axis is None or inputs.vary is not None:
        return None
    contents = {id(one.tensor): one for one in (*given.reading.contents, *given.reading.labels)}
    axis = 0 if first.batch_axis == 0 else None

    def more(tensor: torch.Tensor) -> torch.Tensor:
        one = contents.get(id(tensor))
        along = axis if one is None else one.batch_axis
        square = tensor.dim() == 2 and tensor.shape[0] == tensor.shape[1] and one is None
        if along is None or tensor.dim() <= along or tensor.shape[along] != first.batch or square:
            return tensor
        other = tensor if one is None or one.embedding else one.changed(range(one.length), seed=2)
        return torch.cat([tensor, other.narrow(along, 0, 1)], dim=along)

    return inputs.map(more, "other sizes")

"""One sequence more in the batch, and every sequence shorter by one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from erlangen.audit.arguments.resized import cut, may_cut, more_items
from erlangen.audit.feeding import FEW, Feeding, Given, Way, register
from erlangen.audit.inputs import Inputs


@register
class OtherSizes(Way):
    """Another batch size and a length of the other parity: code may ask for either.

    Both at once where the model takes it, otherwise each by itself.
    """

    name = "other sizes"
    order = 90

    def make(self, given: Given) -> Iterator[Feeding]:
        shorter, more = _shorter(given), more_items(given, given.inputs)
        both = (
            None
            if shorter is None
            else more_items(replace(given, reading=given.reading.of(given.model, shorter)), shorter)
        )
        if both is not None and given.runs(both):
            yield given.feeding("other sizes", both, resized=True, other_items=True, spread=FEW)
            return
        for label, inputs in (("other sizes (length)", shorter), ("other sizes (batch)", more)):
            if inputs is not None and given.runs(inputs):
                yield given.feeding(label, inputs, resized=True, other_items=True, spread=FEW)


def _shorter(given: Given) -> Inputs | None:
    found = [one for one in given.reading.sequences if one.sequence and one.batch_axis is not None]
    if not found or given.inputs.vary is not None or any(one.length < 3 for one in found):
        return None
    lengths = {one.name: (0, one.length - 1) for one in found}
    if not all(may_cut(given, one, lengths[one.name]) for one in found):
        return None
    return cut(given, lengths, "other sizes")

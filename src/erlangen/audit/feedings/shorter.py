"""The first two thirds of every sequence; and of the decoder's alone."""

from __future__ import annotations

from collections.abc import Iterator

from erlangen.audit.arguments.resized import cut, may_cut
from erlangen.audit.feeding import Feeding, Given, Way, register


@register
class Shorter(Way):
    """Shorter inputs: a relation must not depend on the length it was first seen at."""

    name = "shorter"
    order = 10
    shortens = True

    def make(self, given: Given) -> Iterator[Feeding]:
        found = [one for one in given.reading.sequences if one.sequence and one.batch_axis is not None]
        if not found or given.inputs.vary is not None:
            return
        if all(one.length >= 3 for one in found):
            lengths = {one.name: (0, max(2, one.length * 2 // 3)) for one in found}
            if all(may_cut(given, one, lengths[one.name]) for one in found):
                yield given.feeding("shorter", cut(given, lengths, "shorter"), resized=True, same_family=True)
        last = found[-1]
        if len(found) > 1 and last.length >= 3 and last.name.startswith(("decoder", "tgt")):
            lengths = {last.name: (0, max(2, last.length * 2 // 3))}
            yield given.feeding("shorter decoder", cut(given, lengths, "shorter decoder"), resized=True)

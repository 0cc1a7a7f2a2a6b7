"""The first positions of a long input, for what need not be asked at full length.

Where one run takes so long that an audit's runs would not fit into the budget, the roles of the inputs are
measured on a short beginning of them, and so are the feedings other than the given one. The given inputs, and
training on them, are still run at full length.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from erlangen.audit.feeding import Feeding, Given
from erlangen.audit.observed import Measured, Pass
from erlangen.audit.orientation import measured
from erlangen.audit.reading import Reading, read
from erlangen.audit.resized import cut
from erlangen.audit.witnesses.runs import Budget, Runner

LENGTH = 128
"""How many positions are kept."""
RUNS = 150
"""About so many runs an audit makes of a short input; where they do not fit into the budget, it is cut."""


@dataclass(frozen=True, eq=False)
class Short:
    """A short beginning of the given inputs."""

    given: Given
    reading: Reading
    """What was measured about the inputs, with its notes."""
    runner: Runner

    def named(self, feeding: Feeding) -> Feeding:
        """A feeding made of the short inputs, which says so."""
        longest = max((one.length for one in feeding.reading.sequences), default=LENGTH)
        return replace(feeding, label=f"{feeding.label} (n = {longest})", resized=True, described="")


def shortened(runner: Runner, budget: Budget) -> Short | None:
    """A short beginning of a runner's inputs; None where they are short or quick enough, or cannot be cut."""
    model, inputs = runner.model, runner.inputs
    if inputs.vary is not None or runner.seconds * RUNS <= budget.seconds:
        return None
    found = read(model, inputs)
    long = [one for one in found.sequences if one.length > 2 * LENGTH]
    if not long or any(one.batch_axis is None or not one.sequence for one in long):
        return None
    spans = {one.name: (0, LENGTH) for one in long}
    less = cut(Given.of(runner, found), spans, "short")
    one = Runner(model, less, Reading([]), runner.snapshot)
    try:
        one.base()
        reading = measured(model, less, read(model, less), one.on)
    except Exception:
        return None  # one length only
    if not _same_roles(found, reading):
        return None
    return Short(Given.of(one, reading), reading, one)


def _same_roles(found: Reading, reading: Reading) -> bool:
    """Whether the inputs are read alike at both lengths; a mask of another shape may be another thing."""
    return {(one.name, one.axis) for one in found.contents} == {
        (one.name, one.axis) for one in reading.contents
    } and {one.name for one in found.masks} == {one.name for one in reading.masks}


def corresponds(calls: Pass, other: Pass, lengths: tuple[int, int]) -> bool:
    """Whether the calls at two lengths are the same ones: of the same modules, each over all positions, or
    over as many at both lengths."""

    def sizes(call: Measured, length: int) -> tuple[object, ...]:
        return call.module, call.heads, *(0 if size == length else size for size in (call.queries, call.keys))

    return [sizes(call, lengths[0]) for call in calls.calls] == [
        sizes(call, lengths[1]) for call in other.calls
    ]

"""The beginning of an audit: the first run, what each input is, and which inputs each call reads."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from erlangen.audit.arguments.orientation import measured
from erlangen.audit.arguments.reading import Reading, read
from erlangen.audit.arguments.resized import cut
from erlangen.audit.calls.judged_calls import inherit
from erlangen.audit.calls.streams import name_sources
from erlangen.audit.case import Examiner
from erlangen.audit.feeding import FEEDINGS, Feeding, Given
from erlangen.audit.inputs import Content, Inputs
from erlangen.audit.observed import Measured, Pass
from erlangen.audit.outputs import floating
from erlangen.audit.witnesses.runs import Budget, Runner
from erlangen.errors import DataError

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


def first_run(runner: Runner) -> Any:
    try:
        return runner.base()
    except Exception as error:
        raise DataError(
            f"{type(runner.model).__name__} does not run on these inputs "
            f"({shapes(runner.model, runner.inputs)}): {type(error).__name__}: {error}"
        ) from error


def read_inputs(runner: Runner, small: Short | None) -> Reading:
    """What each input is, measured on the inputs or on a short beginning of them."""
    model, inputs = runner.model, runner.inputs
    if small is not None:
        return replace(small.reading.of(model, inputs), notes=small.reading.notes)

    def run(other: Inputs, within: Any = None) -> Any:
        return runner.base() if other is inputs and within is None else runner.on(other, within)

    return measured(model, inputs, read(model, inputs), run)


def fixed_axes(
    given: Given, runner: Runner, output: Any, small: Short | None = None
) -> dict[str, frozenset[int]]:
    """Axes of outputs that keep their size when the inputs are shorter."""
    if small is not None:
        return _equal_axes(output, small.runner.base())
    shorter = next((way.make(given) for way in FEEDINGS.values() if way.shortens), iter(()))
    for feeding in shorter:
        try:
            return _equal_axes(output, runner.on(feeding.inputs))
        except Exception:
            return {}  # one length only: axes are told by their size
    return {}


def _equal_axes(output: Any, shorter: Any) -> dict[str, frozenset[int]]:
    other = dict(floating(shorter))
    return {
        name: frozenset(a for a in range(tensor.dim()) if tensor.shape[a] == other[name].shape[a])
        for name, tensor in floating(output)
        if name in other and other[name].dim() == tensor.dim()
    }


def find_sources(
    examiner: Examiner, feeding: Feeding, base: Pass, small: Short | None = None, brief: Pass | None = None
) -> dict[str, str]:
    """Find which inputs each call reads; what comes back are modules whose relation varies with the content
    of an input, and this input."""
    if small is not None and brief is not None:
        lengths = [max(one.length for one in r.sequences) for r in (feeding.reading, small.reading)]
        if corresponds(base, brief, (lengths[0], lengths[1])):
            varying = find_sources(examiner, Feeding("short", small.given.inputs, small.reading), brief)
            inherit(base.calls, brief.calls)
            return varying
    contents = [*feeding.reading.contents, *feeding.reading.labels]  # labels may be a decoder's input
    changed: dict[str, Pass] = {}
    spots: dict[str, list[tuple[int, Pass]]] = {}
    varying: dict[str, str] = {}
    if not base.calls:
        return varying
    several = len(feeding.reading.sequences) > 1 or any(call.queries != call.keys for call in base.calls)
    for content in contents:
        try:
            changed[content.name] = examiner.observed(feeding, content, range(content.length))
            if several and content.axis is not None and content.length > 2:
                places = sorted({content.length // 3, 2 * content.length // 3})
                spots[content.name] = [(p, examiner.observed(feeding, content, p)) for p in places]
        except Exception:
            continue  # the flow says why this content cannot be changed
        for other in (changed[content.name], *(one for _, one in spots.get(content.name, []))):
            varying |= dict.fromkeys(_varying(base, other), content.name)
    name_sources(base, changed, spots, contents)
    return varying


def take_out_structure(reading: Reading, deciding: Set[str]) -> list[Content]:
    """Inputs that decide who reads whom (document or segment ids): they are judged by themselves."""
    found = []
    for one in list(reading.contents[1:]):
        if one.pool is not None and one.name in deciding:
            reading.contents.remove(one)
            reading.ignored[one.name] = "it decides which keys are read"
            reading.notes.append(f"{one.name} decides which keys are read, and was left as it is")
            found.append(one)
    return found


def _varying(base: Pass, other: Pass) -> list[str]:
    """Modules whose relation is another one although sizes and masks are the same."""

    def sizes(call: Measured) -> tuple[Any, ...]:
        return call.module, call.queries, call.keys, call.heads, call.batch

    return [
        call.module
        for call, again in zip(base.calls, other.calls, strict=False)
        if sizes(call) == sizes(again) and call.kernel != again.kernel
    ]


MOST = 12
"""So many inputs are named."""


def shapes(model: nn.Module, inputs: Inputs) -> str:
    """Every argument: tensors by shape and type, also inside containers, numbers and flags by their value.

    >>> shapes(nn.GRU(4, 4), Inputs.of((torch.zeros(1, 4), None)))
    'input: float32 (1, 4), hx: None'
    """
    leaves = inputs.leaves(model)
    told = [f"{name}: {_type(tensor)} {tuple(tensor.shape)}" for name, tensor in leaves.items()]
    for name, value in inputs.named(model).items():
        if not any(leaf == name or leaf.startswith(f"{name}.") for leaf in leaves):
            plain = value is None or isinstance(value, bool | int | float | str)
            told.append(f"{name}: {str(value)[:40] if plain else type(value).__name__}")
    return ", ".join(told[:MOST]) + (f" and {len(told) - MOST} more" if len(told) > MOST else "") or "none"


def _type(tensor: torch.Tensor) -> str:
    device = "" if tensor.device.type == "cpu" else f" on {tensor.device}"
    return f"{str(tensor.dtype).removeprefix('torch.')}{device}"

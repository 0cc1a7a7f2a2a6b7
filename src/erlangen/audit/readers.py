"""Which inputs move which outputs, and which of them the rows of an output are positions of."""

from __future__ import annotations

from typing import Any

from erlangen.audit.flow_verdict import Scene
from erlangen.audit.flows import role_of
from erlangen.audit.following import only_early
from erlangen.audit.inputs import Content
from erlangen.audit.observed import Measured
from erlangen.audit.witnesses.flow import Flow, differs
from erlangen.audit.witnesses.runs import Runner
from erlangen.relations import Neighborhoods

Readers = dict[str, set[str]]
"""Output -> the inputs and labels that move it; empty where there is one only, or one cannot be changed."""


def readers_of(runner: Runner, output: Any) -> Readers:
    """The readers of each input and of each of the labels."""
    every = [*runner.reading.contents, *runner.reading.labels]
    found: Readers = {place.name: set() for place in runner.places()}
    if len(every) < 2:
        return {}
    for content in every:
        try:
            other = runner.changed(content, range(content.length))
            for place in runner.places():
                if bool(differs(place.rows(other), place.rows(output))[0].any()):
                    found[place.name].add(content.name)
        except Exception:
            return {}  # the flow says why
    return found


def rivals(flow: Flow, content: Content, every: list[Content], readers: Readers) -> list[Content]:
    """The inputs whose rows those of an output may be: one that does not move it is no rival."""
    read = readers.get(flow.output)
    return [one for one in every if one is content or read is None or one.name in read]


def of_another(flow: Flow, content: Content, scene: Scene) -> bool:
    """Whether an output is of another sequence alone: this input moves other outputs and not this one."""
    read = scene.readers.get(flow.output)
    moves = any(content.name in names for names in scene.readers.values())
    others = {one.name for one in scene.contents if one.axis is not None and one is not content}
    return read is not None and content.name not in read and moves and bool(read & others)


def only_read_across(content: Content, calls: list[Measured]) -> bool:
    """Whether attention reads an input from another sequence alone: nothing is then expected of its rows."""
    crossing = [call for call in calls if call.kind == "cross" and content.name in call.key_inputs]
    return bool(crossing) and not any(call.query_owner == content.name for call in calls)


def asks(content: Content, calls: list[Measured]) -> bool:
    """Whether its positions were seen to be the queries of self-attention, of which something is expected."""
    return any(call.kind == "self" and call.query_owner == content.name for call in calls)


def read_by_own_rows(
    flows: list[Flow], content: Content, every: list[Content], readers: Readers
) -> list[Neighborhoods]:
    """For each item, what any output that is of this sequence reads."""
    result: list[Neighborhoods] = []
    for flow in [] if only_early(flows) else flows:
        if role_of(flow, content, rivals(flow, content, every, readers), flow.relations[0].queries) == "own":
            same = not result or result[0].queries == flow.relations[0].queries
            if same and len(result) in (0, len(flow.relations)):
                pairs = zip(result, flow.relations, strict=True) if result else ()
                result = [a | b for a, b in pairs] if result else list(flow.relations)
    return result


def rows_inside(content: Content, calls: list[Measured]) -> int:
    """How many rows tensors inside have: as many as positions, or a few more (a class token comes first)."""
    sizes = {call.queries for call in calls if call.kind == "self" and call.queries == call.keys}
    size = sizes.pop() if len(sizes) == 1 else content.length
    return size if content.patch is not None and 0 <= size - content.length <= 4 else content.length

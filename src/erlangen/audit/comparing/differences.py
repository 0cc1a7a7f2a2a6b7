"""What two sides compute, held against each other: relations edge by edge, weights, flows."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

import numpy as np

from erlangen.audit.comparing.closeness import OutputDifference, matched
from erlangen.audit.log_weights import CLOSE, Weights
from erlangen.audit.observed import Measured
from erlangen.audit.support import Support, of_item
from erlangen.relations import Neighborhoods

Side = tuple[str, list[Measured]]
Flows = dict[str, dict[str, tuple[Neighborhoods, ...]]]
"""Input -> output -> what the rows of each item depend on."""
FlowSide = tuple[str, Flows]
ROWS_BEFORE, ROWS_INSIDE = "the rows before the output", "the rows inside the model"
ITEMS = "other sequences of the batch"
Masks = dict[str, np.ndarray | None]


@dataclass(frozen=True)
class Difference:
    """Where two sides compute different relations: the first edge, and how many there are."""

    module: str
    sides: tuple[str, str]
    item: int
    head: int | None
    query: int
    key: int
    reader: str
    """The side that reads the edge; the other one does not."""
    edges: int
    bounds: tuple[Neighborhoods, Neighborhoods] | None = field(default=None, compare=False, repr=False)
    """What each side reads in this item and head, for a picture."""

    def __str__(self) -> str:
        head = "" if self.head is None else f", head {self.head}"
        other = self.sides[self.sides[0] == self.reader]
        return (
            f"{self.module or 'the model'}, item {self.item}{head}: edge ({self.query}, {self.key}) "
            f"is read by {self.reader}, not by {other}; {self.edges} edge{'s' * (self.edges != 1)} "
            f"differ{'s' * (self.edges == 1)}"
        )


@dataclass(frozen=True)
class WeightDifference:
    """Where two sides read the same keys and weigh them otherwise."""

    module: str
    sides: tuple[str, str]
    weights: tuple[Weights | None, Weights | None]

    def __str__(self) -> str:
        told = [
            f"{side} adds {'no weights' if one is None else one}"
            for side, one in zip(self.sides, self.weights, strict=True)
        ]
        return f"{self.module or 'the model'}: {', '.join(told)}"


@dataclass(frozen=True)
class Comparison:
    """What `compare` found: true when all sides compute the same; its text shows what differs."""

    sides: tuple[str, ...]
    calls: int
    differences: tuple[Difference, ...]
    unmatched: tuple[str, ...]
    """What could not be compared: calls without a counterpart of the same shape, calls not explained."""
    weights: tuple[WeightDifference, ...] = ()
    outputs: tuple[OutputDifference, ...] = ()
    """The largest difference of outputs of each side to the first, where outputs must agree."""
    notes: tuple[str, ...] = ()
    """How something was compared, where that is not call by call and head by head."""

    @property
    def same(self) -> bool:
        """Whether everything was compared, and relations, weights and outputs are the same up to rounding."""
        return (
            not self.differences
            and not self.unmatched
            and not self.weights
            and all(one.rounding for one in self.outputs)
        )

    def __bool__(self) -> bool:
        return self.same

    @property
    def differs(self) -> bool:
        """Whether something is surely another; otherwise what is not the same could not be compared."""
        return bool(self.differences or self.weights) or any(not one.rounding for one in self.outputs)

    def save(self, path: str | Path) -> Path:
        """Write the comparison as one HTML page that needs no network, and return where."""
        from erlangen.audit.comparison_page import save

        return save(self, path)

    def __str__(self) -> str:
        if self.differences:
            said = "not the same relations"
        elif self.unmatched:
            said = "not all could be compared"
        else:
            said = "the same relations" if self.calls or not self.outputs else "no attention"
        if self.weights:
            said += ", not the same weights"
        if self.outputs:
            alike = all(one.rounding for one in self.outputs)
            said += ", the same outputs" if alike else ", not the same outputs"
        return "\n".join(
            [
                f"{' / '.join(self.sides)}: {said} ({self.calls} attention call{'s' * (self.calls != 1)})",
                *map(str, (*self.differences, *self.weights)),
                *self.unmatched,
                *map(str, self.outputs),
                *self.notes,
            ]
        )


def judge(
    sides: list[Side],
    masks: Masks,
    flows: list[FlowSide],
    outputs: Sequence[OutputDifference],
    unmatched: Sequence[str],
    notes: Sequence[str] = (),
) -> Comparison:
    differences: list[Difference] = []
    weights: list[WeightDifference] = []
    unmatched, notes = list(unmatched), list(notes)
    (first, base), *others = sides
    if not base and not any(found for _, found in flows) and not outputs:
        unmatched.append("nothing was compared: no attention call was seen and no flow measured")
    for name, calls in others:
        pairs = _paired(base, calls)
        if pairs is None:
            unmatched.append(f"{first} has {len(base)} attention calls, {name} has {len(calls)}")
            continue
        for mine, theirs, note in pairs:
            if _shape(mine) != _shape(theirs):
                unmatched.append(
                    f"{_named(mine, theirs)}: {first} has heads x queries x keys {_shape(mine)}, "
                    f"{name} has {_shape(theirs)}"
                )
                continue
            if note is not None and note not in notes:
                notes.append(note)
            found = _first(mine, theirs, (first, name), masks)
            differences += [found] if found is not None else []
            # A module that was probed as a whole has weights that nobody saw.
            if found is None and not (mine.whole or theirs.whole):
                if not _same_weights(mine.weights, theirs.weights):
                    both = mine.weights, theirs.weights
                    weights.append(WeightDifference(_named(mine, theirs), (first, name), both))
                elif mine.weights is not None and mine.weights.form != "ALiBi":
                    notes.append(
                        f"{_named(mine, theirs) or 'the model'}: weights were compared by their form and "
                        "their lowest log-weight"
                    )
    for name, theirs in flows[1:]:
        found, more = _flow_differences(flows[0], (name, theirs), masks)
        differences += found
        unmatched += more
    return Comparison(
        tuple(name for name, _ in sides), len(base), tuple(differences), tuple(unmatched),
        tuple(weights), tuple(outputs), tuple(dict.fromkeys(notes)),
    )  # fmt: skip


def _flow_differences(mine: FlowSide, theirs: FlowSide, masks: Masks) -> tuple[list[Difference], list[str]]:
    """Where the flows of two sides differ, input by input, output by output; and what only one side has."""
    (first, base), (name, other) = mine, theirs
    differences: list[Difference] = []
    unmatched: list[str] = []

    def lacks(flow: str, here: bool) -> str:
        has, none = (first, name) if here else (name, first)
        return f"the flow from {flow}: {has} has one, {none} has none"

    for content in dict.fromkeys([*base, *other]):
        if content not in base or content not in other:
            unmatched.append(lacks(content, content in base))
            continue
        rows = {ROWS_BEFORE, ROWS_INSIDE, ITEMS}
        outputs = [[one for one in side[content] if one not in rows] for side in (base, other)]
        inside = [
            one for one in (ROWS_BEFORE, ROWS_INSIDE, ITEMS) if one in base[content] or one in other[content]
        ]
        pairs = matched(*outputs) + [
            tuple(one if one in side[content] else None for side in (base, other)) for one in inside
        ]
        for number, (a, b) in enumerate(pairs):
            shown = a if a is not None else b
            flow = content if number == 0 else f"{content} to {shown or 'the output'}"
            if a is None or b is None:
                unmatched.append(lacks(f"{content} to {shown or 'the output'}", b is None))
                continue
            x, y = base[content][a], other[content][b]
            if [(one.queries, one.keys) for one in x] != [(one.queries, one.keys) for one in y]:
                unmatched.append(f"the flow from {flow}: {first} and {name} have outputs of other sizes")
                continue
            edges = [((p,), (q,)) for p, q in zip(x, y, strict=True)]
            real = None if a == ITEMS else masks.get(content)
            found = _first_edge(f"the flow from {flow}", (first, name), edges, real)
            differences += [found] if found is not None else []
    return differences, unmatched


def _paired(
    base: list[Measured], calls: list[Measured]
) -> list[tuple[Measured, Measured, str | None]] | None:
    """The calls of two sides side by side, and how they were made comparable; None when their numbers differ.

    A module that was probed as a whole is one call of one head that stands for all calls and heads of the
    module, so what the other side reads through any of them is held against it.
    """
    if len(base) == len(calls):
        return [_alike([mine], [theirs]) for mine, theirs in zip(base, calls, strict=True)]
    mine, theirs = (
        [(module, list(group)) for module, group in groupby(side, key=lambda call: call.module)]
        for side in (base, calls)
    )
    if [module for module, _ in mine] != [module for module, _ in theirs]:
        return None
    pairs: list[tuple[Measured, Measured, str | None]] = []
    for (_, a), (_, b) in zip(mine, theirs, strict=True):
        if len(a) == len(b):
            pairs += [_alike([x], [y]) for x, y in zip(a, b, strict=True)]
        elif any(len(group) == 1 and group[0].whole for group in (a, b)):
            pairs.append(_alike(a, b))
        else:
            return None
    return pairs


def _alike(mine: list[Measured], theirs: list[Measured]) -> tuple[Measured, Measured, str | None]:
    whole = [any(call.whole for call in side) for side in (mine, theirs)]
    heads = [(len(side), side[0].heads) for side in (mine, theirs)]
    if heads[0] == heads[1] or not any(whole):
        return mine[0], theirs[0], None
    named = _named(mine[0], theirs[0]) or "the model"
    return (
        _union(mine),
        _union(theirs),
        f"{named}: probed as a whole on one side, so what it reads through any head was compared",
    )


def _union(calls: list[Measured]) -> Measured:
    """One call of one head that reads what any head of any of the calls reads; the first, if sizes differ."""
    one = copy.copy(calls[0])
    if len({(call.queries, call.keys, call.kernel.batch) for call in calls}) > 1:
        return one
    items = []
    for item in range(one.kernel.batch):
        bound = calls[0].kernel.of_item(item)
        for call in calls[1:]:
            bound = bound | call.kernel.of_item(item)
        items.append((bound,))
    one.heads, one.kernel, one.whole = 1, Support(tuple(items)), True
    return one


def _shape(call: Measured) -> tuple[int, int, int]:
    return call.heads, call.queries, call.keys


def _named(mine: Measured, theirs: Measured) -> str:
    return mine.module if mine.module == theirs.module else f"{mine.module} / {theirs.module}"


def _same_weights(a: Weights | None, b: Weights | None) -> bool:
    """Whether two calls weigh alike, as far as their summaries tell."""
    # Weights that the kernel does not apply are none.
    a, b = (None if one is None or one.applied is False else one for one in (a, b))
    if a is None or b is None:
        one = a if b is None else b
        return one is None or abs(one.low) <= CLOSE
    if a.form != b.form or a.same_items != b.same_items:
        return False
    if abs(a.low - b.low) > 2 * CLOSE * max(abs(a.low), abs(b.low)):
        return False
    if a.slopes is None or b.slopes is None:
        return a.slopes is b.slopes
    largest = max(map(abs, (*a.slopes, *b.slopes)), default=0.0)
    return len(a.slopes) == len(b.slopes) and all(
        abs(x - y) <= 2 * CLOSE * max(abs(x), abs(y), largest / 100)
        for x, y in zip(a.slopes, b.slopes, strict=True)
    )


def _first(mine: Measured, theirs: Measured, sides: tuple[str, str], masks: Masks) -> Difference | None:
    a, b = mine.kernel.items, theirs.kernel.items
    count = max(len(a), len(b))
    pairs = [(of_item(a, i), of_item(b, i)) for i in range(count)]
    inputs = [masks[name] for name in mine.query_inputs if name in masks]
    fitting = [
        mask for mask in (*inputs, *masks.values()) if mask is not None and mask.shape[-1] == mine.queries
    ]
    return _first_edge(_named(mine, theirs), sides, pairs, fitting[0] if fitting else None)


def _first_edge(
    module: str,
    sides: tuple[str, str],
    pairs: Sequence[tuple[tuple[Neighborhoods, ...], tuple[Neighborhoods, ...]]],
    real: np.ndarray | None,
) -> Difference | None:
    """The first edge that only one side reads, in a row of a real query; all such edges are counted."""
    first: tuple[int, int, int, int, str] | None = None
    bounds: tuple[Neighborhoods, Neighborhoods] | None = None
    count, heads_differ = 0, False
    for item, (mine, theirs) in enumerate(pairs):
        heads_differ = heads_differ or len(set(mine)) > 1 or len(set(theirs)) > 1
        for head, (a, b) in enumerate(zip(mine, theirs, strict=True)):
            if a == b:
                continue
            edges = (a ^ b).edges()
            if real is not None and real.shape[-1] == a.queries:
                edges = edges[of_item(real, item)[edges[:, 0]]]
            count += len(edges)
            if len(edges) and first is None:
                i, j = edges[0].tolist()
                first = item, head, i, j, sides[0] if bool(a.contains(i, j)) else sides[1]
                bounds = a, b
    if first is None:
        return None
    item, head, i, j, reader = first
    return Difference(module, sides, item, head if heads_differ else None, i, j, reader, count, bounds)

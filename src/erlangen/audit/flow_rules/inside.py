"""Looking inside: rows before a pooled output, the steps of a hidden stack, and where a dependence enters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch

from erlangen.audit.capture.tape import ADDING, PRODUCTS
from erlangen.audit.findings import Finding
from erlangen.audit.inputs import Content
from erlangen.audit.support import of_item
from erlangen.audit.witnesses.flow import ITEMS, Flow
from erlangen.audit.witnesses.runs import Runner
from erlangen.audit.witnesses.trace import Event, Trace
from erlangen.errors import DataError
from erlangen.relations import Neighborhoods

_KNOWN_STEPS = PRODUCTS | {"scaled_dot_product_attention", "multi_head_attention_forward"}

MOVED = 1e-6
"""Rows of another item that move by more than this, of the size of their tensor, do so by no rounding."""


class Inside:
    """The tensors inside one feeding, traced when they are first asked for."""

    def __init__(
        self, runner: Runner, content: Content, positions: list[int] | None, rows: int | None = None
    ) -> None:
        self._runner, self._content = runner, content
        self._rows = rows or content.length
        self._positions = list(range(content.length)) if positions is None else positions
        self._trace: Trace | None = None
        self._flows: np.ndarray | None = None

    @property
    def runner(self) -> Runner:
        """Who runs the feeding."""
        return self._runner

    @property
    def rows(self) -> int:
        """How many rows the tensors inside have."""
        return self._rows

    @property
    def trace(self) -> Trace:
        """The trace of the feeding."""
        if self._trace is None:
            self._trace = Trace(self._runner, self._content, self._rows)
        return self._trace

    @property
    def flows(self) -> np.ndarray:
        """(events, batch, rows, positions)."""
        if self._flows is None:
            self._flows = self.trace.flows(self._positions)
        return self._flows

    def before_pooling(self, output: str) -> Flow | None:
        """The flow into the last tensor with rows that depends on the content; None if there is none."""
        flows = self.flows
        last = self._last()
        if last is None:
            return None
        n = self._content.length
        dense = np.zeros((*flows.shape[1:3], n), bool)
        dense[:, :, self._positions] = flows[last]
        event = self.trace.base[last]
        nothing = tuple(Neighborhoods.from_dense(np.zeros((self._rows, n), bool)) for _ in dense)
        return Flow(
            self._content.name,
            tuple(Neighborhoods.from_dense(item) for item in dense),
            nothing,
            None,
            self._runner.runs,
            False,
            f"{output or 'the output'}, before it is pooled ({event.module or 'the model'})",
            None if len(self._positions) == n else tuple(self._positions),
            sizes=None if self._rows >= n else self._sizes(last),
        )

    def _sizes(self, event: int) -> np.ndarray:
        """How much each row of a tensor moves with each position: (batch, rows, positions)."""
        flows, n = self.flows, self._content.length
        sizes = np.zeros((*flows.shape[1:3], n))
        for j in self._positions:
            sizes[:, :, j] = self.trace.moved([j])[event]
        return sizes

    def one_row_less(self, widths: frozenset[int], output: str) -> Flow | None:
        """The flow into the last tensor with one row less than there are positions; None if there is none."""
        rows = self._content.length - 1
        if rows < 4 or rows in widths or not self._content.sequence:
            return None
        try:
            less = Inside(self._runner, self._content, self._positions, rows)
            return less.before_pooling(output) if less.has_rows() else None
        except Exception:
            return None  # a model that runs only unobserved

    def moves(self) -> Callable[..., np.ndarray]:
        """How much the rows of the last tensor with rows move with some positions; see
        `erlangen.audit.flow_rules.groups`."""
        last = self._last()
        assert last is not None

        def moves(positions: Sequence[int], item: int | None = None) -> np.ndarray:
            moved = self.trace.moved(positions, item)
            if last >= len(moved):
                raise DataError("the model takes other steps on other content, so rows cannot be compared")
            return moved[last]

        return moves

    def before_rounding(self, output: str, integers: torch.Tensor) -> tuple[Flow, bool] | None:
        """The flow into the numbers that an integer output was made of, and whether it is surely these.

        Where no operation returned just these integers, all numbers that were made integers count together.
        None where no such operation was seen: the output is a function of integers.
        """
        trace = Trace(self._runner, self._content, self._rows, rounded=True)
        flows = trace.flows(self._positions)
        if not flows.size:
            return None
        same = [
            index
            for index, one in enumerate(trace.made[: len(flows)])
            if one.shape == integers.shape and torch.equal(one.double(), integers.double())
        ]
        chosen = flows[same[-1:]] if same else flows
        n = self._content.length
        dense = np.zeros((*flows.shape[1:3], n), bool)
        dense[:, :, self._positions] = chosen.any(axis=0)
        nothing = tuple(Neighborhoods.from_dense(np.zeros((self._rows, n), bool)) for _ in dense)
        flow = Flow(
            self._content.name,
            tuple(Neighborhoods.from_dense(item) for item in dense),
            nothing,
            None,
            self._runner.runs,
            False,
            f"{output or 'the output'}, before it is rounded",
            None if len(self._positions) == n else tuple(self._positions),
        )
        return flow, bool(same)

    def rounds(self, row: int | None, position: int) -> str | None:
        """The first operation that makes integers of numbers (the codes of a bottleneck) and is reached by
        what a row, or any, reads of a position; None where none is."""
        try:
            trace = Trace(self._runner, self._content, self._rows, rounded=True, square=True)
            moved = trace.moved([position])
        except Exception:
            return None  # a model that runs only unobserved
        for event, rows in zip(trace.base, moved, strict=False):
            if (rows if row is None else rows[:, row : row + 1]).any():
                return f"{event.label} in {event.module or 'the model'}"
        return None

    def beyond(self, allowed: list[np.ndarray]) -> str | None:
        """The first module whose rows read a position that is not allowed of them; None if there is none.

        `allowed` has a matrix for each item. The last tensor with rows is not all that a pooled output takes.
        """
        for event, flow in zip(self.trace.base, self.flows, strict=False):
            if event.label == "leaves" and event.plain:
                for item, moved in enumerate(flow):
                    bound = of_item(allowed, item)[:, self._positions]
                    if moved.shape == bound.shape and (moved & ~bound).any():
                        return f"{event.module or 'the model'} ({event.kind})"
        return None

    def all_rows(self) -> tuple[Neighborhoods, ...] | None:
        """What the rows of any tensor read, for each item; None where no tensor with rows is seen."""
        plain = [flow for event, flow in zip(self.trace.base, self.flows, strict=False) if event.plain]
        return tuple(map(Neighborhoods.from_dense, np.any(plain, axis=0))) if plain else None

    def has_rows(self) -> bool:
        """Whether a tensor with rows that depends on the content can be seen; not in a model that hides."""
        try:
            return self._last() is not None
        except Exception:
            return False  # a model that runs only unobserved

    @cached_property
    def batch_leak(self) -> tuple[int, int] | None:
        """(item changed, item that moved) in the last tensor with rows, where the output has no items."""
        last = self._last()
        if last is None:
            return None
        for item in range(min(self._content.batch, ITEMS)):
            if item > 1 and self._runner.late:
                break
            moved = self.trace.moved(range(self._content.length), item)
            if last < len(moved):
                others = [b for b in range(len(moved[last])) if b != item and moved[last][b].max() > MOVED]
                if others:
                    return item, others[0]
        return None

    @cached_property
    def _depends_at_once(self) -> list[bool]:
        """Whether each tensor depends on any of the positions."""
        return [bool(rows.any()) for rows in self.trace.moved(self._positions)]

    def _last(self) -> int | None:
        """The last tensor of rows that depends on the content."""
        # Where the flows are not known, one run with all positions changed tells that, too.
        depends = self._depends_at_once if self._flows is None else [bool(one.any()) for one in self._flows]
        plain = [event.plain for event in self.trace.base]
        return max((k for k, moves in enumerate(depends) if moves and plain[k]), default=None)

    def steps(self, one: Neighborhoods) -> tuple[str, Any] | None:
        """Whether each step inside reads at most `one`: ("held", None), ("broken", (event, row, key)),
        ("open", why).

        Each tensor reads some power of the relation. From the tensors before it, each may be one power
        further; a jump by two is a step that reads too far, where the operation is known to be one step.
        """
        flows = self.flows
        if not flows.size or self._rows != one.queries:
            return None
        powers = [Neighborhoods.from_dense(np.eye(one.queries, dtype=bool)), one]
        while powers[-1] != (further := powers[-1].compose(one)) and len(powers) < 64:
            powers.append(further)
        allowed = [bound.dense()[:, self._positions] for bound in powers]
        reached = 0
        for index, event_flows in enumerate(flows):
            union = np.asarray(event_flows.any(axis=0))
            power = next((k for k, bound in enumerate(allowed) if not (union & ~bound).any()), None)
            if power is None:
                return None
            if power > reached + 1:
                event = self.trace.base[index]
                row, column = np.argwhere(union & ~allowed[reached + 1])[0].tolist()
                edge = row, self._positions[column]
                if event.label in _KNOWN_STEPS:
                    return "broken", (event, *edge)
                return "open", (
                    f"{event.module or 'the model'} ({event.label}) reads {power} steps at once: several "
                    f"layers in one operator, or a wider relation; row {edge[0]} on position {edge[1]}"
                )
            reached = max(reached, power)
        return "held", None

    def own_path(self, read: Neighborhoods) -> str | None:
        """How rows come to depend on their own positions, given by `read`: "residual" where they are added to
        rows that do not, "product" where rows that read others are a product, as in attention."""
        try:
            flows = self.flows
        except Exception:
            return "product"  # a model that runs only unobserved: anything may be inside
        if not flows.size or self._rows != read.queries:
            return "product"
        own = np.eye(read.queries, dtype=bool)[:, self._positions]
        others = (flows & ~own).any(axis=(1, 2, 3))
        itself = (flows & read.dense()[:, self._positions]).any(axis=(1, 2, 3))
        events = self.trace.base[: len(flows)]
        strict, alone = np.flatnonzero(others & ~itself), np.flatnonzero(itself & ~others)
        for index in np.flatnonzero(others & itself):
            if events[index].label in ADDING and any(
                _sum_of(events[index], events[a], events[b])
                for a in strict[strict < index]
                for b in alone[alone < index]
            ):
                return "residual"
        return "product" if any(events[index].label in PRODUCTS for index in np.flatnonzero(others)) else None

    def origin(self, finding: Finding) -> Finding:
        """The finding with the module and the line in which its dependence enters, where these can be
        seen."""
        if finding.query is None or finding.key is None or not finding.extra or finding.origin is not None:
            return finding
        try:
            event: Event | None = self.trace.origin(finding.item or 0, finding.query, finding.key)
        except Exception:
            return finding  # a model that runs only unobserved
        return finding if event is None else _entered(finding, event)

    def origin_of_item(self, finding: Finding, changed: int) -> Finding:
        """The finding with the module and the line in which an item of the batch begins to move with
        another."""
        try:
            moved = self.trace.moved(range(self._content.length), changed)
        except Exception:
            return finding  # a model that runs only unobserved
        item = finding.item or 0
        for event, rows in zip(self.trace.base, moved, strict=False):
            if item < len(rows) and rows[item].max(initial=0) > MOVED:
                return _entered(finding, event)
        return finding


def _entered(finding: Finding, event: Event) -> Finding:
    if event.label == "enters":
        return finding.at(
            origin=f"{event.parent or 'the model'}, before {event.module}", source=finding.source
        )
    return finding.at(
        origin=f"{event.module or 'the model'} ({event.kind})", source=event.source or finding.source
    )


def _sum_of(event: Event, one: Event, other: Event) -> bool:
    """Whether a tensor is the sum of two others: their rows are projected alike."""
    if not event.rows.shape == one.rows.shape == other.rows.shape:
        return False
    return bool(
        np.allclose(event.rows, one.rows + other.rows, rtol=1e-4, atol=1e-4 * np.abs(event.rows).max())
    )

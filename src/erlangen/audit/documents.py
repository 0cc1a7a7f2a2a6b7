"""Which documents of a packed sequence an edge joins: by the expectation, or by the inputs that pack it."""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import replace

import numpy as np
import torch
from torch import nn

from erlangen.audit.case import Examination
from erlangen.audit.expect import Expectation, Expected, bound_of, overall
from erlangen.audit.feeding import Feeding
from erlangen.audit.findings import Finding
from erlangen.audit.flow_verdict import WHOLE
from erlangen.audit.obligations import Ledger
from erlangen.audit.support import of_item
from erlangen.relations import Documents

Packing = tuple[str, np.ndarray]
"""What to call a part, and the number of the part of each position, (batch or 1, positions)."""


def name_documents(
    ledger: Ledger,
    shown: list[tuple[Feeding, Examination]],
    expect: Expectation,
    model: nn.Module,
    deciding: Set[str],
) -> None:
    """Fill in the documents of every finding about an edge, in the ledger and on the calls and flows."""
    by_label = {feeding.label: (feeding, result) for feeding, result in shown}
    packed = {label: list(_packed(feeding, model, deciding)) for label, (feeding, _) in by_label.items()}

    def named(finding: Finding | None) -> Finding | None:
        if finding is None or finding.pair is None or finding.where not in by_label:
            return finding
        _, result = by_label[finding.where]
        found = _expected(finding, result, expect)
        for name, parts in [*([] if found is None else [found]), *packed[finding.where]]:
            if parts.shape[1] == _length(finding, result):
                row = of_item(parts, finding.item or 0)
                query, key = finding.pair
                if min(row[query], row[key]) < 0:
                    continue  # padding is of no document
                return finding.at(documents=(int(row[query]), int(row[key])), packing=name)
        return finding

    ledger.entries[:] = [
        entry if entry.finding is None else replace(entry, finding=named(entry.finding)) for entry in ledger
    ]
    for _, result in shown:
        for one in (*result.calls, *result.flows):
            one.counterexample = named(one.counterexample)


def _length(finding: Finding, result: Examination) -> int | None:
    """How many positions the sequence has whose queries and keys the edge joins; None where they are two."""
    if finding.module == WHOLE:
        for flow in result.flows:
            same = (flow.flow.content, flow.flow.output or None) == (finding.content, finding.output)
            if same and flow.role in ("own", "inner"):
                bound = flow.flow.relations[0]
                return bound.keys if bound.queries == bound.keys else None
        return None
    call = next((one for one in result.calls if one.module == finding.module), None)
    return call.keys if call is not None and call.kind == "self" and call.queries == call.keys else None


def _expected(finding: Finding, result: Examination, expect: Expectation) -> Packing | None:
    """The documents that the expectation of the finding speaks of, if it speaks of one packing."""
    of_calls = [one.expected for one in result.calls if finding.module in (WHOLE, one.module)]
    relations = [one for one in (*of_calls, overall(expect)) if one is not None]
    found = dict.fromkeys(
        part for one in relations for part in _documents(one, finding.item or 0, finding.head or 0)
    )
    if len(found) != 1:
        return None
    lengths = next(iter(found)).lengths
    return "document", np.repeat(np.arange(len(lengths)), lengths)[None]


def _documents(expected: Expected, item: int, head: int) -> Iterator[Documents]:
    waiting = [of_item(of_item(bound_of(expected).grid(), item), head)]
    while waiting:
        one = waiting.pop()
        if isinstance(one, Documents):
            yield one
        waiting += getattr(one, "operands", ())


def _packed(feeding: Feeding, model: nn.Module, deciding: Set[str]) -> Iterator[Packing]:
    """The inputs that pack several documents into a sequence: ids, lengths summed up, positions."""
    for name, tensor in feeding.inputs.leaves(model).items():
        if tensor.is_floating_point() or tensor.is_complex() or tensor.dim() not in (1, 2) or not len(tensor):
            continue
        if tensor.dtype == torch.bool or not tensor.shape[-1]:
            continue
        values = tensor.detach().cpu().numpy().reshape(-1, tensor.shape[-1])
        if name in deciding:
            if all(_in_runs(row) for row in values):
                yield "document" if "doc" in name.lower() else name, values
        elif _sums(values):
            yield "document", np.repeat(np.arange(values.shape[1] - 1), np.diff(values[0]))[None]
        elif _restarts(values, real := _real(feeding, values)):
            yield "document", np.cumsum((values == 0) & real, axis=1) - 1


def _in_runs(row: np.ndarray) -> bool:
    """Whether equal numbers stand side by side and are shared: tokens are not so."""
    different = len(np.unique(row))
    return 2 * different <= len(row) and int((np.diff(row) != 0).sum()) == different - 1


def _sums(values: np.ndarray) -> bool:
    """Whether these are the starts of documents and the end of the last (`cu_seqlens`)."""
    return (
        len(values) == 1 and values.shape[1] > 2 and values[0, 0] == 0 and bool((np.diff(values) > 0).all())
    )


def _real(feeding: Feeding, values: np.ndarray) -> np.ndarray:
    """Which of these positions are not padding."""
    masks = [one.real() for one in feeding.reading.masks]
    return next((one for one in masks if one.shape == values.shape), np.ones_like(values, bool))


def _restarts(values: np.ndarray, real: np.ndarray) -> bool:
    """Whether these are positions that begin again at 0 with every document; padding has none."""
    rows = [row[kept] for row, kept in zip(values, real, strict=True)]
    steps = [(row[1:], np.diff(row)) for row in rows]
    return (
        all(len(row) > 2 and row[0] == 0 for row in rows)
        and all(bool(((step == 1) | ((row == 0) & (step <= 0))).all()) for row, step in steps)
        and any(bool((step <= 0).any()) for _, step in steps)
        and bool((values == 1).any())
    )

"""Attention by itself: a model that is fed with queries, keys and values, which are one sequence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from erlangen.audit.inputs import Inputs
from erlangen.audit.outputs import floating
from erlangen.audit.reading import Reading

CLOSE = 1e-3
"""Outputs that agree up to this part of their largest entry are the same."""


def one_sequence(inputs: Inputs, found: Reading, run: Callable[..., Any]) -> Reading:
    """Read queries, keys and values of equal length as one content, changed together.

    They are told by what attention is, a weighted mean of values: where all values are equal, queries and
    keys do not matter; otherwise they do.
    """
    if inputs.content is not None or inputs.vary is not None or found.labels or len(found.contents) != 3:
        return found
    q, k, v = found.contents
    places = {(one.axis, one.batch_axis, one.batch, one.length) for one in (q, k, v)}
    if len(places) != 1 or any(one.pool is not None or not one.sequence for one in (q, k, v)):
        return found
    axis = q.axis or 0
    equal = v.tensor.narrow(axis, 0, 1).expand_as(v.tensor).contiguous()
    try:
        for values, same in ((equal, True), (v.tensor, False)):
            given = _with(inputs, {id(v.tensor): values})
            other = {id(one.tensor): one.changed(range(one.length)) for one in (q, k)}
            if _close(run(given), run(_with(given, other))) != same:
                return found
    except Exception:
        return found
    note = f"{q.name}, {k.name} and {v.name} were read as queries, keys and values of one sequence"
    return replace(found, contents=[replace(q, together=(k, v))], notes=[*found.notes, note])


def _with(inputs: Inputs, others: dict[int, torch.Tensor]) -> Inputs:
    return inputs.map(lambda part: others.get(id(part), part))


def _close(one: Any, other: Any) -> bool:
    pairs = list(zip(floating(one), floating(other), strict=True))
    return all(float((a - b).abs().max()) <= CLOSE * float(a.abs().max()) for (_, a), (_, b) in pairs)

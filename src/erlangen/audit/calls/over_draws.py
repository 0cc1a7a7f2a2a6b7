"""Relations that are drawn at random in training: keys that are dropped before the softmax.

Two draws of the same content then read differently. What is missing in one of them is no missing edge, and
what is read too much in any of them is an extra one.
"""

from __future__ import annotations

import random

import numpy as np
import torch

from erlangen.audit.flow_verdict import FlowVerdict
from erlangen.audit.observed import Measured, Pass
from erlangen.audit.state import RandomState

OTHER_DRAWS = (1, 2)
"""The seeds of the draws that a call with missing edges is held against."""


def counterpart(call: Measured, seen: Pass) -> Measured | None:
    """The same call in another pass: of the same module, of the same sizes; None where there is none."""
    if call.index >= len(seen.calls):
        return None
    other = seen.calls[call.index]
    return other if sizes(other) == sizes(call) else None


def sizes(call: Measured) -> tuple[str, int, int, int, int]:
    """What two calls must share to be compared."""
    return call.module, call.batch, call.heads, call.queries, call.keys


def drawn_at_random(call: Measured, passes: list[Pass]) -> bool:
    """Whether a call reads otherwise at another draw of the same content."""
    others = [other for one in passes if (other := counterpart(call, one)) is not None]
    return any(other.kernel != call.kernel for other in others)


def reads_more(call: Measured, other: Measured) -> bool:
    """Whether a call reads any key that the other one does not."""
    return any(
        bool((a - b).num_edges)
        for mine, theirs in zip(call.kernel.items, other.kernel.items, strict=True)
        for a, b in zip(mine, theirs, strict=True)
    )


def lacks(verdict: FlowVerdict) -> bool:
    """Whether a flow is found to miss an edge, or everything."""
    found = [one.finding for one in verdict.settled if one.finding is not None]
    return any(one.kind == "silent" or (one.kind == "edge" and not one.extra) for one in found)


def drawn_by(seed: int) -> RandomState:
    """The state of all generators after seeding them; the present state stays."""
    now = RandomState.now()
    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    random.seed(seed)
    drawn = RandomState.now()
    now.set()
    return drawn

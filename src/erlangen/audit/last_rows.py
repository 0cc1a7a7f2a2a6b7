"""Few rows for many positions: those of the last positions, as in Perceiver AR."""

from __future__ import annotations

import numpy as np

from erlangen.audit.outputs import Place
from erlangen.audit.witnesses.flow import Flow

MOST = 2 / 3
"""The part of the rows that must move most with the position they are held to be of."""


def kept_rows(places: list[Place], fixed: dict[str, frozenset[int]]) -> frozenset[str]:
    """The outputs that have as many rows where the input is shorter."""
    return frozenset(
        place.name for place in places if place.axis is not None and place.axis in fixed.get(place.name, ())
    )


def at_the_end(flow: Flow, kept: bool) -> bool:
    """Whether most rows move most with the position that is theirs if the last row is the last position.

    Where there are as many rows at every length (`kept`), also if this is the last position that each reads.
    """
    if flow.sizes is None:
        return False
    sizes = np.nan_to_num(flow.sizes, posinf=1e300).max(axis=0)
    rows, n = sizes.shape
    columns = np.arange(n) if flow.positions is None else np.asarray(flow.positions)
    own = np.arange(rows) + n - rows
    told = np.isin(own, columns) & sizes[:, columns].any(axis=1)
    hits = columns[sizes[:, columns].argmax(axis=1)] == own
    if int(told.sum()) >= 2 and float(hits[told].mean()) > MOST:
        return True
    reach = [int(columns[columns <= place].max(initial=-1)) for place in own]
    last = [int(np.flatnonzero(row).max(initial=-1)) for row in sizes]
    return kept and last == reach and len(set(last)) >= 2

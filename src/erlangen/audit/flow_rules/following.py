"""Whether the rows of an output follow the positions of an input: one by one, moved, at another rate, or the
last of them alone, as in Perceiver AR."""

from __future__ import annotations

from typing import Any

import numpy as np

from erlangen.audit.flow_verdict import Scene
from erlangen.audit.inputs import Content
from erlangen.audit.observed import Measured
from erlangen.audit.outputs import Place
from erlangen.audit.support import of_item
from erlangen.audit.witnesses.flow import Flow
from erlangen.audit.witnesses.rounding import differs
from erlangen.audit.witnesses.runs import Runner
from erlangen.relations import Neighborhoods

MOST = 2 / 3
"""The part of the rows that must move most with the position they are held to be of."""


def offset_of(flow: Flow) -> int | None:
    """By how many places rows are moved against positions: most positions move their own row most."""
    if flow.sizes is None:
        return None
    most, _, columns = _rows_moved(flow)
    if not len(columns):
        return None
    found, counts = np.unique(most - columns, return_counts=True)
    best = counts.argmax()
    return int(found[best]) if counts[best] > len(columns) / 2 else None


SURE = 0.9
"""How closely the rows that move most must go with the positions, for rows to follow an input."""
TOLD = 6
"""So few positions follow anything by chance."""


def followed(flow: Flow, plainly: bool = True) -> bool:
    """Whether rows are plainly seen to follow positions, one by one, moved, or at another rate: so they do
    not follow a condition, of which all rows read what they like.

    Either the rows that move most go with the positions, or the first rows that move at all. Of few positions
    the latter alone is plain; not `plainly`, the former counts as well.
    """
    if flow.sizes is None:
        return False
    most, first, columns = _rows_moved(flow)
    rows, n = flow.sizes.shape[1:]
    if 2 <= len(columns) < TOLD:
        near = np.abs(most - columns * rows // n) <= 2 * -(-rows // n)
        ordered = len(columns) == 2 or (_each_later(most) and bool(near.all()))  # two stand in any order
        ordered = ordered and (len(columns) == 2 or _one_row_most(flow, columns))
        return _each_later(first) or (not plainly and ordered)
    told = follows_ratio(flow) or offset_of(flow) is not None
    # Of a condition that is read throughout, every position moves the same row first.
    return _together(first, columns, SURE / 2) or (told and _together(most, columns, SURE))


def _rows_moved(flow: Flow) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each position that moves any row: the row that moves most, the first that moves, and the
    position."""
    sizes, columns = flow.largest, flow.columns
    assert sizes is not None
    columns = columns[sizes[:, columns].any(axis=0)]
    return sizes[:, columns].argmax(axis=0), (sizes[:, columns] > 0).argmax(axis=0), columns


MORE = 1.5
"""A row moves more than the others where it moves so many times as far as the middle one."""


def _one_row_most(flow: Flow, columns: np.ndarray) -> bool:
    """Whether positions move one row more than the others: a mean that is added everywhere moves all alike,
    and the one that moves most is so by chance."""
    assert flow.largest is not None
    sizes = flow.largest[:, columns]
    return bool((sizes.max(axis=0) >= MORE * np.median(sizes, axis=0)).all())


def _each_later(rows: np.ndarray) -> bool:
    """Whether each position has a later row than the one before, or the same where there are fewer rows."""
    steps = np.diff(rows)
    return bool((steps > 0).all()) or (bool((steps >= 0).all()) and len(set(rows.tolist())) >= TOLD // 2)


def _together(rows: np.ndarray, columns: np.ndarray, least: float) -> bool:
    if len(columns) < TOLD or len(set(rows.tolist())) < TOLD // 2:
        return False
    return float(np.corrcoef(rows, columns)[0, 1]) > least


def follows_ratio(flow: Flow) -> bool:
    """Whether most positions move the row most that they fall into, where all rows are spread evenly."""
    if flow.sizes is None:
        return False
    most, _, columns = _rows_moved(flow)
    rows, n = flow.sizes.shape[1:]
    within = rows // n if rows > n else int(n > rows and n % rows != 0)
    return len(columns) > 0 and float((np.abs(most - columns * rows // n) <= within).mean()) > 0.5


def diagonal(flow: Flow) -> bool:
    """Whether most rows move most with their own position."""
    if flow.sizes is None:
        return True
    most, _, columns = _rows_moved(flow)
    return len(columns) > 0 and float((most == columns).mean()) > 0.5


def kept_rows(places: list[Place], fixed: dict[str, frozenset[int]]) -> frozenset[str]:
    """The outputs that have as many rows where the input is shorter."""
    return frozenset(
        place.name for place in places if place.axis is not None and place.axis in fixed.get(place.name, ())
    )


def at_the_end(flow: Flow, kept: bool) -> bool:
    """Whether most rows move most with the position that is theirs if the last row is the last position.

    Where there are as many rows at every length (`kept`), also if this is the last position that each reads.
    """
    sizes, columns = flow.largest, flow.columns
    if sizes is None:
        return False
    rows, n = sizes.shape
    own = np.arange(rows) + n - rows
    told = np.isin(own, columns) & sizes[:, columns].any(axis=1)
    hits = columns[sizes[:, columns].argmax(axis=1)] == own
    if int(told.sum()) >= 2 and float(hits[told].mean()) > MOST:
        return True
    reach = [int(columns[columns <= place].max(initial=-1)) for place in own]
    last = [int(np.flatnonzero(row).max(initial=-1)) for row in sizes]
    return kept and last == reach and len(set(last)) >= 2


def surely_real(flow: Flow, keys: np.ndarray | None, item: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and positions of an item that are real and do not border on padding, where a row may see both.
    `keys` are the real positions of each item."""
    rows, n = flow.relations[0].queries, flow.relations[0].keys
    if keys is None:
        return np.ones(rows, bool), np.ones(n, bool)
    real = of_item(keys, item)
    last = rows < n and at_the_end(flow, True)
    by = rows - n if last else None if follows_ratio(flow) else offset_of(flow)
    if by is not None:  # rows of another input, as of an image, stand before or behind: these are real
        place = np.arange(rows) - by
        return (place < 0) | (place >= n) | real[place.clip(0, n - 1)], real
    by_row = np.array(
        [real[r * n // rows : max((r + 1) * n // rows, r * n // rows + 1)].all() for r in range(rows)]
    )
    if by_row.all():
        return by_row, real
    inner = by_row.copy()
    inner[:-1] &= by_row[1:]
    inner[1:] &= by_row[:-1]
    return inner, real & np.repeat(inner, n // rows) if n % rows == 0 else real


def each_itself(flow: Flow) -> bool:
    """Whether no row reads more than one position."""
    return all(int(bound.dense().sum(axis=1).max(initial=0)) <= 1 for bound in flow.relations)


def only_early(flows: list[Flow]) -> bool:
    """Whether all outputs with rows read themselves alone, and a pooled one reads several positions: what
    reads others then stands behind those rows, which show nothing of it."""
    rows = [flow for flow in flows if not flow.pooled]
    pooled = [flow for flow in flows if flow.pooled]
    return bool(rows) and all(map(each_itself, rows)) and not all(map(each_itself, pooled))


def role_of(flow: Flow, content: Content, contents: list[Content], output_rows: int) -> str:
    """What the rows of an output are to an input.

    Rows as many as positions are the same sequence, unless another input of that length fits better: the rows
    that move most with position j are then not rows j. Rows of another number are positions of this input at
    another place or rate where they are seen to follow it, whatever other inputs there are.
    """
    if flow.pooled or (output_rows == 1 and content.length > 1):
        return "pooled"
    if content.axis is None:
        return "foreign"
    n = content.length
    sequences = [one for one in contents if one.axis is not None]
    rivals = [one for one in sequences if one.length == output_rows and one is not content]
    if output_rows == n:
        return "own" if not rivals or diagonal(flow) else "foreign"
    alike = any(one.length == n and one is not content for one in sequences)
    if (rivals or (content is not sequences[0] and not alike)) and not followed(flow):
        return "foreign"
    return "own" if content.patch is not None and 0 < output_rows - n <= 4 else "mapped"


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


def of_another(flow: Flow, scene: Scene) -> bool:
    """Whether an output is of another sequence alone: this input moves other outputs and not this one."""
    read = scene.readers.get(flow.output)
    moves = any(scene.content.name in names for names in scene.readers.values())
    others = {one.name for one in scene.contents if one.axis is not None and one is not scene.content}
    return read is not None and scene.content.name not in read and moves and bool(read & others)


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

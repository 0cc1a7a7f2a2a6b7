"""Rows at another rate than the positions of the input, and rows of another sequence."""

from __future__ import annotations

from typing import Any

import numpy as np

from erlangen.audit.bounds import closure_of, columns, edge, single, within_closure
from erlangen.audit.expect import AtMost, bind_expected, expected_of, in_words, overall
from erlangen.audit.flow_verdict import FlowVerdict, Scene
from erlangen.audit.inputs import Content
from erlangen.audit.last_rows import at_the_end
from erlangen.audit.measure import Measured
from erlangen.audit.streams import predict
from erlangen.audit.verdict import kept
from erlangen.audit.witnesses.flow import Flow
from erlangen.audit.wording import without_masks
from erlangen.errors import ErlangenError
from erlangen.relations import Full, Neighborhoods


def judge_mapped(verdict: FlowVerdict, scene: Scene) -> None:
    """Rows at another rate than positions: held against the relation of rows, position by the row it falls
    into."""
    flow, relation = verdict.flow, overall(scene.expect)
    if relation is None:
        calls = _calls_before(flow, scene)
        spoken = [r for r in (expected_of(scene.expect, call) for call in calls) if r is not None]
        relation = spoken[0] if spoken and all(r == spoken[0] for r in spoken) else None
    rows, n = flow.relations[0].queries, flow.relations[0].keys
    if relation is None:
        verdict.opened(
            "extra and missing edges", f"{rows} rows for {n} positions: expect one relation of all calls"
        )
        return
    # Rows of another input may come first, such as a condition: then all rows are moved by as many.
    before = {one.length for one in scene.contents if one.axis is not None and one.name != flow.content}
    if rows - n in before and _offset(flow) == rows - n and not everything(relation):
        _judge_shifted(verdict, relation)
        return
    fixed = flow.output in scene.kept_rows
    if n > rows and (fixed or n - rows > SHIFTED) and at_the_end(flow, fixed) and not everything(relation):
        _judge_shifted(verdict, relation, rows - n)
        return
    # Where everything may be read it does not matter which row belongs to which position.
    if (fixed or not _follows_ratio(flow)) and not everything(relation):
        verdict.opened(
            "extra and missing edges",
            f"{rows} rows for {n} positions, and which row belongs to which position could not be told: "
            "return one row for each position",
        )
        return
    if 0 < abs(rows - n) <= SHIFTED and not everything(relation):
        _judge_shifted(verdict, relation)
        return
    for b, seen in enumerate(flow.relations):
        bound = _allowed(verdict, relation, b, rows)
        if bound is None:
            return
        one, allowed = bound
        real_rows, real_keys = surely_real(verdict, b, rows, n)
        over = (seen.dense() & ~allowed[:, np.arange(n) * rows // n]) & real_rows[:, None]
        if over.any():
            finding = edge(verdict, b, Neighborhoods.from_dense(over), in_words(relation, rows, rows), True)
            verdict.broken("extra edges", finding)
            return
        if isinstance(relation, AtMost) or not scene.exact or one.num_edges != rows * rows:
            continue
        under = columns(Neighborhoods.from_dense(real_rows[:, None] & real_keys[None, :]), flow) - seen
        if under.num_edges and not _all_reached(seen, real_rows, flow):
            verdict.broken("missing edges", edge(verdict, b, under, in_words(relation, rows, rows), False))
            return
    verdict.held(f"extra edges, {rows} rows for {n} positions")


def _calls_before(flow: Flow, scene: Scene) -> list[Measured]:
    """The calls that may lie before an output: of those that read other inputs, too, none does where the
    output reads this one only (the rows of an encoder, beside a decoder's)."""
    if scene.readers.get(flow.output) != {flow.content}:
        return scene.calls
    return [call for call in scene.calls if call.query_inputs | call.key_inputs <= {flow.content}]


def _allowed(
    verdict: FlowVerdict, relation: Any, item: int, size: int
) -> tuple[Neighborhoods, np.ndarray] | None:
    """The relation at a size, and what all its steps reach; None, and open, where it does not fit."""
    one = single(relation, item)
    try:
        bound = one.on(size)
        return bound, closure_of(bound, one, size).dense()
    except ErlangenError as error:
        rows = verdict.flow.relations[0].queries
        verdict.opened(
            "extra and missing edges",
            f"{in_words(relation, rows, rows)} cannot be held against {rows} rows: "
            f"{without_masks(str(error))}",
        )
        return None


SHIFTED = 4
"""With so few rows more or less than positions, rows are positions that were moved, not of another rate."""


def _judge_shifted(verdict: FlowVerdict, relation: Any, by: int | None = None) -> None:
    """Rows of all positions but a few, or of a few tokens more: by how many places they moved is measured."""
    flow = verdict.flow
    rows, n = flow.relations[0].queries, flow.relations[0].keys
    by = _offset(flow) if by is None else by
    if by is None:
        verdict.opened(
            "extra and missing edges",
            f"{rows} rows for {n} positions, and by how many places they are moved could not be told: return "
            "one row for each position",
        )
        return
    first = max(0, by)  # the place of position 0; row 0 stands at first - by
    size = max(n + first, rows + first - by)
    for b, seen in enumerate(flow.relations):
        bound = _allowed(verdict, relation, b, size)
        if bound is None:
            return
        allowed = bound[1][first - by : first - by + rows, first : first + n]
        real_rows, _ = surely_real(verdict, b, rows, n)
        over = seen.dense() & ~allowed & real_rows[:, None]
        if over.any():
            finding = edge(verdict, b, Neighborhoods.from_dense(over), in_words(relation, rows, rows), True)
            verdict.broken("extra edges", finding)
            return
    verdict.held(f"extra edges, {rows} rows for {n} positions")


def _offset(flow: Flow) -> int | None:
    """By how many places rows are moved against positions: most positions move their own row most."""
    if flow.sizes is None:
        return None
    sizes = np.nan_to_num(flow.sizes, posinf=1e300).max(axis=0)
    columns = np.arange(sizes.shape[1]) if flow.positions is None else np.asarray(flow.positions)
    moved = sizes[:, columns].any(axis=0)
    if not moved.any():
        return None
    found, counts = np.unique((sizes[:, columns].argmax(axis=0) - columns)[moved], return_counts=True)
    best = counts.argmax()
    return int(found[best]) if counts[best] > moved.sum() / 2 else None


def everything(relation: object) -> bool:
    """Whether a relation allows everything, whatever the sizes are."""
    return (relation.relation if isinstance(relation, AtMost) else relation) == Full()


def _follows_ratio(flow: Flow) -> bool:
    """Whether most positions move the row most that they fall into, where all rows are spread evenly."""
    if flow.sizes is None:
        return False
    sizes = np.nan_to_num(flow.sizes, posinf=1e300).max(axis=0)
    rows, n = sizes.shape
    columns = np.arange(n) if flow.positions is None else np.asarray(flow.positions)
    moved = sizes[:, columns].any(axis=0)
    at = sizes[:, columns].argmax(axis=0)
    near = np.abs(at - columns * rows // n) <= (rows // n if rows > n else 0) + (
        n % rows != 0 if n > rows else 0
    )
    return bool(moved.any()) and float(near[moved].mean()) > 0.5


def surely_real(verdict: FlowVerdict, item: int, rows: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and positions that are real and do not border on padding, where a row may see both."""
    keys = verdict.real_keys
    if keys is None:
        return np.ones(rows, bool), np.ones(n, bool)
    real = keys[min(item, len(keys) - 1)]
    last = rows < n and at_the_end(verdict.flow, True)
    by = rows - n if last else None if _follows_ratio(verdict.flow) else _offset(verdict.flow)
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


def _all_reached(seen: Neighborhoods, rows: np.ndarray, flow: Flow) -> bool:
    """Whether the rows agree on what they read, and read most of it: at another rate a few positions (a rest,
    a border) may be read by nobody."""
    columns = np.arange(seen.keys) if flow.positions is None else np.asarray(flow.positions)
    dense = seen.dense()[rows][:, columns]
    agree = bool((dense.all(axis=0) | ~dense.any(axis=0)).all())
    return agree and float(dense.mean()) > 0.5


def _read_across(content: Content, scene: Scene) -> bool:
    """Whether a cross-attention call was seen to read this input."""
    return any(call.kind == "cross" and content.name in call.key_inputs for call in scene.calls)


def _judge_ambiguous(verdict: FlowVerdict, content: Content, scene: Scene) -> None:
    """As many positions as rows, yet rows do not follow them: another sequence, or this one, read wrongly."""
    silent = not any(seen.num_edges for seen in verdict.flow.relations)
    elsewhere = any(content.name in names for names in scene.readers.values())
    if (silent and elsewhere) or within_closure(verdict, content, scene):
        verdict.held("extra edges")
        return
    verdict.opened(
        "extra edges",
        f"{content.name} has as many positions as there are rows, which read it otherwise than expected: if "
        f"it is another sequence, of which anything may be read, say content=[...] without {content.name!r}",
    )


def judge_foreign(verdict: FlowVerdict, content: Content, scene: Scene) -> None:
    """Rows of another sequence: what cross-attention may read, where the expectation speaks of it."""
    relations = {call.index: expected_of(scene.expect, call) for call in scene.calls}
    crossing = [call for call in scene.calls if call.kind == "cross" and relations[call.index] is not None]
    rows = verdict.flow.relations[0].queries
    if content.axis is not None and content.length == rows and not _read_across(content, scene):
        _judge_ambiguous(verdict, content, scene)
        return
    if not (scene.covered and crossing) or content.axis is None:
        verdict.notes.append(f"nothing is expected of reading {content.name}, which is another sequence")
        return
    for b, seen in enumerate(verdict.flow.relations):

        def union(call: Measured, b: int = b) -> Neighborhoods:
            relation = relations[call.index]
            if relation is None:
                return Full().on(call.queries, call.keys)
            result = bind_expected(relation, call, b, 0, None)
            for head in range(1, call.heads):
                result = result | bind_expected(relation, call, b, head, None)
            return result

        product = predict(scene.calls, scene.contents, content, seen.queries, union)
        if product is None:
            verdict.notes.append(f"the calls between {content.name} and the output do not compose")
            return
        over = kept(seen - product, verdict.real, b)
        if over.num_edges:
            names = ", ".join(dict.fromkeys(str(r) for r in relations.values() if r is not None))
            verdict.broken("extra edges", edge(verdict, b, over, f"layers of {names}", True))
            return
    verdict.held("extra edges")

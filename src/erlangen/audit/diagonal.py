"""Rows that read their own position although the expectation leaves it out, as density models must not.

Influence is wider than attention: the query itself and a residual path let row i depend on position i
whatever the attention reads. That excuses a row where such a path is there, and nowhere else.
"""

from __future__ import annotations

import numpy as np

from erlangen.audit.bounds import edge, single
from erlangen.audit.expect import expected_of, in_words, overall
from erlangen.audit.flow_verdict import FlowVerdict, Scene
from erlangen.audit.inputs import Content
from erlangen.audit.obligations import Compared
from erlangen.audit.real import kept
from erlangen.errors import ErlangenError
from erlangen.relations import Neighborhoods, Relation


def judge_diagonal(verdict: FlowVerdict, content: Content, scene: Scene) -> None:
    """Hold rows that read their own position against an expectation without it."""
    relation = overall(scene.expect)
    if relation is None or _judged_by_calls(content, scene):
        return
    flow, strict = verdict.flow, False
    for item, seen in enumerate(flow.relations):
        without = left_out(single(relation, item), content.length)
        if without is None or not without.any():
            continue
        told = in_words(relation, content.length, content.length)
        if seen.queries != content.length:
            verdict.opened(
                Compared.OWN,
                f"{told} leaves a row's own position out, and which that is of {seen.queries} rows for "
                f"{seen.keys} positions cannot be told: return one row for each position",
            )
            return
        strict = True
        read = kept(Neighborhoods.from_dense(seen.dense() & np.diag(without)), verdict.real, item)
        if not read.num_edges:
            continue
        why = _another_path(verdict, content, scene, read)
        if why is None:
            verdict.broken(Compared.OWN, edge(verdict, item, read, told, True))
        elif why:
            i = int(read.edges()[0, 0])
            verdict.opened(
                Compared.OWN,
                f"row {i} depends on position {i}, which {told} leaves out, and {why}: expect "
                f"({told.removeprefix('at most ')}) | Identity() if a row may depend on itself",
            )
        else:
            continue
        return
    if strict:
        verdict.held(Compared.OWN)


def left_out(relation: Relation, n: int) -> np.ndarray | None:
    """The rows that do not read themselves in any number of steps; None where the relation has no such
    size.

    >>> from erlangen.relations import Causal, Full, Identity
    >>> left_out(Causal() - Identity(), 3).tolist(), left_out(Full() - Identity(), 3).tolist()
    ([True, True, True], [False, False, False])
    """
    try:
        bound = relation.on(n)
        if np.asarray(bound.contains(np.arange(n), np.arange(n))).all():
            return np.zeros(n, bool)
        closed = relation.closure().on(n)
    except ErlangenError:
        return None
    return ~np.asarray(closed.contains(np.arange(n), np.arange(n)))


def _judged_by_calls(content: Content, scene: Scene) -> bool:
    """Whether the diagonal was judged call by call: what remains is the query itself or a residual."""
    return scene.covered and any(
        content.name in call.query_inputs and expected_of(scene.expect, call) is not None
        for call in scene.calls
    )


def _another_path(verdict: FlowVerdict, content: Content, scene: Scene, read: Neighborhoods) -> str | None:
    """Why a row may depend on its own position all the same: a reason that leaves it open, an empty one that
    excuses it, None where there is none."""
    if verdict.role == "inner" or verdict.flow.features == 1:
        return "a loss compares each row with its own position: return what is predicted"
    if scene.hidden or any(content.name in call.query_inputs for call in scene.calls):
        return "whether attention reads it, or the query alone, could not be seen"
    found = None if scene.own_path is None else scene.own_path(read)
    if found == "residual":
        return ""
    if found == "product":
        return "whether a product of rows is attention, whose query is its own row, could not be told"
    return None

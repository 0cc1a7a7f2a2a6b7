"""A pooled output where everything may be read: nothing can be too much, and it must read every position."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from erlangen.audit.expect import Expectation, in_words, overall
from erlangen.audit.findings import Finding
from erlangen.audit.flow_rules.bounds import edge
from erlangen.audit.flow_rules.own_rows import SHARP
from erlangen.audit.flow_verdict import FlowVerdict, Scene
from erlangen.audit.inputs import Content
from erlangen.audit.support import of_item
from erlangen.audit.witnesses.flow import Flow
from erlangen.audit.witnesses.rounding import differs
from erlangen.audit.witnesses.runs import Runner
from erlangen.relations import Full, Neighborhoods

SEEDS = 4
"""So many other contents are tried where a position does not move the output: it may be picked by value."""
PLACES = 4
"""So many of these positions are tried, and as many of those that move it."""

CHANCE = 1
"""So often a position that is read may not move the output: two items may swap tokens in a mean over both."""


def must_read_all(expect: Expectation) -> bool:
    """Whether everything must be read, and not only may be."""
    return overall(expect) == Full()


def read_by_any(flows: Sequence[Flow]) -> list[np.ndarray]:
    """For each item, the positions that any pooled output moves with."""
    pooled = [flow for flow in flows if flow.pooled]
    items = max((len(flow.relations) for flow in pooled), default=0)
    return [
        np.any([of_item(flow.relations, b).dense().any(axis=0) for flow in pooled], axis=0)
        for b in range(items)
    ]


def unread(verdict: FlowVerdict, scene: Scene, runner: Runner) -> Finding | str | None:
    """A position that no pooled output reads, as a finding; a text where that cannot be told; None where all
    are read, or nothing is missing in these outputs."""
    flow = verdict.flow
    # Dropout takes positions away in training; rows that come out beside it show what is missing.
    if not scene.exact or scene.seen or scene.feeding.mode.train or flow.output not in scene.pooled:
        return None
    missing = _missing(flow, scene)
    if missing.any() and scene.awake is not None:
        awake = scene.awake(scene.content, flow.output)
        if awake is not None:
            missing &= ~np.stack([one.dense().any(axis=0) for one in awake.relations])
        elif scene.feeding.mode.autocast:
            return "in bfloat16 a small dependence is not seen, and the model has no copy in double precision"
    if not missing.any():
        return None
    item, first = (int(one) for one in np.argwhere(missing)[0])
    text = in_words(Full(), 1, scene.content.length)
    where = f"{flow.output or 'the output'} is not seen to depend on position {first}"
    tried = _among_other_content(runner, flow, scene.content, np.unique(np.argwhere(missing)[:, 1]))
    if tried is not None and tried.all_moved:
        return None
    if tried is None or tried.by_value:
        why = (
            "this could not be tried among other content"
            if tried is None
            else "which positions it reads changes with the content, as in a maximum"
        )
        return f"{where}, and {why}: give a shorter sequence, or expect AtMost(Full())"
    if _fades(flow, item, first):
        return (
            f"{where}: dependences fade out there, smaller than rounding; try a shorter sequence, or double "
            "precision"
        )
    rounding = None if scene.rounds is None else scene.rounds(first, first)
    if rounding is not None:
        return (
            f"{where}, and {rounding} makes integers of numbers that do: small changes end there; expect "
            "AtMost(Full())"
        )
    return edge(verdict, item, Neighborhoods.from_dense(missing[item][None]), text, False)


def _missing(flow: Flow, scene: Scene) -> np.ndarray:
    """(items, positions): real positions that were changed and that no pooled output moves with."""
    real, tried = scene.real.get(scene.content.name), np.zeros(scene.content.length, bool)
    tried[slice(None) if flow.positions is None else list(flow.positions)] = True
    rows = []
    for b in range(len(flow.relations)):
        row = tried & ~scene.read_by_any[b]
        if real is not None and real.shape[-1] == scene.content.length:
            marked = np.asarray(real.reshape(len(real), -1, scene.content.length).any(axis=1))
            row &= marked.any(axis=0) if flow.whole_batch else of_item(marked, b)
        rows.append(row)
    return np.stack(rows)


class _Tried(NamedTuple):
    """What positions do among other content."""

    all_moved: bool
    """Whether each that did not move the output does so there."""
    by_value: bool
    """Whether what moves the output changes with the content: a maximum takes the entries of some positions,
    and of others where these hold other content."""


def _among_other_content(runner: Runner, flow: Flow, content: Content, places: np.ndarray) -> _Tried | None:
    """Which of these positions move the output among other content; None where that cannot be run."""
    place = next(one for one in runner.places() if one.name == flow.output)
    read = np.flatnonzero(np.any([one.dense().any(axis=0) for one in flow.relations], axis=0))
    unmoved, moved = _few(places), _few(read)
    ever, still = np.zeros(len(unmoved), bool), 0
    every, together = range(content.length), False
    try:
        for seed in range(SEEDS if runner.inputs.vary is None else 1):
            if seed and runner.late:
                break
            before = place.rows(runner.changed(content, every, seed=seed))

            def moves(held: Sequence[int], seed: int = seed, before: torch.Tensor = before) -> bool:
                others = [j for j in every if j not in held]
                after = place.rows(runner.changed(content, others, seed=seed))
                return bool(differs(after, before)[0].any())

            ever |= np.array([moves([j]) for j in unmoved], bool)
            still += sum(not moves([j]) for j in moved)
            # None alone may move it, and all of them do: another position holds the same.
            together |= moves(places.tolist())
    except Exception:
        return None
    return _Tried(bool(ever.all()), bool(not moved or together or ever.any() or still > CHANCE))


def _few(places: np.ndarray) -> list[int]:
    at = np.linspace(0, len(places) - 1, min(PLACES, len(places))).astype(int)
    return [int(one) for one in places[at]]


def _fades(flow: Flow, item: int, position: int) -> bool:
    """Whether what is read beside a position moves the output by next to nothing."""
    if flow.sizes is None:
        return False
    sizes = np.nan_to_num(flow.sizes[item, 0], posinf=1e300)
    read = np.flatnonzero(flow.relations[item].dense().any(axis=0))
    if not len(read):
        return False
    return bool(sizes[read[np.abs(read - position).argmin()]] <= SHARP * (float(sizes.max()) or 1.0))

"""Padding invariance: the rows of a padded item are those of the same content without padding."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from erlangen.audit.arguments.resized import cut
from erlangen.audit.case import Case
from erlangen.audit.feeding import Alike, Given
from erlangen.audit.findings import Finding
from erlangen.audit.flow_rules.judge import padding_read_by
from erlangen.audit.flow_verdict import WHOLE
from erlangen.audit.inputs import Inputs
from erlangen.audit.obligations import Compared, Subject
from erlangen.audit.outputs import Place, places
from erlangen.audit.witnesses.double import copied, in_precision, recast
from erlangen.audit.witnesses.runs import Runner

ALIKE = 2000
"""Rows that should be equal may differ by so many units in the last place: other shapes sum in another
order."""
SINGLE = torch.finfo(torch.float32).eps
EVEN_IN_HALF = 4
"""Rounding in half precision may be this large where there is no copy in double to tell."""


def unpadded(given: Given) -> tuple[Alike, ...]:
    """For items that are padded as given: the same content alone, whose rows must be the same."""
    reading, found = given.reading, []
    if len(reading.sequences) != 1 or given.inputs.vary is not None:
        return ()
    content = reading.sequences[0]
    real = reading.real(content.name)
    if real is None or not content.sequence or content.batch_axis is None:
        return ()
    for item, row in enumerate(real):
        kept = np.flatnonzero(row)
        if row.all() or len(kept) < 2 or np.ptp(kept) + 1 != len(kept):
            continue
        span = (int(kept[0]), int(kept[-1]) + 1)
        alone = cut(given, {content.name: span}, "alone")
        found.append(Alike(alone, item, kept, kept - kept[0], content.name))
    return tuple(found[:2])


def compare_without_padding(case: Case, output: Any) -> None:
    """The rows of a padded item must be those of the same content without padding, up to rounding.

    So must all rows of other sequences, and a pooled output that takes no row of padding.
    """
    runner, feeding = case.runner, case.feeding
    for alike in feeding.alike:
        content = feeding.reading.content(alike.content)
        try:
            other = runner.on(alike.inputs)
        except Exception:
            continue  # the model does not take the shorter input: nothing to hold it against
        higher: tuple[list[Any] | None] | None = None  # run once, and only where it is asked for
        reading = feeding.reading.of(case.model, alike.inputs)
        theirs = {place.name: place for place in places(other, reading.contents, labels=reading.labels)}
        theirs |= {place.name: place for place in runner.places() if place.pairs}
        for place in runner.places():
            again = theirs.get(place.name)
            if place.discrete:
                continue  # an integer may jump where the number behind it differs by rounding
            if content is None or again is None or place.pooled != again.pooled or place.batch_axis is None:
                continue
            every, alone = place.rows(output), again.rows(other)
            rows = every[alike.item]
            if rows.shape[1:] != alone.shape[2:]:
                continue
            mine = _same_rows(case, place, alike, len(rows), alone.shape[1])
            if mine is None:
                continue
            apart = _apart(place, rows, alone, alike.item, *mine)
            told = apart
            if apart.eps > SINGLE or apart.worst > ALIKE * SINGLE:
                # In double precision a difference is none of rounding, inside the model or of its type.
                higher = higher or (in_double(runner, [feeding.inputs, alike.inputs]),)
                told, (pair,) = None, higher
                if pair is not None:
                    rows, alone = place.rows(pair[0])[alike.item], again.rows(pair[1])
                    told = _apart(place, rows, alone, alike.item, *mine)
            _settle(case, place, alike.item % len(every), apart, told)


def _same_rows(
    case: Case, place: Place, alike: Alike, rows: int, theirs: int
) -> tuple[np.ndarray, np.ndarray] | None:
    """Which rows must be equal to which; None where nobody can say."""
    reading = case.reading
    content = reading.content(alike.content)
    assert content is not None
    if place.pooled:
        flows = [
            one for one in case.result.flows
            if (one.flow.output, one.flow.content, one.role) == (place.name, alike.content, "pooled")
        ]  # fmt: skip
        loss = bool(reading.labels) and any(one.flow.features == 1 for one in flows)
        taken = [one for one in flows if len(padding_read_by(one, alike.item % len(one.flow.relations)))]
        return None if loss or taken or not flows else (np.zeros(1, int), np.zeros(1, int))
    if rows == content.length and theirs == len(alike.theirs):
        return alike.rows, alike.theirs
    other = next(
        (one for one in reading.sequences if one is not content and one.length == rows == theirs), None
    )
    if other is None:
        return None
    real = reading.real(other.name)
    kept = np.arange(rows) if real is None else np.flatnonzero(real[alike.item])
    return kept, kept


class _Apart(NamedTuple):
    """How far rows are from those without padding."""

    worst: float
    """As a part of the largest entry of its column."""
    row: int
    moved: bool
    """Whether the first row stands elsewhere."""
    eps: float


def _apart(
    place: Place, rows: torch.Tensor, items: torch.Tensor, item: int, kept: np.ndarray, others: np.ndarray
) -> _Apart:
    mine, theirs = rows[torch.from_numpy(kept)], items[item][torch.from_numpy(others)]
    apart = (mine.double() - theirs.double()).abs().nan_to_num()
    # Column by column: one banned logit of -1e9 must not excuse the others.
    entries = items.double().abs().nan_to_num(posinf=0, neginf=0)
    if place.pooled:  # a single row has small entries by chance
        scale = entries.amax((0, 1)).clamp(min=float(entries.median()) or 1e-6)
    else:
        scale = entries[item].amax(0).clamp(min=1e-6)
    worst = float((apart / scale).max())
    row = int(kept[int(apart.flatten(1).amax(-1).argmax())])
    moved = bool(len(kept)) and kept[0] != others[0]
    return _Apart(worst, row, moved, torch.finfo(rows.dtype).eps)


def _settle(case: Case, place: Place, item: int, apart: _Apart, told: _Apart | None) -> None:
    """`apart` is in the model's own precision, `told` in the one that decides, None where there is none."""
    name = place.name
    which = name if name and not name.isdigit() else f"output {name}" if name else "the output"
    which = which if place.pooled else f"row {apart.row} of {which}"
    text = f"item {item}: {which} differs by {apart.worst:.1g} from the same content without padding"
    if apart.moved:
        text += "; positions that are absolute count the padding: pass position_ids, or pad on the right"
    what = Subject(Compared.INVARIANCE, output=name)
    if told is None and apart.eps > SINGLE:
        if apart.worst <= EVEN_IN_HALF * apart.eps:
            case.settle(what, None)
        elif not case.feeding.tolerant:
            reason = (
                "which may be rounding, and the model has no copy in double precision: audit it in float32"
            )
            case.open(what, f"{text}, {reason}")
    elif (told or apart).worst <= ALIKE * min(apart.eps, SINGLE):
        case.settle(what, None)
    elif case.feeding.tolerant:
        case.note(f"{case.label}: {text}")
    else:
        finding = Finding(
            "invariance", WHOLE, item=item, where=case.label, size=apart.worst, detail=text,
            output=name or None,
        )  # fmt: skip
        case.settle(what, finding)


def in_double(runner: Runner, several: list[Inputs]) -> list[Any] | None:
    """The outputs of a copy in double precision, without the model's own casts; None where it has none."""
    try:
        return [
            runner.on(
                inputs.map(lambda tensor: recast(tensor, torch.float64)),
                in_precision(torch.float64, casts=False),
                copied(runner.model, torch.float64),
            )
            for inputs in several
        ]
    except Exception:
        return None

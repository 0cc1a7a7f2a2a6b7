"""Padding at the end of one sequence, and at its start, where the model takes a padding mask."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch

from erlangen.audit.feedings.feeding import Alike, Feeding, Given, cut
from erlangen.audit.inputs import Content, Inputs
from erlangen.audit.reading import SOUND, Mask


def feedings(given: Given) -> Iterator[Feeding]:
    """The last item padded at its end, then at its start: nobody may read what stands there (T4).

    Padding that the given inputs mark themselves is judged as it is given; here it is taken away first.
    """
    made = _mask(given)
    if made is None:
        return
    content, mask, inputs = made
    if not mask.real().all():
        whole = replace(mask, tensor=mask.unpadded())
        inputs, mask = _with_mask(inputs, mask, whole.tensor), whole
        if not given.runs(inputs):
            return
    quarter = max(1, content.length // 4)
    n = content.length
    for label, hidden, kept in (
        ("padded", slice(n - quarter, n), (0, n - quarter)),
        ("padded left", slice(0, quarter), (quarter, n)),
    ):
        if label == "padded left" and (n - quarter < 2 or mask.lengths):
            continue
        tensor = mask.padded(-1, hidden)
        fed = _with_mask(inputs, mask, tensor)
        if label == "padded left":
            fed = _with_positions(given, fed, mask, tensor)
        masks = [one for one in given.reading.masks if one.name != mask.name]
        reading = replace(given.reading, masks=[*masks, mask])
        one = replace(given, inputs=fed, reading=reading)
        short = cut(replace(given, inputs=inputs, reading=reading), {content.name: kept}, "alone")
        rows = np.arange(*kept)
        yield replace(
            one.feeding(label, fed),
            alike=(Alike(short, -1, rows, rows - kept[0]),) if len(reading.sequences) == 1 else (),
            tolerant=label == "padded left",
        )


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
        found.append(Alike(cut(given, {content.name: span}, "alone"), item, kept, kept - kept[0]))
    return tuple(found[:2])


def _mask(given: Given) -> tuple[Content, Mask, Inputs] | None:
    """The first sequence with a mask of its own, given or accepted under the name `attention_mask`."""
    reading = given.reading
    for content in reading.sequences:
        mask = reading.mask(content.name)
        if (
            mask is not None
            and mask.rate == 1
            and content.sequence
            and content.batch_axis is not None
            and content.length >= 4
        ):
            return content, mask, given.inputs
    try:
        parameters = inspect.signature(given.model.forward).parameters
    except (TypeError, ValueError):
        return None
    content = next((one for one in reading.sequences if one.sequence and one.batch_axis == 0), None)
    if content is not None and content.name.rpartition(".")[2] in SOUND:
        return None  # models of sound take a mask for other ends than attention
    if content is None or content.length < 4 or "attention_mask" not in parameters:
        return None
    if (
        "attention_mask" in given.inputs.named(given.model)
        and given.inputs.kwargs.get("attention_mask") is not None
    ):
        return None
    if len(given.inputs.args) > list(parameters).index("attention_mask"):
        return None
    ones = torch.ones(content.batch, content.length, dtype=torch.long, device=content.tensor.device)
    inputs = replace(given.inputs, kwargs={**given.inputs.kwargs, "attention_mask": ones})
    if not given.runs(inputs):
        return None
    return content, Mask("attention_mask", ones, content.name, hides=False), inputs


def _with_mask(inputs: Inputs, mask: Mask, tensor: torch.Tensor) -> Inputs:
    return inputs.map(lambda part: tensor if part is mask.tensor else part)


def _with_positions(given: Given, inputs: Inputs, mask: Mask, tensor: torch.Tensor) -> Inputs:
    """Positions that count real tokens, where the model takes `position_ids` and none are given."""
    try:
        takes = "position_ids" in inspect.signature(given.model.forward).parameters
    except (TypeError, ValueError):
        return inputs
    if not takes or inputs.named(given.model).get("position_ids") is not None:
        return inputs
    real = torch.from_numpy(replace(mask, tensor=tensor).real()).to(mask.tensor.device)
    positions = (real.long().cumsum(-1) - 1).clamp(min=0)
    fed = replace(inputs, kwargs={**inputs.kwargs, "position_ids": positions})
    return fed if given.runs(fed) else inputs

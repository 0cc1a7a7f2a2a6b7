"""Padding at the end of one sequence, and at its start, where the model takes a padding mask."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

import numpy as np
import torch

from erlangen.audit.arguments.containers import holds_keys
from erlangen.audit.arguments.masks import Mask
from erlangen.audit.arguments.reading import SOUND
from erlangen.audit.arguments.resized import cut, may_cut, more_items
from erlangen.audit.feeding import FEEDINGS, Alike, Feeding, Given, Way, register
from erlangen.audit.inputs import Content, Inputs
from erlangen.audit.outputs import floating
from erlangen.errors import DataError


@register
class Padded(Way):
    """The last item padded at its end, then at its start: nobody may read what stands there (T4).

    There are two items at least, of which the first is whole: a mask may be taken from another item. Every
    mask is tried by itself. Padding that the given inputs mark themselves is judged as it is given; here it
    is taken away first.
    """

    name = "padded"
    order = 20

    def make(self, given: Given) -> Iterator[Feeding]:
        given = _of_two(given)
        for number, (content, mask, inputs) in enumerate(_masks(given)):
            yield from _padded(given, content, mask, inputs, "" if number == 0 else f" ({mask.name})")


class _Side(Way):
    """Padding on one side alone, for models that are only ever padded there: who asks for it means it,
    whatever the given mask shows."""

    half_of = Padded.name
    side: ClassVar[str]

    def make(self, given: Given) -> Iterator[Feeding]:
        every = FEEDINGS[self.half_of].make(given)
        return (replace(one, unshown="") for one in every if one.pads == self.side)


@register
class PaddedRight(_Side):
    """Padding at the end alone."""

    name, side, order = "padded right", "right", 20


@register
class PaddedLeft(_Side):
    """Padding at the start alone."""

    name, side, order = "padded left", "left", 21


def side_shown(mask: Mask) -> str:
    """The side on which a given mask marks padding, "right" or "left"; empty where it marks none, on both
    sides, or in between.

    >>> tensor = torch.tensor([[1, 1, 1], [1, 1, 0]])
    >>> side_shown(Mask("mask", tensor, "x", False)), side_shown(Mask("mask", tensor.flip(1), "x", False))
    ('right', 'left')
    """
    real = mask.real()
    ends = np.asarray(np.logical_and.accumulate(real, axis=1) == real).all()
    starts = np.asarray(np.logical_and.accumulate(real[:, ::-1], axis=1) == real[:, ::-1]).all()
    if real.all() or ends == starts:
        return ""
    return "right" if ends else "left"


def _of_two(given: Given) -> Given:
    """A batch of one with a second sequence, where the model takes it."""
    if any(one.batch > 1 or one.embedding is not None for one in given.reading.contents):
        return given
    more = more_items(given, given.inputs)
    if more is None or not given.runs(more):
        return given
    return replace(given, inputs=more, reading=given.reading.of(given.model, more))


def _padded(given: Given, content: Content, mask: Mask, inputs: Inputs, named: str) -> Iterator[Feeding]:
    shown = side_shown(mask)
    if not mask.real().all():
        whole = replace(mask, tensor=mask.unpadded())
        inputs, mask = _with_mask(inputs, mask, whole.tensor), whole
        if not given.runs(inputs):
            return
    n = content.length
    hide = max(2, n // 4)  # two at least: a pooled output that takes one row by its place reads one of them
    for side, label, hidden, kept in (
        ("right", "padded", slice(n - hide, n), (0, n - hide)),
        ("left", "padded left", slice(0, hide), (hide, n)),
    ):
        if side == "left" and (n - hide < 2 or mask.lengths):
            continue
        tensor = mask.padded(-1, hidden)
        fed = _with_mask(inputs, mask, tensor)
        added = [] if mask.name in given.inputs.leaves(given.model) else [mask.name]
        if side == "left":
            placed = _with_positions(given, fed, mask, tensor)
            added += ["position_ids"] if placed is not fed else []
            fed = placed
        masks = [one for one in given.reading.masks if one.name != mask.name]
        reading = replace(given.reading, masks=[*masks, mask])
        one = replace(given, inputs=fed, reading=reading)
        short = cut(replace(given, inputs=inputs, reading=reading), {content.name: kept}, "alone")
        rows = np.arange(*kept)
        alone = _cuts(one, content) and may_cut(one, content, kept)
        yield replace(
            one.feeding(label + named, fed),
            alike=(Alike(short, -1, rows, rows - kept[0], content.name),) if alone else (),
            pads=side,
            other_items=True,
            unshown=mask.name if shown not in ("", side) else "",
            added=" and ".join(added),
        )


def _cuts(given: Given, content: Content) -> bool:
    """Whether one sequence can be cut without touching what belongs to another one of its length."""
    reading = given.reading
    if not any(one.length == content.length for one in reading.sequences if one is not content):
        return True
    parts = (*reading.contents, *reading.masks, *reading.labels)
    return set(given.inputs.leaves(given.model)) <= {one.name for one in parts}


ACCEPTED = ("attention_mask", "decoder_attention_mask")
"""Masks that are made where the model takes them under these names and none are given."""


def _masks(given: Given) -> Iterator[tuple[Content, Mask, Inputs]]:
    """Every sequence with a mask of its own, given or accepted under a known name."""
    reading, masked = given.reading, set[str]()
    for content in reading.sequences:
        mask = reading.mask(content.name)
        masked |= set() if mask is None else {content.name}
        if mask is not None and mask.rate == 1 and _paddable(content):
            yield content, mask, given.inputs
    for name in ACCEPTED:
        made = _accepted(given, name, masked)
        if made is not None:
            yield made


def _paddable(content: Content) -> bool:
    return content.sequence and content.batch_axis is not None and content.length >= 4


def _accepted(given: Given, name: str, masked: set[str]) -> tuple[Content, Mask, Inputs] | None:
    """A mask that the model takes and was not given, of the first sequence or of the decoder's."""
    try:
        parameters = inspect.signature(given.model.forward).parameters
    except (TypeError, ValueError):
        return None
    decoder = name.startswith("decoder")
    found = [one for one in given.reading.sequences if one.sequence and one.batch_axis == 0]
    found = [one for one in found if not decoder or one.name.startswith("decoder")]
    content = found[0] if found else None
    if content is None or not _paddable(content) or name not in parameters or content.name in masked:
        return None
    if content.name.rpartition(".")[2] in SOUND:
        return None  # models of sound take a mask for other ends than attention
    if name == "attention_mask" and content.name.startswith("decoder_"):
        return None  # then `attention_mask` is the encoder's
    if name in given.inputs.named(given.model) and given.inputs.kwargs.get(name) is not None:
        return None
    if len(given.inputs.args) > list(parameters).index(name):
        return None
    if any(holds_keys(key, value) for key, value in given.inputs.named(given.model).items()):
        return None  # it would have to speak of the cached keys, too
    choices = content.axis == 2 and content.pool is not None
    shape = content.tensor.shape if choices else (content.batch, content.length)
    ones = torch.ones(shape, dtype=torch.long, device=content.tensor.device)
    inputs = replace(given.inputs, kwargs={**given.inputs.kwargs, name: ones})
    if not given.runs(inputs):
        return None
    if _packed(given) and not _alike(given, inputs):
        raise DataError(
            f"with an {name} of ones the outputs are others than without: the documents that the positions "
            f"tell are told only while there is none, so none was added; give {name} to try it"
        )
    return content, Mask(name, ones, content.name, hides=False), inputs


def _packed(given: Given) -> bool:
    """Whether positions that were given start anew on the way: several documents in one sequence."""
    leaves = given.inputs.leaves(given.model)
    named = [leaves[name] for name, why in given.reading.ignored.items() if why == "positions"]
    return any(one.dim() > 0 and bool((one.diff(dim=-1) < 0).any()) for one in named)


def _alike(given: Given, inputs: Inputs) -> bool:
    """Whether outputs are those of the given inputs, up to rounding."""
    if given.on is None:
        return True
    before, after = (dict(floating(given.on(one))) for one in (given.inputs, inputs))
    return all(
        name in after
        and after[name].shape == one.shape
        and torch.allclose(after[name], one, rtol=1e-2, atol=1e-3 * float(one.abs().nan_to_num().max()))
        for name, one in before.items()
    )


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

"""The ambiguities of inputs, settled by running the model: axes, meanings of masks, tokens that must stay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from erlangen.audit.arguments.alignment import aligned, indices, one_sequence
from erlangen.audit.arguments.axes import (
    along_third_axis,
    as_pixels,
    ask_which_is_length,
    documented,
    length_first,
)
from erlangen.audit.arguments.embedding import embedding_of
from erlangen.audit.arguments.masks import Mask
from erlangen.audit.arguments.pad_tokens import pad_tokens
from erlangen.audit.arguments.reading import Reading, as_content, place_masks_again, special_tokens
from erlangen.audit.arguments.recurrent import states
from erlangen.audit.arguments.roles import decoding, hiding, not_hiding
from erlangen.audit.inputs import Content, Inputs, with_content
from erlangen.audit.outputs import floating, moved_entries

Run = Callable[..., Any]
"""run(inputs, within=None): the output on these inputs, from the same random state and with the model's state
put back before it; the model runs inside the context `within`."""


def measured(model: nn.Module, inputs: Inputs, found: Reading, run: Run) -> Reading:
    """The reading with its ambiguities settled by running the model.

    - *Axes.* Of two leading axes the batch is the one along which nothing is read.
    - *Masks.* A value of a mask marks padding when positions that have it are read by no other row.
    - *Tokens.* Where other ids are refused (placeholders), content is changed behind the embedding.
    """
    found = along_third_axis(model, inputs, as_pixels(model, inputs, found, run), run)
    found = _oriented(model, inputs, _along(model, inputs, _series(inputs, found, run), run), run)
    found = states(inputs, one_sequence(inputs, found, run), run)
    found = measured_lengths(inputs, inputs.leaves(model), found, run)
    found = indices(model, inputs, aligned(model, inputs, found, run), run)
    found = hiding(
        inputs,
        found,
        lambda mask: _polarity(inputs, mask, found, run),
        lambda mask: _groups(inputs, mask, found, run),
    )
    found = decoding(inputs, found, run)
    found.contents = [_changeable(model, inputs, one, found, run) for one in found.contents]
    found.contents = [one for one in found.contents if one.name not in found.ignored]
    found.masks = [_polarity(inputs, mask, found, run) for mask in found.masks]
    known = len(found.contents)
    found = not_hiding(inputs, found, run, lambda mask: as_content(model, mask.name, mask.tensor, found))
    found.contents[known:] = [_changeable(model, inputs, one, found, run) for one in found.contents[known:]]
    found.contents = [one for one in found.contents if one.name not in found.ignored]
    found = pad_tokens(model, inputs, found, run, lambda one: embedding_of(model, inputs, one, run))
    return open_where_nothing_is_real(found)


def _moves(run: Run, inputs: Inputs, content: Content, tensor: torch.Tensor, base: Any) -> list[torch.Tensor]:
    """For every floating output: which entries move when the content is this tensor."""
    return list(moved_entries(base, run(with_content(inputs, content, tensor))).values())


def _follows(inputs: Inputs, content: Content, axis: int, run: Run) -> bool:
    """Whether the model runs when an axis is shorter by one: positions can be fewer, features not."""
    try:
        run(with_content(inputs, content, content.tensor.narrow(axis, 0, content.tensor.shape[axis] - 1)))
    except Exception:
        return False
    return True


def _series(inputs: Inputs, found: Reading, run: Run) -> Reading:
    """Read (batch, time) numbers as such: the rows of (length, features) would be read by one another."""
    one = found.contents[0] if len(found.contents) == 1 else None
    if (
        one is None
        or one.pool is not None
        or one.tensor.dim() != 2
        or one.axis != 0
        or inputs.content is not None
    ):
        return found
    if min(one.tensor.shape) < 2:
        return found
    try:
        base = run(inputs)
        mixes = []
        for axis in (0, 1):
            mixes.append(_mixes(run, inputs, one, axis, base))
    except Exception:
        return found
    if mixes != [False, True] or not _follows(inputs, one, 1, run):
        return found
    note = f"{one.name} was read as (batch, length): nothing is read along its first axis"
    return replace(found, contents=[replace(one, axis=1, batch_axis=0)], notes=[*found.notes, note])


def _along(model: nn.Module, inputs: Inputs, found: Reading, run: Run) -> Reading:
    """Move the positions of (batch, channels, time) to the last axis, if a convolution takes them."""
    one = found.contents[0] if len(found.contents) == 1 and not found.masks else None
    if one is None or inputs.content is not None or inputs.vary is not None or one.pool is not None:
        return found
    if one.patch is not None or one.block > 1 or one.axis != 1 or one.batch_axis != 0 or one.tensor.dim() < 3:
        return found
    channels = {m.in_channels for m in model.modules() if isinstance(m, nn.Conv1d | nn.Conv2d | nn.Conv3d)}
    if one.tensor.shape[1] not in channels or one.tensor.shape[2] < 2:
        return found
    if _follows(inputs, one, 1, run) or not _follows(inputs, one, 2, run):
        return found
    note = f"{one.name} was read as (batch, channels, length): its second axis cannot be shorter"
    return replace(found, contents=[replace(one, axis=2)], notes=[*found.notes, note])


def _mixes(run: Run, inputs: Inputs, content: Content, axis: int, base: Any) -> bool | None:
    """Whether entries along one of two leading axes move with others; None where no output has these axes.

    Both the first and the last entry are changed: who reads only one way does not move with the other.
    """
    size, seen = content.tensor.shape[:2], False
    for index in (0, size[axis] - 1):
        changed, where = content.tensor.clone(), (slice(None),) * axis + (index,)
        changed[where] = content._fresh(0)[where]
        for moved in _moves(run, inputs, content, changed, base):
            if moved.dim() >= 2 and moved.shape[:2] == size[::-1] != size:
                moved = moved.transpose(0, 1)  # what is given steps first may come out batch first
            if moved.dim() >= 2 and moved.shape[:2] == size:
                seen = True
                rows = moved.flatten(2).any(-1) if moved.dim() > 2 else moved
                rows.select(axis, index).fill_(False)
                if bool(rows.any()):
                    return True
    return False if seen else None


def _oriented(model: nn.Module, inputs: Inputs, found: Reading, run: Run) -> Reading:
    """Swap the axes of positions and batch where the model mixes along the first axis and not the second."""
    first = found.contents[0] if found.contents else None
    if type(model).__module__.startswith("torch.nn"):
        return documented(model, inputs, found, run)
    if (
        first is None or hasattr(model, "config") or inputs.content is not None or inputs.vary is not None
        or first.patch is not None
        or first.axis != 1 or first.batch_axis != 0 or min(first.tensor.shape[:2]) < 2
    ):  # fmt: skip
        return found
    base = run(inputs)
    size = first.tensor.shape[:2]
    try:
        mixes = [_mixes(run, inputs, first, axis, base) for axis in (0, 1)]
    except Exception:
        return found
    told = length_first(model, inputs, first, run) if mixes == [True, False] else False
    if told is False:
        return found
    swapped = [
        replace(one, axis=0, batch_axis=1) if one.tensor.shape[:2] == size and one.axis == 1 else one
        for one in found.contents
    ]
    note = f"{first.name} was read as (length, batch, ...): nothing is read along its second axis"
    found = replace(found, contents=swapped, notes=[*found.notes, note])
    place_masks_again(inputs, inputs.leaves(model), found)
    if told is None:
        ask_which_is_length(found, first)
    return found


def _changeable(model: nn.Module, inputs: Inputs, content: Content, found: Reading, run: Run) -> Content:
    """The content, changed behind its embedding where its ids must stay; left out where nothing may
    change."""
    if inputs.vary is not None:
        return content
    special = special_tokens(model) if content.pool is not None else set()
    if not special & set(content.tensor.flatten().tolist() if special else ()):
        try:
            run(with_content(inputs, content, content.changed(range(content.length))))
            if content.pool is None or content.length < 2:
                return content
            run(with_content(inputs, content, content.changed(content.length // 2)))
            return content
        except Exception as error:
            reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    else:
        reason = "its special tokens must stay where they are"
    embedding = None if content.pool is None else embedding_of(model, inputs, content, run)
    if embedding is not None:
        found.notes.append(
            f"{content.name}: content was changed behind the embedding {embedding or '(model)'}: "
            f"changing the ids alone is not valid ({reason})"
        )
        return replace(content, embedding=embedding)
    if special:
        return content
    found.refused.append(content.name)
    found.ignored[content.name] = f"changing {content.name} alone is not a valid input ({reason})"
    return content


def _groups(inputs: Inputs, mask: Mask, found: Reading, run: Run) -> bool:
    """Whether two hidden positions, the last ones, read each other: positions of a document, not padding."""
    content = found.content(mask.content)
    if content is None or content.axis is None:
        return False
    tensor = torch.full_like(mask.tensor, int(not mask.hides))
    tensor[..., -2:] = torch.tensor(int(mask.hides), device="cpu").to(tensor)
    given = inputs.map(lambda part: tensor if part is mask.tensor else part)
    moved = _moves(run, given, content, content.changed(content.length - 2), run(given))
    rows = [m.transpose(0, 1) if content.axis == 0 else m for m in moved if m.dim() >= 2]
    rows = [m for m in rows if m.dim() > 2 and m.shape[1] == content.length]
    return any(bool(m[:, -1].any()) for m in rows) if rows else any(bool(m.any()) for m in moved)


def _polarity(inputs: Inputs, mask: Mask, found: Reading, run: Run) -> Mask:
    """Which value of a mask marks padding: positions with that value are read by no other row.

    Where the mask has no effect, or hides nothing in either reading, the meaning of its type and name stays.
    """
    content = found.content(mask.name if mask.name == mask.content else mask.content)
    if content is None or content.axis is None or content.length < 3 or content.embedding is not None:
        return mask
    if (
        mask.tensor.is_floating_point()
        or mask.name in (inputs.padding or {})
        or mask.rate > 1
        or mask.lengths
    ):
        return mask
    last = content.length - 2
    reads: dict[bool, bool] = {}
    for value in (False, True):
        tensor = mask.tensor.clone()
        tensor[..., last] = torch.tensor(int(value), device="cpu").to(tensor)
        given = inputs.map(lambda part, new=tensor: new if part is mask.tensor else part)
        try:
            base = run(given)
            changed = content.changed(last)
            moved = _moves(run, with_content(given, content, content.tensor), content, changed, base)
        except Exception:
            return mask
        rows = [m.transpose(0, 1) if content.axis == 0 else m for m in moved if m.dim() >= 2]
        rows = [m.flatten(2).any(-1) for m in rows if m.dim() > 2 and m.shape[1] == content.length]
        if rows:
            reads[value] = any(
                bool(m[:, torch.arange(content.length, device="cpu") != last].any()) for m in rows
            )
        elif moved and all(m.dim() and content.length not in m.shape for m in moved):
            reads[value] = any(bool(m.any()) for m in moved)  # pooled: no row is its own
        else:
            return mask
    if reads[False] == reads[True]:
        return mask
    return meant(mask, not reads[True], found)


def meant(mask: Mask, hides: bool, found: Reading) -> Mask:
    """The mask with the meaning that was measured, unless that cannot be what is meant.

    `attention_mask` is 1 where a position is real, whatever the model does with it; and nobody gives a
    sequence of which every position is padding. A model that takes the mask upside down would otherwise be
    right by definition: it is judged by what is meant.
    """
    measured = replace(mask, hides=hides, measured=True)
    if hides == mask.hides:
        return measured
    named = mask.name.rpartition(".")[2].endswith("attention_mask")
    nothing_left = not bool(measured.real().any(axis=-1).all())
    if not named and not nothing_left:
        return measured
    why = "its name says" if named else "nothing would be left of an item otherwise, so that"
    note = (
        f"{mask.name}: positions with the value {int(hides)} are read by no other row, although {why} "
        f"{int(hides)} is what is real"
    )
    found.notes[:] = list(dict.fromkeys([*found.notes, note]))
    return mask


def open_where_nothing_is_real(found: Reading) -> Reading:
    """A mask that leaves no position real leaves nothing to compare, and that is said."""
    for mask in found.masks:
        if not bool(mask.real().any()):
            found.opened[mask.name] = (
                f"{mask.name} marks every position of {mask.content} as padding, so that nothing could be "
                "compared: give some that are real"
            )
    return found


def measured_lengths(
    inputs: Inputs, leaves: dict[str, torch.Tensor], found: Reading, run: Callable[..., Any]
) -> Reading:
    """Take integers (batch,) for the lengths of the first sequence where they hide what lies behind them.

    Whatever they are called: with a short length no row but its own moves with a position behind it, and with
    the full length one does.
    """
    first = found.sequences[0] if found.sequences else None
    if first is None or inputs.content is not None or inputs.vary is not None or not first.sequence:
        return found
    if first.length < 4 or first.batch_axis is None or found.mask(first.name) is not None:
        return found
    for name, tensor in leaves.items():
        waiting = found.ignored.get(name) == "sizes" or found.content(name) is not None
        if not waiting or tensor.is_floating_point() or tuple(tensor.shape) != (first.batch,):
            continue
        if not bool(((tensor >= 1) & (tensor <= first.length)).all()):
            continue
        try:
            hidden = not _reads(inputs, tensor, first.length // 2, first, run)
            if hidden and _reads(inputs, tensor, first.length, first, run):
                _take(found, name, tensor, first)
                return found
        except Exception:
            continue  # other numbers are refused: they are something else
    return found


def _take(found: Reading, name: str, tensor: torch.Tensor, first: Content) -> None:
    found.ignored.pop(name, None)
    found.contents = [one for one in found.contents if one.name != name]
    found.masks.append(Mask(name, tensor, first.name, False, lengths=first.length, measured=True))
    found.notes.append(
        f"{name} was read as the lengths of {first.name}: what lies behind them is read by no other row"
    )


def _reads(inputs: Inputs, sizes: torch.Tensor, size: int, content: Content, run: Callable[..., Any]) -> bool:
    """Whether anything but its own row moves with the last position but one, where all lengths are `size`."""
    place = content.length - 2
    given = inputs.map(lambda part: torch.full_like(part, size) if part is sizes else part)
    before = dict(floating(run(given)))
    after = dict(floating(run(with_content(given, content, content.changed(place)))))
    axis = content.axis or 0
    for name, tensor in before.items():
        other = after.get(name)
        if other is None or other.shape != tensor.shape:
            return True
        moved = (other != tensor) & ~(other.isnan() & tensor.isnan())
        if moved.dim() > axis and moved.shape[axis] == content.length:
            moved.select(axis, place).fill_(False)
        if bool(moved.any()):
            return True
    return False

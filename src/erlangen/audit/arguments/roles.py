"""Roles of inputs by what they do: zeros and ones that hide positions, labels that are a decoder's input."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch

from erlangen.audit.arguments.masks import Mask, says_mask
from erlangen.audit.arguments.reading import Reading, is_labels
from erlangen.audit.inputs import Content, Inputs, with_content
from erlangen.audit.outputs import floating

_PLAIN = {
    "mask", "masks", "valid", "attn", "key", "keys", "input", "inputs", "src", "tgt", "source", "target",
    "encoder", "decoder", "context", "memory", "query", "token", "tokens", "seq", "sequence", "x", "is",
}  # fmt: skip
"""Words of names that say nothing but that this is a padding mask, and of what."""


def hiding(
    inputs: Inputs, found: Reading, polarity: Callable[[Mask], Mask], groups: Callable[[Mask], bool]
) -> Reading:
    """Move inputs of zeros and ones from the contents to the masks where one of their values hides positions.

    `groups` says whether positions of that value read each other: then they are documents, not padding.
    """
    if inputs.content is not None or inputs.vary is not None:
        return found
    for one in list(found.contents):
        if one.pool is None or one.axis is None or not _yes_or_no(one.tensor):
            continue
        about = next(
            (
                other for other in found.sequences
                if other is not one and found.mask(other.name) is None
                and (other.batch, other.length) == (one.batch, one.length)
            ),
            None,
        )  # fmt: skip
        if about is None:
            continue
        mask = polarity(Mask(one.name, one.tensor, about.name, hides=False))
        if mask.measured and not groups(mask):
            found.contents.remove(one)
            found.masks.append(mask)
            found.notes.append(
                f"{one.name} was read as a padding mask of {about.name}: positions with the value "
                f"{int(mask.hides)} are read by no other row"
            )
    return found


def not_hiding(
    inputs: Inputs, found: Reading, run: Callable[..., Any], as_content: Callable[[Mask], Content]
) -> Reading:
    """Take masks of yes and no for content where they hide nothing and their name does not say that they
    should."""
    if inputs.content is not None or inputs.vary is not None:
        return found
    for mask in list(found.masks):
        told = mask.measured or mask.lengths or mask.rate > 1 or mask.name in (inputs.padding or {})
        if told or mask.tensor.is_floating_point() or _named_for_padding(mask):
            continue
        found.masks.remove(mask)
        content = as_content(mask)
        if not _moves(inputs, content, run):
            found.ignored[mask.name] = "it moves no output"
            continue
        found.contents.append(content)
        if says_mask(mask.name):
            found.opened[mask.name] = (
                f"{mask.name} is not seen to hide a position of {mask.content}: if it marks padding say "
                f"padding={{{mask.name!r}: {mask.content!r}}}, otherwise name it in content=[...]"
            )
    return found


def _named_for_padding(mask: Mask) -> bool:
    words = _words(mask.name)
    if "attention" in words or any("pad" in word for word in words):
        return True
    return says_mask(mask.name) and words <= _PLAIN | _words(mask.content)


def _words(name: str) -> set[str]:
    return {word for word in re.split(r"[^a-z]+", name.lower()) if word}


def _yes_or_no(tensor: torch.Tensor) -> bool:
    return tensor.dtype == torch.bool or bool(((tensor == 0) | (tensor == 1)).all())


def _moved(inputs: Inputs, content: Content, run: Callable[..., Any]) -> list[torch.Tensor] | None:
    """The outputs that move when all of an input is another one; None where it may not change."""
    try:
        before = dict(floating(run(inputs)))
        after = dict(floating(run(with_content(inputs, content, content.changed(range(content.length))))))
    except Exception:
        return None
    return [
        tensor
        for name, tensor in before.items()
        if name not in after or after[name].shape != tensor.shape or not torch.equal(after[name], tensor)
    ]


def _moves(inputs: Inputs, content: Content, run: Callable[..., Any]) -> bool:
    """Whether rows move with an input, or what is pooled of them where no rows come out."""
    moved = _moved(inputs, content, run)
    if moved is None:
        return True
    rows = [t for _, t in floating(run(inputs)) if t.dim() >= 2 and content.length in t.shape[:3]]
    return any(t.dim() >= 2 and content.length in t.shape[:3] for t in moved) if rows else bool(moved)


def _one_step_late(inputs: Inputs, one: Content, run: Callable[..., Any]) -> bool:
    """Whether rows behind a position move with it, and none before it nor its own: a decoder is fed so."""
    place = one.length // 2
    try:
        before = dict(floating(run(inputs)))
        after = dict(floating(run(with_content(inputs, one, one.changed(place)))))
    except Exception:
        return False
    late = False
    for name, tensor in before.items():
        if tensor.dim() < 3 or tensor.shape[:2] != (one.batch, one.length):
            continue
        moved = (after[name] != tensor).flatten(2).any(-1).any(0)
        if bool(moved[: place + 1].any()):
            return False
        late = late or bool(moved[place + 1 :].any())
    return late


def decoding(inputs: Inputs, found: Reading, run: Callable[..., Any]) -> Reading:
    """Take for content what is called labels and moves more than a loss.

    Where no other sequence has as many positions as there are rows, it is the input of a decoder. Where
    nothing but its name says what it is, that is asked.
    """
    if inputs.content is not None or inputs.labels is not None or inputs.vary is not None:
        return found
    for one in list(found.labels):
        if bool((one.tensor == -100).any()) or is_labels(one.tensor, found):
            continue
        moved = _moved(inputs, one, run) or []
        losses = [tensor for tensor in moved if tensor.dim() < 2]
        if len(losses) == len(moved):
            continue
        lengths = {other.length for other in found.sequences}
        owner = one.axis is not None and one.length not in lengths
        owner = owner and any(one.length in tensor.shape[:3] for tensor in moved if tensor.dim() >= 2)
        if losses and (not owner or _one_step_late(inputs, one, run)):
            continue  # labels, which rows must not read; those before a row are fed to decoders
        found.labels.remove(one)
        found.contents.append(one)
        found.notes.append(f"{one.name} was read as an input, and not as labels: outputs beside a loss move")
        if not owner or losses:
            found.opened[one.name] = (
                f"{one.name} moves outputs, and only its name says that it holds labels: say labels=[...] or "
                f"content=[...] with {one.name!r}"
            )
    return found

"""One way of feeding a model, and what it is made from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn

from erlangen.audit.inputs import Content, Inputs
from erlangen.audit.reading import Reading, special_tokens
from erlangen.audit.witnesses.runs import EVAL, Mode

FEW = 4
"""So many positions are changed alone under feedings that differ from another one in one thing only."""


@dataclass(frozen=True, eq=False)
class Alike:
    """Rows `rows` of one item of a feeding must be rows `theirs` of the same item on other inputs."""

    inputs: Inputs
    item: int
    rows: np.ndarray
    theirs: np.ndarray
    content: str
    """The sequence that is padded. All rows of other sequences must be the same, and so must pooled
    outputs."""


@dataclass(frozen=True, eq=False)
class Feeding:
    """Inputs, a mode, and what is known about them."""

    label: str
    inputs: Inputs
    reading: Reading
    mode: Mode = EVAL
    exact: bool = True
    """Whether missing edges count."""
    resized: bool = False
    """Whether its sizes differ from the given ones: expectations that bring their own size cannot be held
    then."""
    thorough: bool = False
    """Whether every position is changed, as on the given inputs, and not a few spread ones."""
    spread: int = 12
    """How many positions are changed, spread evenly, where not every one is; all others in groups."""
    at: tuple[int, ...] = ()
    """Positions that are changed besides: where something may begin or end."""
    alike: tuple[Alike, ...] = ()
    """Other inputs whose rows must be equal up to rounding."""
    tolerant: bool = False
    """Whether unequal rows are only said: padding on the left moves absolute positions, which is no fault by
    itself."""
    at_most: bool = False
    """Whether calls may read less than is expected of them."""
    same: bool = False
    """Whether its outputs are known to be those of the given feeding, bit for bit: there is no more to
    see."""
    opened: str = ""
    """What leaves it open, whatever is measured."""
    added: str = ""
    """The mask that was not given and that the audit added."""
    unshown: str = ""
    """The mask that marks padding on the other side alone as it was given: the audit made this side, which
    the model may never meet."""

    def besides(self, n: int) -> list[int]:
        """The positions of `at` that n positions have, at most as many as are spread."""
        return [place for place in self.at[: self.spread] if place < n]


@dataclass(frozen=True, eq=False)
class Given:
    """The given inputs, and what a feeding may use to make others of them."""

    model: nn.Module
    inputs: Inputs
    reading: Reading
    runs: Callable[[Inputs], bool]
    """Whether the model takes these inputs."""
    on: Callable[..., Any] | None = None
    """The model's output on inputs, run within a context."""

    def feeding(self, label: str, inputs: Inputs, mode: Mode = EVAL, **more: object) -> Feeding:
        """A feeding of these inputs, whose roles are those of the given ones."""
        inputs = replace(inputs, label=label)
        return Feeding(label, inputs, self.reading.of(self.model, inputs), mode, **more)  # type: ignore[arg-type]


def may_cut(given: Given, content: Content, span: tuple[int, int]) -> bool:
    """Whether all special tokens stay where a sequence that may not do without them is cut to [start, stop).

    Placeholders of an image are as many as its rows; with fewer of them items would take each other's rows.
    """
    if content.embedding is None or content.axis is None:
        return True
    special = torch.tensor(sorted(special_tokens(given.model)), dtype=content.tensor.dtype, device="cpu")
    marked = torch.isin(content.tensor.cpu(), special)
    return int(marked.sum()) == int(marked.narrow(content.axis, span[0], span[1] - span[0]).sum())


def cut(given: Given, lengths: dict[str, tuple[int, int]], label: str) -> Inputs:
    """The inputs with every named sequence cut to [start, stop), its masks and labels with it.

    Other tensors that have the length of a cut sequence as their last axis, or as their last two, are cut
    too: masks of pairs, positions.
    """
    reading = given.reading
    contents = {id(one.tensor): one for one in (*reading.contents, *reading.labels)}
    for one in reading.contents:
        contents |= {id(other.tensor): replace(other, name=one.name) for other in one.together}
    sizes = {one.length: lengths[one.name] for one in reading.sequences if one.name in lengths}
    masks = {id(one.tensor): one.content for one in reading.masks}
    counted = {id(one.tensor) for one in reading.masks if one.lengths}
    main = next((lengths[one.name] for one in reading.sequences if one.name in lengths), None)

    def narrowed(tensor: torch.Tensor) -> torch.Tensor:
        one = contents.get(id(tensor))
        if one is not None:
            span = lengths.get(one.name)
            if span is None and one in reading.labels and main is not None and one.axis is not None:
                span = main if one.length in sizes else None
            if span is None or one.axis is None:
                return tensor
            return tensor.narrow(one.axis, span[0], span[1] - span[0]).contiguous()
        if id(tensor) in masks:
            span = lengths.get(masks[id(tensor)])
            if span is not None and id(tensor) in counted:
                return (tensor - span[0]).clamp(1, span[1] - span[0])
            return tensor if span is None else tensor[..., span[0] : span[1]].contiguous()
        if tensor.dim() and tensor.shape[-1] in sizes:
            start, stop = sizes[tensor.shape[-1]]
            tensor = (
                tensor[..., start:stop] if not tensor.is_floating_point() or tensor.dim() == 2 else tensor
            )
            if tensor.dim() >= 2 and tensor.shape[-2] in sizes and tensor.shape[-2] != stop - start:
                tensor = tensor[..., start:stop, :]
            if tensor.is_floating_point() and tensor.dim() > 2 and tensor.shape[-2] == stop - start:
                tensor = tensor[..., start:stop]
            return tensor.contiguous()
        return tensor

    return given.inputs.map(narrowed, label)

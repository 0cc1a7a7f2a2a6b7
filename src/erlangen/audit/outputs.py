"""The output of a model, whatever its type: which tensor has positions, and where."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from erlangen.audit.inputs import Content
from erlangen.errors import DataError


def output_tensors(output: Any) -> list[tuple[str, torch.Tensor]]:
    """Every tensor in an output with the name of its place: tensors, tuples, mappings, dataclasses, nested.

    >>> [name for name, _ in output_tensors({"logits": torch.zeros(1), "more": (torch.zeros(2),)})]
    ['logits', 'more.0']
    """
    if isinstance(output, torch.Tensor):
        return [("", output)]
    if isinstance(output, Mapping):
        parts = list(output.items())
    elif dataclasses.is_dataclass(output) and not isinstance(output, type):
        parts = [(field.name, getattr(output, field.name)) for field in dataclasses.fields(output)]
    elif isinstance(output, tuple | list):
        parts = list(enumerate(output))
    else:
        return []
    return [
        (f"{name}.{inner}" if inner else str(name), tensor)
        for name, part in parts
        for inner, tensor in output_tensors(part)
    ]


@dataclass(frozen=True)
class Place:
    """Where the rows of an output are: the name of the tensor and the axes of positions and of the batch."""

    name: str
    axis: int | None
    """None: the output is pooled, one row for a sequence."""
    batch_axis: int | None

    def rows(self, output: Any) -> torch.Tensor:
        """The output as (batch, rows, features)."""
        tensor = dict(output_tensors(output))[self.name]
        if self.batch_axis is None:
            tensor, axis, batch_axis = tensor.unsqueeze(0), None if self.axis is None else self.axis + 1, 0
        else:
            axis, batch_axis = self.axis, self.batch_axis
        if axis is None:
            return tensor.movedim(batch_axis, 0).reshape(tensor.shape[batch_axis], 1, -1)
        tensor = tensor.movedim((batch_axis, axis), (0, 1))
        return tensor.reshape(*tensor.shape[:2], -1)


def place_of(output: Any, found: list[Content]) -> Place:
    """The first floating tensor whose shape has positions; failing that, the first one, pooled."""
    floating = [(name, t) for name, t in output_tensors(output) if t.is_floating_point() and t.dim() >= 1]
    if not floating:
        raise DataError("the model returns no floating point tensor, so nothing flows that could be measured")
    first = found[0]
    lengths = {content.length for content in found}
    for name, tensor in floating:
        if first.batch_axis is None:
            if tensor.dim() >= 1 and tensor.shape[0] in lengths:
                return Place(name, 0, None)
            continue
        axis = first.axis if first.patch is None and first.axis < 2 else 1
        if tensor.dim() >= 3 and tensor.shape[first.batch_axis] == first.batch:
            return Place(name, axis, first.batch_axis)
        if tensor.dim() == 2 and axis == 1 and tensor.shape[0] == first.batch and tensor.shape[1] in lengths:
            return Place(name, 1, 0)
    name, _ = floating[0]
    return Place(name, None, first.batch_axis)

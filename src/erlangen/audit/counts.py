"""Python numbers, one for each sequence: lengths that are given as a list."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, eq=False)
class Counts:
    """A list of integers, held as a tensor: it can then be cut and changed as other lengths are."""

    tensor: torch.Tensor
    kind: type

    def made(self) -> Any:
        """The list as the model takes it."""
        return self.kind(self.tensor.tolist())


def hold_counts(value: Any, tensors: Iterable[torch.Tensor]) -> Any:
    """The value with lists of integers held as `Counts`, in mappings too, where they may be lengths: one for
    each sequence of a tensor and none longer than it is.

    >>> hold_counts([3, 2], [torch.zeros(2, 3)]).made()
    [3, 2]
    >>> hold_counts([3, 4], [torch.zeros(2, 3)])
    [3, 4]
    """
    shapes = [tuple(one.shape[:2]) for one in tensors if one.dim() >= 2]
    if type(value) is dict:
        return {key: hold_counts(part, tensors) for key, part in value.items()}
    if type(value) not in (list, tuple) or len(value) < 2 or not all(type(part) is int for part in value):
        return value
    either = [*shapes, *(shape[::-1] for shape in shapes)]
    fits = any(len(value) == batch and max(value) <= length for batch, length in either)
    return Counts(torch.tensor(value, device="cpu"), type(value)) if fits and min(value) > 0 else value


def made_counts(value: Any) -> Any:
    """The value with held lists as the model takes them."""
    if isinstance(value, Counts):
        return value.made()
    if type(value) is dict and any(True for _ in counts_in(value)):
        return {key: made_counts(part) for key, part in value.items()}
    return value


def counts_in(value: Any, name: str = "") -> Iterator[str]:
    """The names of the lists that are held."""
    if isinstance(value, Counts):
        yield name
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from counts_in(part, f"{name}.{key}" if name else str(key))

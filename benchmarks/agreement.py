"""Contenders must compute the same thing, or their times mean nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

TOLERANCE = 1e-4
"""The largest difference allowed, as a fraction of the largest value."""


class Disagreement(Exception):
    """A peer's output or gradient differs from erlangen's."""


def agree(ours: Sequence[Any], theirs: Sequence[Any], who: str) -> None:
    """Raise `Disagreement` unless outputs, and gradients where there are any, are the same up to rounding."""
    if len(ours) != len(theirs):
        raise Disagreement(f"{who} gives {len(theirs)} results, erlangen {len(ours)}")
    for place, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if a is None or b is None:  # planning computes no tensors
            continue
        what = "output" if place == 0 else f"gradient of input {place - 1}"
        if a.shape != b.shape:
            raise Disagreement(f"{who}: the {what} has shape {tuple(b.shape)}, erlangen's {tuple(a.shape)}")
        largest = b.abs().amax().item()
        difference = (a - b).abs().amax().item()
        if not difference <= TOLERANCE * max(largest, 1.0) or not torch.isfinite(a).all():
            raise Disagreement(f"{who}: the {what} differs by {difference:.3g}, largest value {largest:.3g}")

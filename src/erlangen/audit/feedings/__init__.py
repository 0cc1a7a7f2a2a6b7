"""Ways of feeding a model the same kind of content: one file each, listed here in the order they are
tried."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from erlangen.audit.feedings import (
    alone,
    longer,
    modes,
    other_content,
    other_sizes,
    padded,
    second_call,
    shorter,
    special_tokens,
    zeros,
)
from erlangen.audit.feedings.feeding import Feeding, Given

FEEDINGS: dict[str, Callable[[Given], Iterator[Feeding]]] = {
    "shorter": shorter.feedings,
    "padded": padded.feedings,
    "training": modes.training,
    "other content": other_content.feedings,
    "special tokens": special_tokens.feedings,
    "alone": alone.feedings,
    "with gradients": modes.gradients,
    "autocast": modes.autocast,
    "other sizes": other_sizes.feedings,
    "zeros filled": zeros.feedings,
    "second call": second_call.feedings,
    "longer": longer.feedings,
}
"""Name -> the feedings of that name that are made from the given inputs."""

SIDES = {"padded right": padded.right, "padded left": padded.left}
"""Halves of "padded", for models that are only ever padded on one side."""

__all__ = ["FEEDINGS", "SIDES", "Feeding", "Given"]

"""Masks and weights: which numbers of an additive bias mask an edge, and which weigh one."""

from __future__ import annotations

from math import log

import torch

MASKING = -1e4
"""An additive bias of this value or lower masks its edge; a greater one does so where `masks` says so.

It divides what libraries write to mask (-inf, the dtype's minimum, -1e9, -10000) from what they write to
weigh (relative position biases, ALiBi slopes times distances).
"""

LEVEL = -1e3
"""A bias between `MASKING` and this value masks its edge if it is a level of its own, apart from the weights.

People mask with -5000, or scale a mask of -10000 by 1 / sqrt(d). ALiBi weighs with such numbers at distances
of thousands, but gets there in small steps: every value in between occurs, too.
"""

LEVELS = 3
"""How many masks may lie on top of one another (causal, padding, documents), so how many levels there are."""


def masks(bias: torch.Tensor) -> torch.Tensor:
    """True where an additive bias masks its edge, False where it weighs one.

    A value masks that is at most `MASKING`; or that is at most `LEVEL` and lies on a level of its own. Levels
    are the values of the bias, parted wherever two neighbours differ by more than the logarithm of the least
    positive number: beyond such a gap every weight is exactly zero. Above all lies the level of the weights;
    more than `LEVELS` below it are no masks but weights that fall steeply with the distance.

    >>> masks(torch.tensor([0.0, -3.0, -5000.0, -1e9, float("-inf")])).tolist()
    [False, False, True, True, True]
    >>> masks(torch.arange(0.0, -5000.0, -0.5)).any().item()
    False
    """
    hidden = bias <= MASKING
    low = (bias <= LEVEL) & ~hidden
    if not bool(low.any()):
        return hidden
    values = bias.detach()[~hidden & ~bias.isnan()].unique().double().flip(0)
    starts = values[1:][values.diff() < least_logarithm(bias.dtype)]
    return hidden | (low & (bias <= starts[0].to(bias))) if 0 < len(starts) <= LEVELS else hidden


def least_logarithm(dtype: torch.dtype) -> float:
    """The bias at which a softmax gives exactly zero beside a bias of 0; half types are summed in single.

    >>> round(least_logarithm(torch.float32), 2), round(least_logarithm(torch.float16), 2)
    (-103.97, -103.97)
    """
    numbers = torch.finfo(dtype if dtype == torch.float64 else torch.float32)
    return log(numbers.tiny * numbers.eps) - log(2)


def readable(mask: torch.Tensor) -> torch.Tensor:
    """True where a mask in SDPA's sense (True or a bias that does not mask) lets a query read.

    >>> readable(torch.tensor([0.0, -3.0, -1e9, float("-inf")])).tolist()
    [True, True, False, False]
    """
    return mask if mask.dtype == torch.bool else ~masks(mask)


def leveled(bias: torch.Tensor, sign: int = 1) -> torch.Tensor:
    """An additive bias with its finite weights set to zero and its masking values kept."""
    return torch.where(masks(bias * sign), bias, torch.zeros_like(bias))


def level_mask(mask: torch.Tensor | None) -> torch.Tensor | None:
    """A mask without weights: the very tensor where it has none, for kernels depend on its strides."""
    if mask is None or not mask.is_floating_point():
        return mask
    level = leveled(mask)
    return mask if torch.equal(level, mask) else level

"""The exponent of growth: the slope of the logarithm of time against the logarithm of n."""

from __future__ import annotations

from collections.abc import Sequence
from math import log


def slope(points: Sequence[tuple[float, float]]) -> float | None:
    """The least-squares slope through (log n, log t); None from fewer than two sizes.

    >>> slope([(1, 3), (2, 12), (4, 48)])
    2.0
    """
    x, y = [log(n) for n, _ in points], [log(t) for _, t in points]
    if len(set(x)) < 2:
        return None
    middle_x, middle_y = sum(x) / len(x), sum(y) / len(y)
    return round(
        sum((a - middle_x) * (b - middle_y) for a, b in zip(x, y, strict=True))
        / sum((a - middle_x) ** 2 for a in x),
        6,
    )

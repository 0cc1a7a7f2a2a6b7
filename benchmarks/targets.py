"""What a case should reach. The numbers are fixed before measuring and never follow the measurements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

PYG = "PyG TransformerConv"
"""Whose memory the memory targets are a fraction of."""


@dataclass(frozen=True)
class Target:
    """The least speed-up over the best peer and fraction of the matrix-multiply peak, the most memory as a
    fraction of PyG's, and the most milliseconds; None where nothing is asked."""

    speedup: float | None = None
    fraction: float | None = None
    memory: float | None = None
    milliseconds: float | None = None

    def verdicts(self, result: dict[str, Any]) -> list[tuple[str, bool]]:
        """Each demand in words, and whether the result of a case meets it.

        A demand that compares with something unmeasured is not met.

        >>> Target(speedup=2).verdicts({"speedup": 2.5})
        [('2x', True)]
        """
        found = []
        if self.speedup is not None:
            found.append((f"{self.speedup:g}x", _least(result["speedup"], self.speedup)))
        if self.fraction is not None:
            found.append((f"{self.fraction:.0%} of peak", _least(result["fraction_of_peak"], self.fraction)))
        if self.memory is not None:
            ours, theirs = result["erlangen_mb"], result["peers_mb"].get(PYG)
            met = ours is not None and theirs is not None and ours <= self.memory * theirs
            found.append((f"1/{1 / self.memory:.0f} of PyG's memory", met))
        if self.milliseconds is not None:
            found.append((f"under {self.milliseconds:g} ms", result["erlangen_ms"] < self.milliseconds))
        return found


def _least(value: float | None, bound: float) -> bool:
    return value is not None and value >= bound


SLOPE = (0.95, 1.05)
"""Between these the slope of time against n at a fixed window must lie."""

"""What a session saw and could not measure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Unexplained:
    """An attention-like call whose relation could not be measured, and why."""

    module: str
    reason: str
    failed: bool = False
    """Whether it could have been measured, and measuring failed."""

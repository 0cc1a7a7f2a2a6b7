"""What a training run has seen so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

Evaluation = dict[str, float]
"""Measured values by name, and the number of steps taken before under "step"."""


@dataclass
class History:
    """The loss of every step taken, the evaluations, and the seconds spent.

    >>> history = History(losses=[2.0, 1.0], evaluations=[{"step": 2, "validation": 1.5}])
    >>> history.step, history.latest("validation")
    (2, 1.5)
    """

    losses: list[float] = field(default_factory=list)
    evaluations: list[Evaluation] = field(default_factory=list)
    seconds: float = 0.0
    stopped: bool = False
    """Whether the rule of the run has ended it before its last step."""

    @property
    def step(self) -> int:
        """The number of steps taken."""
        return len(self.losses)

    def latest(self, name: str) -> float | None:
        """The value of that name in the last evaluation that has it.

        >>> History().latest("validation") is None
        True
        """
        return next((e[name] for e in reversed(self.evaluations) if name in e), None)

    def packed(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Taken apart into tensors and JSON, exactly.

        >>> History.unpacked(*History([0.1], [], 2.5).packed())
        History(losses=[0.1], evaluations=[], seconds=2.5, stopped=False)
        """
        facts = {"evaluations": self.evaluations, "seconds": self.seconds, "stopped": self.stopped}
        return {"losses": torch.tensor(self.losses, dtype=torch.float64)}, facts

    @classmethod
    def unpacked(cls, tensors: dict[str, Tensor], facts: dict[str, Any]) -> History:
        """The inverse of `packed`; a `ValueError` unless `packed` could have written it."""
        losses, evaluations, seconds = tensors["losses"], facts["evaluations"], facts["seconds"]
        for what, holds in (
            ("losses are one number of 64 bits a step", losses.dim() == 1 and losses.dtype == torch.float64),
            (
                "evaluations are a list of values by name, each with its step",
                isinstance(evaluations, list)
                and all(isinstance(e, dict) and "step" in e for e in evaluations),
            ),
            ("seconds are a number", type(seconds) in (int, float) and 0 <= seconds < float("inf")),
            ("stopped is true or false", type(facts["stopped"]) is bool),
        ):
            if not holds:
                raise ValueError(f"expected that {what}")
        return cls(losses.tolist(), evaluations, seconds, facts["stopped"])

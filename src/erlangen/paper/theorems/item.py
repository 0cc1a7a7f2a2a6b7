"""One statement of the paper as a check: what it says, what holds, and the trial that decides both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

TOLERANCE = 1e-9
"""Two float64 results are equal below this, and different above `APART`; between them nothing is claimed."""
APART = 1e-4


@dataclass
class Trial:
    """The facts a check establishes. Every one must hold for the item to be verified."""

    facts: list[tuple[str, bool]] = field(default_factory=list)
    sizes: set[int] = field(default_factory=set)
    symbolic: bool = False
    numeric: bool = False
    error: float | None = None
    counterexample: str | None = None

    def exact(self, fact: str, holds: Any, *, n: int | None = None) -> None:
        """A fact decided exactly: at n, or with n left out for every size."""
        self.facts.append((fact, bool(holds)))
        if n is None:
            self.symbolic = True
        else:
            self.sizes.add(n)

    def close(self, fact: str, a: Any, b: Any) -> None:
        """Two float64 results that must be equal."""
        error = distance(a, b)
        self.numeric = True
        self.error = error if self.error is None else max(self.error, error)
        self.facts.append((fact, error < TOLERANCE))

    def apart(self, fact: str, a: Any, b: Any) -> float:
        """Two float64 results that must differ; how much they do."""
        gap = distance(a, b)
        self.facts.append((fact, gap > APART))
        self.numeric = True
        return gap

    def measured(self, fact: str, holds: Any) -> None:
        """A fact read off a real layer, such as which of its outputs move with which inputs."""
        self.facts.append((fact, bool(holds)))
        self.numeric = True

    def refuted(self, counterexample: str, holds: Any) -> None:
        """The statement as printed fails: `holds` says that the counterexample is one."""
        self.facts.append((f"counterexample: {counterexample}", bool(holds)))
        if holds:
            self.counterexample = counterexample

    @property
    def evidence(self) -> str:
        """How the facts are known."""
        parts = ["symbolic"] if self.symbolic else []
        if self.sizes:
            parts.append(f"exact at n = {_spans(sorted(self.sizes))}")
        if self.numeric:
            parts.append("numeric" if self.error is None else f"numeric, error {self.error:.0e}")
        failed = [fact for fact, holds in self.facts if not holds]
        return "; ".join(parts + [f"FAILED: {fact}" for fact in failed])


def _spans(numbers: list[int]) -> str:
    """Sorted numbers with runs of three or more as a range: 2, 4..6."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][-1] + 1:
            spans[-1].append(number)
        else:
            spans.append([number])
    return ", ".join(f"{s[0]}..{s[-1]}" if len(s) > 2 else ", ".join(map(str, s)) for s in spans)


def distance(a: Any, b: Any) -> float:
    """The largest absolute difference; infinite where the shapes differ or a number is not one.

    >>> distance([1.0, 2.0], [1.0, 2.5]), distance([1.0], [1.0, 2.0])
    (0.5, inf)
    """
    x, y = (np.asarray(v.detach() if hasattr(v, "detach") else v, np.float64) for v in (a, b))
    if x.shape != y.shape or not (np.isfinite(x).all() and np.isfinite(y).all()):
        return float("inf")
    return float(np.abs(x - y).max(initial=0.0))


@dataclass(frozen=True)
class Finding:
    """What came of an item. `verified`: the corrected statement and the counterexample passed their check."""

    item: str
    paper: str
    holds_as_printed: bool
    corrected: str
    evidence: str
    verified: bool
    counterexample: str | None

    def as_dict(self) -> dict[str, Any]:
        """The finding as JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Item:
    """A statement: its name, the paper's claim in other words, the corrected claim, and the check of both."""

    name: str
    paper: str
    corrected: str
    check: Callable[[Trial], None]
    printed: bool

    def run(self) -> Finding:
        """Run the check. An implementation that cannot run the check has verified nothing."""
        trial = Trial()
        try:
            self.check(trial)
        except Exception as error:
            trial.facts.append((f"the check stopped with {type(error).__name__}: {error}", False))
        passed = bool(trial.facts) and all(holds for _, holds in trial.facts)
        holds = trial.counterexample is None and passed
        verified = passed and holds == self.printed
        return Finding(
            self.name, self.paper, holds, self.corrected, trial.evidence, verified, trial.counterexample
        )


def statement(
    name: str, *, paper: str, corrected: str, printed: bool
) -> Callable[[Callable[[Trial], None]], Item]:
    """Make a check into an `Item`. `printed` is what theory expects; a run must come to the same result."""

    def make(check: Callable[[Trial], None]) -> Item:
        return Item(name, paper, corrected, check, printed)

    return make

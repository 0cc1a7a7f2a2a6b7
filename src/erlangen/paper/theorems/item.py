"""One item of the paper as a check: three judgements on it, and the trial that has to bear each of them out.

The standard is the same for every item. *As printed*: the sentence itself, with the paper's own
definitions, in every reading of its words. *As meant*: the sentence without misprints, in the reading that
the rest of the paper settles; a case that the paper itself uses counts. *Proof*: the argument that is
printed. Each one holds, holds with a correction that leaves its claim in place, or fails. A case counts
against an item only if it lies inside the item's hypotheses, and an item is not charged with a slip of
another one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np

from erlangen.paper.table2.measured_once import Rows

TOLERANCE = 1e-9
"""Two float64 results are equal below this, and different above `APART`; between them nothing is claimed."""
APART = 1e-4
MOST = 9
"""What a theorem says for every n is checked at every n up to this one."""

Verdict = Literal["holds", "with correction", "fails", "none", "open"]
"""`none`: nothing is printed to be judged, such as the proof of a definition. `open`: the check did not "
"pass."""
COLUMNS = ("printed", "meant", "proof")


@dataclass
class Trial:
    """The facts a check establishes. Every one must hold for the item to be verified."""

    rows: Rows = field(default_factory=Rows)
    """The models of Table 2, each measured when it is first asked for."""
    facts: list[tuple[str, bool]] = field(default_factory=list)
    sizes: set[int] = field(default_factory=set)
    witnesses: dict[str, list[str]] = field(default_factory=lambda: {column: [] for column in COLUMNS})
    """Against each column: counterexamples, slips of the proof."""
    steps: int = 0
    """How many lines of the printed proof were checked."""
    theorems: dict[str, tuple[int, int]] = field(default_factory=dict)
    models: dict[str, None] = field(default_factory=dict)
    symbols: bool = False
    sizeless: bool = False
    numeric: bool = False
    error: float | None = None

    def exact(self, fact: str, holds: Any, *, n: int | None = None) -> None:
        """A fact decided exactly, at n; without n it is one in which no size occurs."""
        self.facts.append((fact, bool(holds)))
        if n is None:
            self.sizeless = True
        else:
            self.sizes.add(n)

    def symbolic(self, fact: str, holds: Any) -> None:
        """A fact computed on the symbols i and j themselves, and so for every n."""
        self.facts.append((fact, bool(holds)))
        self.symbols = True

    def by_theorem(
        self, fact: str, because: str, check: Callable[[int], Any], *, least: int = 1, most: int = MOST
    ) -> None:
        """A fact for every n, for the reason given; the check decides it at each n from `least` to `most`."""
        for n in range(least, most + 1):
            self.facts.append((f"{fact}, n = {n}", bool(check(n))))
        self.theorems[because] = (least, most)

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

    def model(self, name: str, fact: str, holds: Any) -> None:
        """A fact read off a whole model, by an audit of its attention calls."""
        self.facts.append((f"{name}: {fact}", bool(holds)))
        self.models[name] = None

    def step(self, line: str, holds: Any) -> None:
        """A line of the printed proof, which holds."""
        self.facts.append((f"proof: {line}", bool(holds)))
        self.steps += 1

    def refuted(self, counterexample: str, holds: Any) -> None:
        """The statement as printed fails: `holds` says that the counterexample is one."""
        self._against("printed", counterexample, holds)

    def not_meant(self, counterexample: str, holds: Any) -> None:
        """The statement as meant fails too: `holds` says that the counterexample is one."""
        self._against("meant", counterexample, holds)

    def gap(self, counterexample: str, holds: Any) -> None:
        """A counterexample to the statement both as printed and as meant."""
        self.refuted(counterexample, holds)
        self.not_meant(counterexample, holds)

    def slip(self, slip: str, holds: Any) -> None:
        """A line of the printed proof is wrong, or does not follow: `holds` says that it is so."""
        self._against("proof", slip, holds)

    def _against(self, column: str, text: str, holds: Any) -> None:
        self.facts.append((f"against {column}: {text}", bool(holds)))
        if holds:
            self.witnesses[column].append(text)

    @property
    def evidence(self) -> str:
        """How the facts are known."""
        parts = ["symbolic"] if self.symbols else []
        for span in dict.fromkeys(self.theorems.values()):
            because = "; ".join(why for why, other in self.theorems.items() if other == span)
            least, most = span
            where = f"n <= {most}" if least <= 1 else f"{least} <= n <= {most}"
            parts.append(f"by theorem ({because}), checked exhaustively for {where}")
        if self.sizes:
            parts.append(f"exact at n = {_spans(sorted(self.sizes))}")
        elif self.sizeless:
            parts.append("exact")
        if self.models:
            parts.append(f"measured on {', '.join(self.models)}")
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
class Judgement:
    """One column of an item. `why` is the counterexample or the slip, computed now; empty where it holds."""

    verdict: Verdict
    why: str = ""

    def __str__(self) -> str:
        return f"{self.verdict}: {self.why}" if self.why else self.verdict


@dataclass(frozen=True)
class Finding:
    """What came of an item. `verified`: every fact passed, and each judgement is borne out by them."""

    item: str
    paper: str
    printed: Judgement
    meant: Judgement
    proof: Judgement
    corrected: str
    evidence: str
    verified: bool
    beyond: bool
    """Not a claim of the paper: the judgement is on a statement that the paper leaves open or invites."""

    @property
    def holds_as_printed(self) -> bool:
        """Whether the statement needs no correction at all."""
        return self.printed.verdict == "holds"

    @property
    def counterexample(self) -> str | None:
        """To the statement as printed."""
        return self.printed.why or None

    def as_dict(self) -> dict[str, Any]:
        """The finding as JSON."""
        shorter = {"holds_as_printed": self.holds_as_printed, "counterexample": self.counterexample}
        return {**asdict(self), **shorter}


@dataclass(frozen=True)
class Item:
    """A statement: its name, the paper's claim in other words, what holds, its judgements, and the check."""

    name: str
    paper: str
    corrected: str
    check: Callable[[Trial], None]
    printed: Verdict
    meant: Verdict
    proof: Verdict
    beyond: bool = False

    def run(self, rows: Rows | None = None) -> Finding:
        """Run the check. An implementation that cannot run the check has verified nothing."""
        trial = Trial(rows or Rows())
        try:
            self.check(trial)
        except Exception as error:
            trial.facts.append((f"the check stopped with {type(error).__name__}: {error}", False))
        passed = bool(trial.facts) and all(holds for _, holds in trial.facts)
        judged = {column: self._judged(column, trial, passed) for column in COLUMNS}
        verified = passed and all(judged[column].verdict == getattr(self, column) for column in COLUMNS)
        return Finding(
            self.name, self.paper, **judged, corrected=self.corrected, evidence=trial.evidence,
            verified=verified, beyond=self.beyond,
        )  # fmt: skip

    def _judged(self, column: str, trial: Trial, passed: bool) -> Judgement:
        """The judgement that the facts of the trial bear out, which may be another than the one expected."""
        expected: Verdict = getattr(self, column)
        why = "; ".join(trial.witnesses[column])
        if why:
            # That a correction saves the claim is what the other facts say, so they must be there.
            against = sum(map(len, trial.witnesses.values()))
            others = trial.steps if column == "proof" else len(trial.facts) - against
            saved = expected == "with correction" and passed and others > 0
            return Judgement("with correction" if saved else "fails", why)
        if not passed:
            return Judgement("open")
        return Judgement("none" if column == "proof" and not trial.steps else "holds")


def statement(
    name: str,
    *,
    paper: str,
    corrected: str,
    printed: Verdict,
    meant: Verdict,
    proof: Verdict = "none",
    beyond: bool = False,
) -> Callable[[Callable[[Trial], None]], Item]:
    """Make a check into an `Item`. The judgements are what theory expects; a run must come to the same."""

    def make(check: Callable[[Trial], None]) -> Item:
        return Item(name, paper, corrected, check, printed, meant, proof, beyond)

    return make

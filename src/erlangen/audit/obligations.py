"""Obligations: what an audit must compare, and how each comparison ended. The verdict is a fold over them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from erlangen.audit.findings import Finding

HELD, BROKEN, OPEN = "held", "broken", "open"


class Compared(Enum):
    """What a comparison is about; the value is what a reader is told, where nothing more precise is."""

    CALL = "call"
    CALLS = "the calls"
    EDGES = "extra and missing edges"
    EXTRA = "extra edges"
    MISSING = "missing edges"
    REACHED = "attention reaches it"
    OWN = "rows that read themselves"
    ANOTHER = "read as another sequence, of which everything may be read"
    DELIMITERS = "delimiters"
    STRUCTURE = "no content beside the mask"
    PADDING = "padding"
    INVARIANCE = "the same with and without padding"
    BATCH = "batch items"
    LABELS = "labels"
    FINITE = "finite"
    STATE = "the model is left as it was"
    AGAIN = "the outputs are those of the given inputs"
    PATTERN = "the pattern"
    EXPECTATION = "the expectation"
    INPUTS = "the inputs"
    OUTPUTS = "the outputs"
    FLOW = ""
    """What flows from an input to the outputs, before anything of it could be told apart."""


@dataclass(frozen=True)
class Subject:
    """What is compared: its kind, and the call, or the input and the output, that it is about.

    >>> print(Subject(Compared.CALL, module="layers.0"), "|", Subject(Compared.PADDING, module=""))
    call layers.0 | call (model): padding
    >>> print(Subject(Compared.EDGES, input="x", output="", told="extra edges"))
    x -> output: extra edges
    >>> print(Subject(Compared.FLOW, input="x"), "|", Subject(Compared.FINITE, output="logits"))
    x -> outputs | logits: finite
    """

    compared: Compared
    module: str | None = None
    """The module of a call."""
    input: str | None = None
    output: str | None = None
    """The output; None for all of them, where an input is named."""
    told: str | None = None
    """What of it is compared, in words; None where its kind says it all."""

    def __str__(self) -> str:
        told = self.compared.value if self.told is None else self.told
        if self.module is not None:
            place, told = f"call {self.module or '(model)'}", "" if self.compared is Compared.CALL else told
        elif self.input is not None:
            place = f"{self.input} -> {'outputs' if self.output is None else self.output or 'output'}"
        else:
            place = "" if self.output is None else self.output or "output"
        return ": ".join(part for part in (place, told) if part)


@dataclass(frozen=True)
class Obligation:
    """One thing that must be compared, under one feeding: it is held, broken or open; there is nothing
    else."""

    feeding: str
    subject: Subject
    state: str
    finding: Finding | None = None
    """Why it is broken."""
    reason: str | None = None
    """Why it is open, with the argument that would settle it."""

    def __post_init__(self) -> None:
        if (self.state == BROKEN) != (self.finding is not None):
            raise ValueError(f"{self.what}: broken is said with a finding, and only then")
        if (self.state == OPEN) != (self.reason is not None):
            raise ValueError(f"{self.what}: open is said with a reason, and only then")

    @property
    def what(self) -> str:
        """What is compared, in words."""
        return str(self.subject)

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "feeding": self.feeding,
            "what": self.what,
            "state": self.state,
            "reason": self.reason,
            "finding": None if self.finding is None else str(self.finding),
        }

    def __str__(self) -> str:
        if self.state == OPEN:
            return f"{self.what} ({self.feeding}): {self.reason}"
        return f"{self.what} ({self.feeding}): {self.state}" + (f": {self.finding}" if self.finding else "")


@dataclass(eq=False)
class Ledger:
    """The obligations of an audit, in order.

    >>> ledger = Ledger()
    >>> ledger.verdict()
    'undecided'
    >>> ledger.held("given", Subject(Compared.CALL, module="a"))
    >>> ledger.verdict()
    'holds'
    >>> ledger.open("given", Subject(Compared.EDGES, input="x", output="logits"), "the output has no rows")
    >>> ledger.verdict()
    'undecided'
    >>> ledger.broken("given", Subject(Compared.CALL, module="b"), Finding("edge", "b"))
    >>> ledger.verdict()
    'violated'
    """

    entries: list[Obligation] = field(default_factory=list)

    def enter(self, one: Obligation) -> None:
        """It ended so."""
        self.entries.append(one)

    def held(self, feeding: str, subject: Subject) -> None:
        """It was compared, and is as it must be."""
        self.entries.append(Obligation(feeding, subject, HELD))

    def broken(self, feeding: str, subject: Subject, finding: Finding) -> None:
        """It was compared, and is not as it must be."""
        self.entries.append(Obligation(feeding, subject, BROKEN, finding=finding))

    def open(self, feeding: str, subject: Subject, reason: str) -> None:
        """It could not be compared."""
        self.entries.append(Obligation(feeding, subject, OPEN, reason=reason))

    def settle(self, feeding: str, subject: Subject, finding: Finding | None) -> None:
        """It was compared: broken if there is a finding, otherwise held."""
        if finding is None:
            self.held(feeding, subject)
        else:
            self.broken(feeding, subject, finding)

    def name_added(self, feeding: str, mask: str) -> None:
        """Say in the findings of a feeding that its mask was added by the audit, and not given."""
        self.entries = [
            replace(one, finding=one.finding.at(added=mask))
            if one.feeding == feeding and one.finding is not None
            else one
            for one in self.entries
        ]

    def excuse(self, feeding: str, kinds: tuple[str, ...]) -> list[str]:
        """Take out what is broken or open under a feeding, but for these kinds of findings; what it says."""
        told, kept = [], []
        for one in self.entries:
            stays = one.state == HELD or (one.finding is not None and one.finding.kind in kinds)
            if one.feeding != feeding or stays:
                kept.append(one)
            else:
                told.append((one.state, str(one.finding or one)))
        self.entries = kept
        return [text for _, text in sorted(dict.fromkeys(told), key=lambda one: one[0] != BROKEN)]

    def __iter__(self) -> Iterator[Obligation]:
        return iter(self.entries)

    def __getitem__(self, index: int) -> Obligation:
        return self.entries[index]

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def findings(self) -> list[Finding]:
        """Why obligations are broken, each finding once: the same broken edge under another feeding is
        one."""
        found: dict[Any, Finding] = {}
        for entry in self.entries:
            one = entry.finding
            if one is None:
                continue
            key = one.kind, one.module, one.head, one.content, one.output, one.extra
            first = found.setdefault(key, one)
            if one.where not in (first.where, *first.also):
                found[key] = first.at(also=(*first.also, one.where))
        return list(found.values())

    @property
    def opened(self) -> list[Obligation]:
        """What could not be compared, each reason once; patterns first, for they explain the rest."""
        found: dict[str | None, Obligation] = {}
        for entry in self.entries:
            if entry.state == OPEN:
                found.setdefault(entry.reason, entry)
        return sorted(found.values(), key=lambda entry: entry.subject.compared is not Compared.PATTERN)

    def verdict(self) -> str:
        """`violated` if any is broken, else `undecided` if any is open, else `holds`; never on an empty
        list."""
        states = {entry.state for entry in self.entries}
        if BROKEN in states:
            return "violated"
        return "holds" if states == {HELD} else "undecided"

"""Obligations: what an audit must compare, and how each comparison ended. The verdict is a fold over them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from erlangen.audit.findings import Finding

HELD, BROKEN, OPEN = "held", "broken", "open"


@dataclass(frozen=True)
class Obligation:
    """One thing that must be compared, under one feeding: it is held, broken or open; there is nothing
    else."""

    feeding: str
    what: str
    """What is compared: "call layers.0.attention", "x -> logits, extra edges", "batch items", ..."""
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
    >>> ledger.held("given", "call a")
    >>> ledger.verdict()
    'holds'
    >>> ledger.open("given", "x -> logits", "the output has no rows")
    >>> ledger.verdict()
    'undecided'
    >>> ledger.broken("given", "call b", Finding("edge", "b"))
    >>> ledger.verdict()
    'violated'
    """

    entries: list[Obligation] = field(default_factory=list)

    def held(self, feeding: str, what: str) -> None:
        """It was compared, and is as it must be."""
        self.entries.append(Obligation(feeding, what, HELD))

    def broken(self, feeding: str, what: str, finding: Finding) -> None:
        """It was compared, and is not as it must be."""
        self.entries.append(Obligation(feeding, what, BROKEN, finding=finding))

    def open(self, feeding: str, what: str, reason: str) -> None:
        """It could not be compared."""
        self.entries.append(Obligation(feeding, what, OPEN, reason=reason))

    def settle(self, feeding: str, what: str, finding: Finding | None) -> None:
        """It was compared: broken if there is a finding, otherwise held."""
        if finding is None:
            self.held(feeding, what)
        else:
            self.broken(feeding, what, finding)

    def same(self, feeding: str, what: str, reason: str) -> None:
        """It was compared: open if there is a reason, otherwise held."""
        if reason:
            self.open(feeding, what, reason)
        else:
            self.held(feeding, what)

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
        return sorted(found.values(), key=lambda entry: not entry.what.startswith("the pattern"))

    def verdict(self) -> str:
        """`violated` if any is broken, else `undecided` if any is open, else `holds`; never on an empty
        list."""
        states = {entry.state for entry in self.entries}
        if BROKEN in states:
            return "violated"
        return "holds" if states == {HELD} else "undecided"

"""One feeding of one audit: everything that its calls and its flows are judged by."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from torch import nn

from erlangen.audit.beside import Waiting
from erlangen.audit.examiner import Examiner
from erlangen.audit.expect import Expectation
from erlangen.audit.feeding import Feeding
from erlangen.audit.findings import Finding
from erlangen.audit.flow_verdict import FlowVerdict
from erlangen.audit.inputs import Content
from erlangen.audit.obligations import Obligation, Subject
from erlangen.audit.observed import Measured, Pass
from erlangen.audit.over_draws import drawn_by
from erlangen.audit.reading import Reading
from erlangen.audit.real import Real
from erlangen.audit.verdict import CallVerdict
from erlangen.audit.witnesses.runs import Mode, Runner


@dataclass(eq=False)
class Examination:
    """What one feeding showed."""

    label: str
    calls: list[CallVerdict] = field(default_factory=list)
    flows: list[FlowVerdict] = field(default_factory=list)
    skipped: str | None = None
    """Why it could not be run."""
    differences: list[str] = field(default_factory=list)
    """What it shows that the given inputs do not."""
    contradictions: list[str] = field(default_factory=list)
    """Where measurements of one call contradict each other."""
    varying: dict[str, str] = field(default_factory=dict)
    """Module name -> what its relation depends on, where it differs at the same sizes."""
    seen: Pass | None = None
    sampled: tuple[int, int] | None = None
    """(positions changed, positions there are), where not all were."""
    waiting: list[Waiting] = field(default_factory=list)
    """Flows of rows at sampled positions, of which more may be told if time is left."""
    beside: bool = False
    """Whether every pair of positions was told beside attention."""
    groups: int = 0
    """How many groups of positions were changed at once, in place of those that were not changed alone."""

    def release(self) -> None:
        """Let go of what was only needed to examine: tensors, the graphs they hang on, and the model."""
        self.seen, self.waiting = None, []


@dataclass(eq=False)
class Case:
    """One feeding of one audit: what is judged, what it is judged by, and where the outcome is written."""

    audit: Examiner
    feeding: Feeding
    seen: Pass
    result: Examination
    expect: Expectation = None
    """What is expected, as far as it can be held under this feeding."""
    kept: dict[str, Content | None] = field(default_factory=dict)
    """Input -> its content with what delimits documents kept where it is."""

    @property
    def model(self) -> nn.Module:
        """The model."""
        return self.audit.model

    @property
    def label(self) -> str:
        """The label of the feeding."""
        return self.feeding.label

    @property
    def reading(self) -> Reading:
        """What each input is."""
        return self.feeding.reading

    @cached_property
    def real(self) -> Real:
        """The real positions of each input; of several sequences of an item, those of any."""
        return {one.name: self.reading.real(one.name) for one in self.reading.contents}

    @cached_property
    def real_by_group(self) -> Real:
        """The same, of each of several sequences of an item."""
        return {one.name: self.reading.by_group(one.name) for one in self.reading.contents}

    @cached_property
    def runner(self) -> Runner:
        """Runs the model on the feeding; on the given inputs it knows what was run before."""
        runner = self.audit.runner(self.feeding)
        if self.feeding.given and self.audit.first is not None:
            runner.like_runner(self.audit.first)
        return runner

    @cached_property
    def calls(self) -> list[Measured]:
        """The calls as they were measured."""
        return [one.measured for one in self.result.calls]

    @property
    def covered(self) -> bool:
        """Whether every attention call was explained and is one of positions."""
        return not self.seen.unexplained and not any(call.kind == "derived" for call in self.calls)

    @property
    def thorough(self) -> bool:
        """Whether every position is changed, and what lies behind pooled outputs is looked at."""
        return self.feeding.given or self.feeding.thorough

    def in_mode(self, mode: Mode) -> Runner:
        """Runs the model on the same feeding in another mode."""
        return self.audit.runner(replace(self.feeding, mode=mode))

    def drawn(self, seed: int) -> Feeding:
        """The same feeding with other random numbers."""
        return replace(self.feeding, mode=replace(self.feeding.mode, random=drawn_by(seed)))

    def observed(self, content: Content | None = None, positions: Any = ()) -> Pass:
        """One observed pass, or with other content at some positions of one input."""
        return self.audit.observed(self.feeding, content, positions)

    def enter(self, one: Obligation) -> None:
        """Write down how a comparison ended."""
        self.audit.ledger.enter(one)

    def settle(self, subject: Subject, finding: Finding | None) -> None:
        """It was compared: broken if there is a finding, otherwise held."""
        self.audit.ledger.settle(self.label, subject, finding)

    def open(self, subject: Subject, reason: str) -> None:
        """It could not be compared."""
        self.audit.ledger.open(self.label, subject, reason)

    def note(self, text: str) -> None:
        """Say what is worth saying and breaks nothing."""
        self.audit.notes.append(text)

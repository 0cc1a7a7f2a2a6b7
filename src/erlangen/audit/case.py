"""What an audit, and one feeding of it, is judged by: everything that its calls and its flows need."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from torch import nn

from erlangen.audit.arguments.reading import Reading
from erlangen.audit.calls.over_draws import drawn_by
from erlangen.audit.calls.real import Real
from erlangen.audit.expect import Expectation
from erlangen.audit.feeding import Feeding
from erlangen.audit.findings import Finding
from erlangen.audit.flow_rules.beside import Waiting
from erlangen.audit.flow_verdict import FlowVerdict
from erlangen.audit.inputs import Content, Inputs
from erlangen.audit.obligations import Ledger, Obligation, Subject
from erlangen.audit.observed import Known, Measured, Pass, observe
from erlangen.audit.outputs import Place
from erlangen.audit.state import Snapshot
from erlangen.audit.verdict import CallVerdict
from erlangen.audit.witnesses.runs import Budget, Mode, Runner
from erlangen.audit.witnesses.trace import added_tables, feature_sizes

Progress = Callable[[str], None]
OUT_OF_TIME = "no time left within the budget"
"""Why a feeding was not tried."""
TELLING = 0.1
"""Progress also says how much time is left once this part of the budget is spent."""


def in_short(error: Exception) -> str:
    """An error in one line: its type and the first line of what it says."""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


@dataclass(eq=False)
class Examiner:
    """What all feedings of one audit share."""

    model: nn.Module
    snapshot: Snapshot
    expect: Expectation
    ledger: Ledger
    budget: Budget
    flow: bool
    positions: list[int] | None
    progress: Progress
    known: Known = field(default_factory=dict)
    base: list[Measured] = field(default_factory=list)
    """The calls on the given inputs, whose sources are known."""
    fixed: dict[str, frozenset[int]] = field(default_factory=dict)
    """Axes of outputs that do not follow the length of the input."""
    ambiguous: dict[str, bool] = field(default_factory=dict)
    """Inputs whose rows before a pooled output were asked for -> whether they always had as many positions
    as the model has features somewhere."""
    places: dict[str, Place] = field(default_factory=dict)
    """Where the rows of each output are, on the given inputs."""
    random: set[str] = field(default_factory=set)
    """Modules whose calls read otherwise from draw to draw in training."""
    deciding: set[str] = field(default_factory=set)
    """Inputs on whose content it was seen to depend which keys are read."""
    unseen: set[tuple[str, str]] = field(default_factory=set)
    """(input, output) between which some feeding showed layers that are as expected and were not seen."""
    may_follow: set[tuple[str, str]] = field(default_factory=set)
    """(input, output) whose rows may follow the few positions of the input, at another rate."""
    follow: set[tuple[str, str]] = field(default_factory=set)
    """(input, output) whose rows plainly follow the input on the given inputs, of more positions perhaps."""
    delimiting: dict[str, set[int]] = field(default_factory=dict)
    """Input -> its tokens that delimit documents."""
    notes: list[str] = field(default_factory=list)
    """What is worth saying and breaks nothing."""
    first: Runner | None = None
    """Who ran the given inputs before."""

    @cached_property
    def widths(self) -> frozenset[int]:
        """The sizes of the model's parameters: a tensor with such an axis has it for its features."""
        tables = frozenset[str]() if self.first is None else added_tables(self.first)
        return feature_sizes(self.model, tables)

    def tell(self, step: str) -> None:
        """Say what is done next and, in a longer audit, how much time is left."""
        late = self.budget.left < (1 - TELLING) * self.budget.seconds
        self.progress(f"{step}; {self.budget.left:.0f} s left" if late else step)

    def runner(self, feeding: Feeding, **options: Any) -> Runner:
        """Runs the model on a feeding."""
        runner = Runner(self.model, feeding.inputs, feeding.reading, self.snapshot, feeding.mode, **options)
        runner.fixed = self.fixed
        if not feeding.given:
            runner.like = self.places
        return runner

    def observed(self, feeding: Feeding, content: Content | None = None, positions: Any = ()) -> Pass:
        """One observed pass of a feeding, or with other content at some positions of one input."""
        if content is None:
            return self.observed_on(feeding, feeding.inputs)
        return self.observed_on(feeding, *self.runner(feeding).fed(content, positions))

    def observed_on(
        self, feeding: Feeding, inputs: Inputs, within: AbstractContextManager[Any] | None = None
    ) -> Pass:
        """One observed pass on other inputs, in the mode of a feeding, inside a context."""
        self.snapshot.restore_state()
        with feeding.mode.on(self.model), within or nullcontext():
            random = feeding.mode.random or self.snapshot.random
            return observe(self.model, inputs, feeding.reading.batch, random, self.known)


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

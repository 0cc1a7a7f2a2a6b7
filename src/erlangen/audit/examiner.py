"""What all feedings of one audit share, and how the model is run for them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from torch import nn

from erlangen.audit.expect import Expectation
from erlangen.audit.feeding import Feeding
from erlangen.audit.inputs import Content, Inputs
from erlangen.audit.obligations import Ledger
from erlangen.audit.observed import Known, Measured, Pass, observe
from erlangen.audit.outputs import Place
from erlangen.audit.state import Snapshot
from erlangen.audit.witnesses.runs import Budget, Runner
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

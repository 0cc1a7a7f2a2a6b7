"""The verdict on one flow, and everything that flows of one feeding are judged by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from erlangen.audit.calls.real import Real, kept
from erlangen.audit.expect import Expectation
from erlangen.audit.feeding import Feeding
from erlangen.audit.findings import Finding
from erlangen.audit.identify import describe
from erlangen.audit.inputs import Content
from erlangen.audit.obligations import BROKEN, HELD, OPEN, Compared, Obligation, Subject
from erlangen.audit.observed import Measured
from erlangen.audit.support import Support, of_item
from erlangen.audit.verdict import UNDECIDED
from erlangen.audit.witnesses.flow import Flow
from erlangen.audit.wording import told, words
from erlangen.relations import Batch, Neighborhoods, PerHead, Relation

WHOLE = "the whole model"


@dataclass(eq=False)
class FlowVerdict:
    """The flow from one input to one output, held against the calls and the expectation."""

    flow: Flow
    role: str
    """"own": rows are the positions of this input. "mapped": they are positions at another rate. "pooled": no
    rows. "foreign": rows are positions of another sequence. "inner": rows seen inside the model, before a
    pooled output. "labels": only a loss may read it."""
    where: str = "given"
    predicted: tuple[Neighborhoods, ...] | None = None
    """What the kernel relations with residuals let each item's rows read; None when they do not compose."""
    outside_attention: tuple[Neighborhoods, ...] | None = None
    missing: tuple[Neighborhoods, ...] | None = None
    counterexample: Finding | None = None
    fast_path: tuple[int, int, int] | None = None
    """(item, row, position) of the first edge that differs when the model is observed."""
    real: np.ndarray | None = None
    """The real rows of each item, where padding is marked."""
    real_keys: np.ndarray | None = None
    """The real positions of each item of the input that is read."""
    settled: list[Obligation] = field(default_factory=list)
    """What was compared, and how it ended."""
    notes: list[str] = field(default_factory=list)
    wrong: dict[int, tuple[Neighborhoods, bool]] = field(default_factory=dict)
    """Item -> the edges that break the expectation, and whether they are extra; for the picture."""
    bias: str | None = UNDECIDED
    """The kind of the measured dependence, where items agree on one."""
    unseen: bool = False
    """Whether rows read more than the seen calls carry, by layers that were not seen and are as expected."""

    @property
    def square(self) -> bool:
        """Whether output rows and input positions are the same sequence."""
        return self.role == "own"

    @cached_property
    def relation(self) -> Relation | PerHead | Batch:
        """The measured dependence, as the simplest expression equal at this size."""
        return self._described(self.flow.relations)

    @cached_property
    def predicted_relation(self) -> Relation | PerHead | Batch | None:
        """What the kernel relations predict, as the simplest expression; None when they do not compose."""
        return None if self.predicted is None else self._described(self.predicted)

    def meaningful(self, bound: Neighborhoods, item: int) -> Neighborhoods:
        """The edges of real rows: what becomes of padding rows carries no meaning."""
        return kept(bound, self.real, item)

    def _described(self, items: tuple[Neighborhoods, ...]) -> Relation | PerHead | Batch:
        return describe(Support(tuple((bound,) for bound in items)), self._rows(items))

    def _told(self, relation: Any, items: tuple[Neighborhoods, ...]) -> str:
        return told(relation, Support(tuple((bound,) for bound in items)), self._rows(items))

    def _rows(self, items: tuple[Neighborhoods, ...]) -> list[np.ndarray | None] | None:
        """Per item the real rows; None where no padding is marked."""
        if self.real is None or self.real.shape[-1] != items[0].queries:
            return None
        return [None if row.all() else np.flatnonzero(row) for row in self.real]

    @cached_property
    def relation_text(self) -> str:
        """The measured dependence as a reader sees it: its expression, or words where it has none."""
        return self._told(self.relation, self.flow.relations)

    @cached_property
    def predicted_text(self) -> str | None:
        """What is predicted as a reader sees it; None when the calls do not compose."""
        return None if self.predicted is None else self._told(self.predicted_relation, self.predicted)

    def text(self, item: int = 0) -> str:
        """The measured dependence of one item in words."""
        if not self.flow.complete:
            return (
                f"a flow seen at {len(self.flow.positions or ())} of {self.flow.relations[0].keys} positions"
            )
        rows = None if self.real is None else np.flatnonzero(of_item(self.real, item))
        return words(self.flow.relations[item], None, rows)

    @cached_property
    def future_edges(self) -> int | None:
        """On how many later positions rows depend, in any item; None between different sequences."""
        if not self.square:
            return None
        every = Support((self.flow.relations,)).of_item(0).edges()
        return int((every[:, 1] > every[:, 0]).sum())

    # -------------------------------------------------------------------------- settling

    @property
    def name(self) -> str:
        """The flow, in words."""
        return f"{self.flow.content} -> {self.flow.output or 'output'}"

    def subject(self, compared: Compared, told: str | None = None) -> Subject:
        """What is compared of this flow."""
        return Subject(compared, input=self.flow.content, output=self.flow.output, told=told)

    def held(self, compared: Compared, told: str | None = None) -> None:
        """Compared, and as it must be."""
        self.settled.append(Obligation(self.where, self.subject(compared, told), HELD))

    def broken(self, compared: Compared, finding: Finding, told: str | None = None) -> None:
        """Compared, and not as it must be."""
        self.settled.append(Obligation(self.where, self.subject(compared, told), BROKEN, finding))
        if self.counterexample is None and finding.kind in ("edge", "padding"):
            self.counterexample = finding

    def settle(self, compared: Compared, finding: Finding | None, told: str | None = None) -> None:
        """Compared: broken if there is a finding, otherwise held."""
        if finding is None:
            self.held(compared, told)
        else:
            self.broken(compared, finding, told)

    def opened(self, compared: Compared, reason: str, told: str | None = None) -> None:
        """Not compared."""
        self.settled.append(Obligation(self.where, self.subject(compared, told), OPEN, reason=reason))

    @property
    def right(self) -> bool:
        """Whether everything that was compared is as it must be, and nothing is open."""
        return all(one.state == HELD for one in self.settled)

    @property
    def wrong_somewhere(self) -> bool:
        """Whether anything that was compared is broken."""
        return any(one.state == BROKEN for one in self.settled)

    def leave_out(self, state: str) -> None:
        """Take out what ended so."""
        self.settled = [one for one in self.settled if one.state != state]

    def found(self, **fields: Any) -> Finding:
        """A finding about this flow."""
        usual: dict[str, Any] = {"kind": "edge", "module": WHOLE, "where": self.where}
        return Finding(**(usual | fields), content=self.flow.content, output=self.flow.output or None)


@dataclass(frozen=True, eq=False)
class Scene:
    """Everything that flows of one feeding are judged by."""

    feeding: Feeding
    content: Content
    """The input whose content is changed."""
    calls: list[Measured]
    covered: bool
    """Whether every attention call was explained and is one of positions."""
    contents: list[Content]
    expect: Expectation
    real: Real
    exact: bool = True
    """Whether missing edges count: not in low precision, where a small dependence vanishes."""
    steps: Callable[[Content, Neighborhoods], tuple[str, Any] | None] | None = None
    """Looks inside the model for the steps in which a hidden stack reads: see `inside.py`."""
    hidden: bool = False
    """Whether there is attention that could not be explained."""
    own_path: Callable[[Neighborhoods], str | None] | None = None
    """Looks inside the model for a path on which rows depend on their own positions."""
    losses: Callable[[], set[str]] = set
    """The outputs that a loss function returned for each token."""
    labelled: np.ndarray | None = None
    """Which rows have a label that counts; None where all have."""
    may_follow: set[tuple[str, str]] = field(default_factory=set)
    """(input, output) of which the given inputs show that rows may follow the positions, which are few."""
    follow: set[tuple[str, str]] = field(default_factory=set)
    """(input, output) of which the given inputs show that rows follow the positions."""
    base: list[Measured] = field(default_factory=list)
    """The calls on the given inputs: layers dropped in training are still expected to read no more than
    these."""
    seen: list[Neighborhoods] = field(default_factory=list)
    """For each item, what any output of this sequence reads: an output of inner states may read less."""
    kept_rows: frozenset[str] = frozenset()
    """Outputs that have as many rows where the input is shorter: their rows are at no rate of positions."""
    early: bool = False
    """Whether the outputs with rows are taken before attention, beside a pooled one: nothing is missing in
    them."""
    readers: dict[str, set[str]] = field(default_factory=dict)
    """Output -> the inputs that move it, where there are several inputs."""
    pooled: frozenset[str] = frozenset()
    """The outputs without rows."""
    read_by_any: list[np.ndarray] = field(default_factory=list)
    """For each item, which positions any of these moves with."""
    taken: Callable[[Flow, int, int], str] | None = None
    """Whether a pooled output takes the row at a position of an item; see `taken_rows.py`."""
    others_spread: Callable[[Content, str], bool] | None = None
    """Whether rows of an output read other positions of another input than their own."""
    awake: Callable[[Content, str], Flow | None] | None = None
    """The flow where nothing hides it: in double precision with small activations (a saturated softmax hides
    edges) and with parameters that are all zero filled (a gate that starts at zero hides what it gates)."""
    padding_alone: Callable[[Flow], dict[int, list[int]] | None] | None = None
    """Item -> its padding positions that move an output of the whole batch, changed in this item alone; None
    where there is no mask of one row for each item."""
    rounds: Callable[[int | None, int], str | None] | None = None
    """Where what a row, or any, reads of a position reaches an operation that rounds inside the model."""

    @property
    def own_padding(self) -> bool:
        """Whether the padding was added by the audit, and not given."""
        return bool(self.feeding.pads)

    @property
    def labels(self) -> bool:
        """Whether labels were given, which a loss reads at every position."""
        return bool(self.feeding.reading.labels)

    @property
    def named(self) -> frozenset[str]:
        """The inputs that the user named as those whose positions carry content."""
        return frozenset(self.feeding.inputs.content or ())

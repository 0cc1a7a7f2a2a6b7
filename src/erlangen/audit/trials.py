"""The other feedings of an audit: which are made, in which order, and in how much of the time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from erlangen.audit import feedings as _every_file  # noqa: F401  # each registers its feeding
from erlangen.audit.beginning import Short
from erlangen.audit.calls.compared import against_given, other_side
from erlangen.audit.calls.judged_calls import inherit, judge_calls
from erlangen.audit.case import OUT_OF_TIME, Case, Examination, Examiner, in_short
from erlangen.audit.feeding import FEEDINGS, Feeding, Given
from erlangen.audit.flow_rules.beside import beside_attention
from erlangen.audit.flow_rules.judged_flows import judge_flows
from erlangen.audit.obligations import Compared, Subject
from erlangen.audit.observed import Pass
from erlangen.audit.witnesses.runs import Runner
from erlangen.errors import ErlangenError, ParameterError


def examine(examiner: Examiner, feeding: Feeding, share: float, seen: Pass | None = None) -> Examination:
    """Judge the calls and the flows of a feeding, and enter every comparison into the ledger; where no rule
    fits its outputs it is open, and the others are judged."""
    try:
        return _examine(examiner, feeding, share, seen)
    except ErlangenError:
        raise
    except Exception as error:
        settled = "say content=[...]" if feeding.given else "leave it out by feedings=[...]"
        reason = in_short(error)
        examiner.ledger.open(
            feeding.label, Subject(Compared.OUTPUTS), f"they could not all be compared ({reason}): {settled}"
        )
        return Examination(feeding.label, skipped=reason)


def _examine(examiner: Examiner, feeding: Feeding, share: float, seen: Pass | None) -> Examination:
    result, again = Examination(feeding.label), Subject(Compared.AGAIN)
    if feeding.opened:
        examiner.ledger.open(feeding.label, again, feeding.opened)
    elif feeding.same:
        examiner.ledger.held(feeding.label, again)
    if feeding.same:
        return result
    try:
        result.seen = examiner.observed(feeding) if seen is None else seen
    except Exception as error:
        if feeding.given:
            raise
        result.skipped = in_short(error)
        return result
    if not feeding.given:
        inherit(result.seen.calls, examiner.base)
    case = Case(examiner, feeding, result.seen, result)
    judge_calls(case)
    if examiner.flow:
        judge_flows(case, share)
    return result


def look_beside(examiner: Examiner, result: Examination) -> None:
    """With the time that is left: what flows beside attention, at positions that were not changed."""
    told = []
    for one in result.waiting:
        runner = one.inside.runner
        runner.end = examiner.budget.end(1.0)
        if any(call.counterexample is not None for call in result.calls):
            return  # attention itself is at fault, and rows that it moves would be taken for others
        examiner.tell(f"beside attention, from {one.content.name}")
        found = beside_attention(runner, one.content, one.verdict, one.scene)
        told.append(found is not None and found[1])
        if found is None:
            continue
        finding = found[0]
        if finding is not None and examiner.budget.left > 0:
            finding = one.inside.origin(finding)
        if found[1] or finding is not None:
            subject = one.verdict.subject(Compared.EXTRA, "extra edges beside attention")
            examiner.ledger.settle(result.label, subject, finding)
            one.verdict.counterexample = one.verdict.counterexample or finding
    result.beside = bool(told) and all(told)


NEEDED = 8
"""A feeding is tried if there is time for so many runs at least."""
FULL_RUNS = 10
"""So many runs in training at full length are kept time for, where other feedings are short."""
LEAST_SHARE = 0.3
"""What is kept for later leaves this part of the time."""
FOR_LONGER = 0.2
"""A longer input is tried if this part of the whole budget is left."""


def chosen_feedings(asked: Sequence[str] | None, variants: bool) -> list[str]:
    """The names of the feedings to try, in their order: all but halves, or those that were asked for."""
    if asked is None:
        return [name for name, way in FEEDINGS.items() if variants and not way.half_of]
    if isinstance(asked, str):
        raise ParameterError(f"feedings= takes a list of names, got the string {asked!r}")
    for name in asked:
        if name not in FEEDINGS:
            raise ParameterError(f"feedings= knows {', '.join(map(repr, FEEDINGS))}; got {name!r}")
    return [name for name, way in FEEDINGS.items() if name in asked and way.half_of not in asked]


@dataclass(eq=False)
class Trials:
    """Feedings beside the given one, and what each of them showed."""

    examiner: Examiner
    runner: Runner
    """Runs the given inputs."""
    small: Short | None
    """A short beginning of them, where they take too long."""
    feedings: list[Feeding] = field(default_factory=list)
    results: list[Examination] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    """Name of a feeding -> why none could be made."""
    warnings: list[str] = field(default_factory=list)
    own: int = 0
    """How many of the feedings were given by the user."""
    short: range = range(0)
    """Which of the feedings are of the short beginning."""

    @property
    def done(self) -> list[tuple[Feeding, Examination]]:
        """The feedings that were tried."""
        pairs = zip(self.feedings, self.results, strict=True)
        return [(feeding, result) for feeding, result in pairs if result.skipped is None]

    def make(self, given: Given, chosen: list[str]) -> None:
        """Make the feedings; one that cannot be made is not tried, and said."""
        small, budget, start = self.small, self.examiner.budget, len(self.feedings)
        whole: list[Feeding] = []
        for way in (FEEDINGS[name] for name in chosen):
            if small is not None and budget.left <= way.runs * small.runner.seconds:
                self.refused[way.name] = OUT_OF_TIME
                continue
            brief = small is not None and not way.long
            try:
                for one in way.make(small.given if small is not None and brief else given):
                    named = small.named(one) if small is not None and brief else one
                    self.feedings.append(replace(named, way=way.name))
                if small is not None and way.at_full_length:
                    whole += [replace(one, way=way.name) for one in islice(way.make(given), 1)]
            except Exception as error:
                reason = in_short(error)
                if isinstance(error, ErlangenError):
                    reason = reason.removeprefix(f"{type(error).__name__}: ")
                elif isinstance(error, AttributeError | TypeError | LookupError | NameError):
                    # No model runs unguarded while feedings are made: the code that makes them is at fault.
                    failed = Subject(Compared.INPUTS, told=f"the feeding {way.name!r}")
                    self.examiner.ledger.open(way.name, failed, f"it could not be made ({reason})")
                self.refused[way.name] = reason
                self.warnings.append(f"{way.name}: not tried: {reason}")
        if small is not None:
            self.short = range(start, len(self.feedings))
            self.feedings += whole

    def examine(self, first: Examination, base: Pass, brief: Pass | None) -> None:
        """Examine every feeding for which there is time, and hold it against the given inputs."""
        for number, feeding in enumerate(self.feedings):
            self.examiner.tell(f"{feeding.label}")
            share = self._share(number, first)
            if share is None:
                self.results.append(Examination(feeding.label, skipped=OUT_OF_TIME))
                continue
            result = examine(self.examiner, feeding, share)
            seen = brief if number in self.short and brief is not None else base
            against_given(self.examiner, feeding, result, seen)
            self.results.append(result)
            if feeding.added:
                self.examiner.ledger.name_added(feeding.label, feeding.added)
            if feeding.unshown:
                self.warnings += other_side(self.examiner.ledger, feeding, result, self.examiner.base)

    def _share(self, number: int, first: Examination) -> float | None:
        """The part of the time that is left for a feeding; None where that is too little."""
        budget, small, whole = self.examiner.budget, self.small, self.runner.seconds
        long = FEEDINGS[name].long if (name := self.feedings[number].way) else False
        each = small.runner.seconds if small is not None and number in self.short and not long else whole
        # What needs full length comes last and needs the most; a longer input takes none of it.
        kept = sum(one.runs for one in first.waiting) + FULL_RUNS * (number in self.short)
        # A trial observes the model once and runs it twice before anything is changed.
        least = 0.0 if small is None else NEEDED * each + long * kept * whole
        if budget.left <= max(FOR_LONGER * long * budget.seconds, least):
            return None
        return max(LEAST_SHARE, 1 - kept * whole / budget.left) / (len(self.feedings) - number)

    def not_tried(self, chosen: list[str], longest: int) -> dict[str, str]:
        """Feedings that were not tried, each with its reason."""
        found = {one.label: one.skipped for one in self.results if one.skipped is not None}
        made = {one.way for one in self.feedings}
        halves = {FEEDINGS[name].half_of for name in chosen} - {""}
        for name, way in sorted(FEEDINGS.items(), key=lambda one: not one[1].half_of):
            if name in halves or (way.half_of and way.half_of not in halves):
                continue
            asked = name in chosen
            reason = way.untried(self.examiner.model, name in made, longest) if asked else "not asked for"
            found |= {} if reason is None else {name: reason}
        if not self.examiner.flow:
            found["flow"] = "not asked for"
        return {**found, **self.refused}

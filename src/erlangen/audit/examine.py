"""One feeding, examined: its calls, its flows, padding, batch items, labels and finiteness, each an
obligation."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import nn

from erlangen.audit.awake import awake
from erlangen.audit.beside import FOLLOWED, beside_attention, needed
from erlangen.audit.bounds import closure_of, single
from erlangen.audit.contradictions import contradictions_of, padding_read
from erlangen.audit.delimiters import Delimiters, about_this_content
from erlangen.audit.early_rows import each_itself, only_early
from erlangen.audit.embedding import embedding_of
from erlangen.audit.expect import (
    AtMost,
    Expectation,
    RaisingExpectation,
    about_given_alone,
    at_most,
    has_own_size,
    overall,
)
from erlangen.audit.feedings.draws import drawn_by
from erlangen.audit.feedings.feeding import Feeding
from erlangen.audit.feedings.special_tokens import named_tokens
from erlangen.audit.findings import Finding
from erlangen.audit.flow_verdict import WHOLE, FlowVerdict, Scene
from erlangen.audit.flows import judge_flow, role_of
from erlangen.audit.groups import GROUPS, forbidden_by_groups, moves_of_output
from erlangen.audit.inputs import Content, Inputs
from erlangen.audit.inside import Inside
from erlangen.audit.invariance import compare_without_padding
from erlangen.audit.joined import others_spread
from erlangen.audit.last_rows import kept_rows
from erlangen.audit.losses import fed_labels, labelled_rows, losses_of
from erlangen.audit.obligations import BROKEN, OPEN, Compared, Ledger, Obligation, Subject
from erlangen.audit.observed import Known, Measured, Pass, observe
from erlangen.audit.other_rows import everything, followed
from erlangen.audit.outputs import Place, output_tensors
from erlangen.audit.over_draws import OTHER_DRAWS, counterpart, drawn_at_random, lacks, sizes
from erlangen.audit.padded_items import padding_alone, padding_by_itself
from erlangen.audit.placed import place_padding
from erlangen.audit.pooled import must_read_all, read_by_any, unread
from erlangen.audit.quantised import told_of_items
from erlangen.audit.state import Snapshot
from erlangen.audit.stepwise import settle_rounded
from erlangen.audit.taken_rows import taken
from erlangen.audit.verdict import CallVerdict, judge_call
from erlangen.audit.witnesses.flow import LEAST, Flow, batch_leaks, differs, measure
from erlangen.audit.witnesses.runs import BATCH_NORM, Budget, Runner, now
from erlangen.audit.witnesses.trace import added_tables, feature_sizes
from erlangen.errors import DataError, ErlangenError
from erlangen.relations import Neighborhoods

Progress = Callable[[str], None]
OUT_OF_TIME = "no time left within the budget"
"""Why a feeding was not tried."""
TELLING = 0.1
"""Progress also says how much time is left once this part of the budget is spent."""


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
    waiting: list[tuple[Runner, Content, FlowVerdict, Scene, Inside]] = field(default_factory=list)
    """Flows of rows at sampled positions, of which more may be told if time is left."""
    beside: bool = False
    """Whether every pair of positions was told beside attention."""
    groups: int = 0
    """How many groups of positions were changed at once, in place of those that were not changed alone."""

    def release(self) -> None:
        """Let go of what was only needed to examine: tensors, the graphs they hang on, and the model."""
        self.seen, self.waiting = None, []


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
    unseen: set[tuple[str, str]] = field(default_factory=set)
    """(input, output) between which some feeding showed layers that are as expected and were not seen."""
    may_follow: set[tuple[str, str]] = field(default_factory=set)
    """(input, output) whose rows may follow the few positions of the input, at another rate."""
    follow: set[tuple[str, str]] = field(default_factory=set)
    """(input, output) whose rows plainly follow the input on the given inputs, of more positions perhaps."""
    delimiting: dict[str, set[int]] = field(default_factory=dict)
    """Input -> its tokens that delimit documents."""
    kept: dict[str, Content | None] = field(default_factory=dict)
    """Input -> its content under the present feeding, with what delimits kept where it is."""
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
        if feeding.label != "given":
            runner.like = self.places
        return runner

    def observed(self, feeding: Feeding, content: Content | None = None, positions: Any = ()) -> Pass:
        """One observed pass of a feeding, or with other content at some positions of one input."""
        inputs, behind, random = feeding.inputs, nullcontext(), feeding.mode.random or self.snapshot.random
        if content is not None:
            inputs, behind = self.runner(feeding).fed(content, positions)
        self.snapshot.restore_state()
        with feeding.mode.on(self.model), behind:
            return observe(self.model, inputs, feeding.reading.batch, random, self.known)

    def examine(self, feeding: Feeding, share: float, seen: Pass | None = None) -> Examination:
        """Judge the calls and the flows of a feeding, and enter every comparison into the ledger."""
        result = Examination(feeding.label)
        given = feeding.label == "given"
        if feeding.same or feeding.opened:
            again = Subject(Compared.AGAIN)
            if feeding.opened:
                self.ledger.open(feeding.label, again, feeding.opened)
            else:
                self.ledger.held(feeding.label, again)
        if feeding.same:
            return result
        try:
            result.seen = self.observed(feeding) if seen is None else seen
        except Exception as error:
            if given:
                raise
            result.skipped = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            return result
        if not given:
            inherit(result.seen.calls, self.base)
        real = {one.name: feeding.reading.real(one.name) for one in feeding.reading.contents}
        groups = {one.name: feeding.reading.by_group(one.name) for one in feeding.reading.contents}
        expect = self._calls(feeding, result, groups)
        if self.flow:
            self._flows(feeding, result, real, expect, share)
        return result

    # ---------------------------------------------------------------------------- calls

    def _calls(
        self, feeding: Feeding, result: Examination, real: dict[str, np.ndarray | None]
    ) -> Expectation:
        """Judge the calls; the expectation comes back, or None where it cannot be held at these sizes."""
        label, expect = feeding.label, at_most(self.expect) if feeding.at_most else self.expect
        seen = result.seen
        assert seen is not None
        place_padding(seen.calls, feeding.reading.sequences, real, lambda *at: self.observed(feeding, *at))
        if about_given_alone(expect, label, feeding.resized):
            # Such as documents: which they are may follow the content, and they fit one length.
            expect = None
            result.differences.append("the expectation is about the given inputs, and was not held here")
        try:
            result.calls = [self._judged(call, expect, real, feeding) for call in seen.calls]
            if feeding.mode.train and not feeding.at_most:
                result.calls = self._over_draws(result.calls, expect, real, feeding)
        except ErlangenError as error:
            if feeding.resized and isinstance(error, RaisingExpectation):
                self.ledger.open(
                    label, Subject(Compared.CALLS), str(error)
                )  # at the given sizes it is raised
            if not feeding.resized:
                result.calls = [_judge_part(call, expect, real, feeding) for call in seen.calls]
                return self._settle_calls(result, label, expect)
            expect = None
            result.calls = [judge_call(call, None, real, label) for call in seen.calls]
            result.differences.append(f"the expectation was not held against other lengths: {error}")
        return self._settle_calls(result, label, expect)

    def _judged(
        self, call: Measured, expect: Expectation, real: dict[str, np.ndarray | None], feeding: Feeding
    ) -> CallVerdict:
        """A call, judged. It may read the keys of padding that the model tells by a token: this was taken for
        padding because nothing of what stands there arrives at other rows."""
        verdict = judge_call(call, expect, real, feeding.label)
        tokens = {mask.content for mask in feeding.reading.masks if mask.token is not None}
        if not tokens or (verdict.counterexample is None and padding_read(verdict) is None):
            return verdict
        without = {name: None if name in tokens else mask for name, mask in real.items()}
        free = judge_call(call, expect, without, feeding.label)
        if free.counterexample is not None:
            return verdict
        self.notes.append(
            f"{call.module or 'the model'} reads keys of padding, though nothing of what stands there "
            "arrives at other rows: they take weight from the others"
        )
        return free

    def _over_draws(
        self,
        calls: list[CallVerdict],
        expect: Expectation,
        real: dict[str, np.ndarray | None],
        feeding: Feeding,
    ) -> list[CallVerdict]:
        """The verdicts of calls in training: one that reads otherwise at another draw of random numbers lacks
        nothing, and reads too much if it does so at any draw."""
        given = {sizes(call): call.kernel for call in self.base}
        unlike = [
            one for one in calls if given.get(sizes(one.measured), one.measured.kernel) != one.measured.kernel
        ]
        if not unlike and not any(one.counterexample is not None for one in calls):
            return calls
        modes = [replace(feeding.mode, random=drawn_by(seed)) for seed in OTHER_DRAWS]
        try:
            passes = [self.observed(replace(feeding, mode=mode)) for mode in modes]
        except Exception:
            return calls
        found = []
        for one in calls:
            if drawn_at_random(one.measured, passes):
                self.random.add(one.module)
                others = [other for seen in passes if (other := counterpart(one.measured, seen)) is not None]
                inherit(others, [one.measured])
                each = [
                    self._judged(call, at_most(expect), real, feeding) for call in (one.measured, *others)
                ]
                one = next((verdict for verdict in each if verdict.counterexample is not None), each[0])
            found.append(one)
        return found

    def _settle_calls(self, result: Examination, label: str, expect: Expectation) -> Expectation:
        for call in result.calls:
            if call.expected is not None:
                self.ledger.settle(label, Subject(Compared.CALL, module=call.module), call.counterexample)
            result.contradictions += contradictions_of(call)
            if call.real_keys is not None and not call.real_keys.all():
                self.ledger.settle(label, Subject(Compared.PADDING, module=call.module), padding_read(call))
        return expect

    # ---------------------------------------------------------------------------- flows

    def _flows(
        self,
        feeding: Feeding,
        result: Examination,
        real: dict[str, np.ndarray | None],
        expect: Expectation,
        share: float,
    ) -> None:
        label, seen = feeding.label, result.seen
        assert seen is not None
        runner = self.runner(feeding)
        if feeding.label == "given" and self.first is not None:
            runner.like_runner(self.first)
        end = self.budget.end(share)
        try:
            output = runner.base()
        except Exception as error:
            result.skipped = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            if label == "given":
                self.ledger.open(label, Subject(Compared.OUTPUTS), result.skipped)
            return
        for name, what in runner.unread.items():
            reason = f"{name or 'the output'} is {what}, which was not looked into: return its numbers"
            self.ledger.open(label, Subject(Compared.OUTPUTS, told=name or "the output"), reason)
        contents = feeding.reading.contents
        calls = [one.measured for one in result.calls]
        covered = not seen.unexplained and not any(call.kind == "derived" for call in calls)
        if contents and not runner.places():
            reason = "the model returns no tensor of numbers, so nothing flows that could be measured"
            self.ledger.open(label, Subject(Compared.OUTPUTS), reason)
            self.notes.append(f"the flow was not measured: {reason}")
            return
        if label == "given":
            self.places = {place.name: place for place in runner.places()}
        self._finite(feeding, runner, output, real)
        every = [(one, False) for one in contents] + [(one, True) for one in feeding.reading.labels]
        readers = _readers(runner, output)
        for number, (content, labels) in enumerate(every):
            runner.end = now() + (end - now()) / (len(every) - number)
            positions = self._positions(content, runner, feeding)
            count = content.length if positions is None else len(positions)
            where = "" if label == "given" else f" ({label})"
            self.tell(f"flow from {content.name}: {count} positions{where}")
            try:
                flows = measure(runner, content, positions)
                flows = padding_by_itself(runner, content, flows, real.get(content.name))
                if not labels:
                    flows = self._without_delimiters(feeding, result, runner, content, flows, expect)
            except DataError as error:
                self.ledger.open(label, Subject(Compared.FLOW, input=content.name), str(error))
                continue
            except Exception as error:
                reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
                self.ledger.open(
                    label, Subject(Compared.FLOW, input=content.name),
                    f"changing {content.name} alone is not a valid input ({reason}): say content=[...] "
                    "without it, or vary=... to change what belongs together",
                )  # fmt: skip
                continue
            positions = None if flows[0].positions is None else list(flows[0].positions)
            if positions is not None:
                result.sampled = len(positions), content.length
            inside = Inside(runner, content, positions, _rows_inside(content, calls))
            scene = Scene(
                label, calls, covered, [*contents, *fed_labels(feeding.reading.labels, calls)], expect, real,
                exact=feeding.exact, hidden=bool(seen.unexplained), own_path=inside.own_path,
                own_padding=label.startswith("padded"),
                labels=bool(feeding.reading.labels), may_follow=self.may_follow, follow=self.follow,
                named=frozenset(feeding.inputs.content or ()),
                losses=lambda: losses_of(runner),
                labelled=labelled_rows(feeding.reading.labels),
                base=[] if feeding.resized else self.base,
                seen=_union(flows, content, [*contents, *feeding.reading.labels], readers),
                early=only_early(flows), kept_rows=kept_rows(runner.places(), self.fixed),
                readers=readers,
                pooled=frozenset(flow.output for flow in flows if flow.pooled),
                read_by_any=read_by_any(flows),
                taken=lambda flow, item, at, one=content: taken(runner, flow, one, item, at, calls, covered),
                steps=lambda one, bound, inside=inside: inside.steps(bound),
                awake=lambda one, name, at=positions: awake(runner, one, name, at),
                others_spread=lambda one, name: others_spread(runner, one, name),
                rounds=inside.rounds,
                padding_alone=lambda flow, content=content: padding_alone(
                    runner, content, flow, real.get(content.name)
                ),
            )  # fmt: skip
            integers = {place.name: place for place in runner.places() if place.discrete}
            for flow in flows:
                if flow.output in integers:
                    self._judge_integers(flow, content, labels, scene, inside, feeding, result, output)
                else:
                    self._judge(flow, content, labels, scene, inside, feeding, result, runner)
        compare_without_padding(self, feeding, runner, output, result)

    def _without_delimiters(
        self,
        feeding: Feeding,
        result: Examination,
        runner: Runner,
        content: Content,
        flows: list[Flow],
        expect: Expectation,
    ) -> list[Flow]:
        """The flows, where what is expected is about the given documents, without what delimits these."""
        self.kept.pop(content.name, None)
        if expect is None or not about_this_content(expect, result.calls):
            return flows
        known = self.delimiting.setdefault(content.name, set())
        calls = [one.measured for one in result.calls]
        hidden = not calls or (result.seen is not None and bool(result.seen.unexplained))
        found = Delimiters(
            runner, content, calls,
            lambda inputs: self._observed_on(feeding, inputs),
            lambda one: embedding_of(self.model, feeding.inputs, one, runner.on),
            {token for _, token in named_tokens(self.model)} if hidden else set(),
            known,
        )  # fmt: skip
        flows, notes, opened = found.taken_out(flows)
        self.notes += [note for note in notes if note not in self.notes]
        for reason in opened:
            self.ledger.open(feeding.label, Subject(Compared.DELIMITERS, input=content.name), reason)
        if known:
            self.kept[content.name] = found.kept()
        return flows

    def _observed_on(self, feeding: Feeding, inputs: Inputs) -> Pass:
        """One observed pass on other inputs, in the mode of a feeding."""
        self.snapshot.restore_state()
        with feeding.mode.on(self.model):
            random = feeding.mode.random or self.snapshot.random
            return observe(self.model, inputs, feeding.reading.batch, random, self.known)

    def _judge(
        self,
        flow: Flow,
        content: Content,
        labels: bool,
        scene: Scene,
        inside: Inside,
        feeding: Feeding,
        result: Examination,
        runner: Runner,
    ) -> None:
        rivals = _rivals(flow, content, [*scene.contents, *feeding.reading.labels], scene.readers)
        role = role_of(flow, content, rivals, flow.relations[0].queries)
        if role == "mapped" and not labels:
            across = _only_read_across(content, scene.calls)
            role = "foreign" if across or _of_another(flow, content, scene) else role
        if feeding.label == "given" and role == "mapped" and followed(flow):
            self.may_follow.add((content.name, flow.output))
            self.follow.add((content.name, flow.output))
        same = [one for one in result.flows if one.role == "own" and one.flow.output == flow.output]
        beside = [one.flow for one in same if one.flow.content != flow.content]
        verdict = judge_flow(flow, content, "labels" if labels else role, scene, beside)
        if feeding.mode.train and scene.exact and not labels and lacks(verdict):
            other = self._at_another_draw(flow, content, feeding, runner)
            if other is not None and other.relations != flow.relations:
                scene = replace(scene, exact=False)
                verdict, drawn = (judge_flow(one, content, role, scene, beside) for one in (flow, other))
                verdict.settled += [one for one in drawn.settled if one.state == BROKEN]
                self.notes.append(
                    f"{feeding.label}: what is read is drawn at random: nothing is missing there"
                )
        settle_rounded(verdict, content, scene, inside, runner)
        result.flows.append(verdict)
        if verdict.unseen:
            self.unseen.add((content.name, flow.output))
        # At few positions, or where less is read, layers that were not seen may stay so.
        verdict.unseen = (content.name, flow.output) in self.unseen
        if scene.own_padding:
            self.notes += verdict.notes
        verdicts = [verdict]
        moves = any(bound.num_edges for bound in flow.relations) and content.axis is not None
        opened = role == "mapped" and any(one.state == OPEN for one in verdict.settled)
        # Under other feedings rows that come out of the same model stand for those before pooling.
        thorough = feeding.label == "given" or feeding.thorough or not scene.seen
        looked = (role in ("pooled", "mapped") and thorough) or opened
        if looked and not labels and scene.expect is not None and moves:
            inner = self._inner(flow, content, scene, inside)
            if role == "mapped" and not opened:  # rows at their own rate were compared
                inner.leave_out(OPEN)
            if opened and inner.role == "inner":
                verdict.leave_out(OPEN)
            verdicts.append(inner)
            result.flows.append(inner)
        if flow.positions is not None and scene.expect is not None:
            for one in verdicts:
                self._groups(one, content, scene, inside, result, runner)
        for one in verdicts:
            for ended in one.settled:
                in_time = self.budget.left > 0
                if ended.finding is not None and in_time and one.role in ("own", "labels", "inner"):
                    located = inside.origin(ended.finding)
                    if one.counterexample is ended.finding:
                        one.counterexample = located
                    ended = replace(ended, finding=located)
                self.ledger.enter(ended)
        if flow.whole_batch and content.batch > 1:
            # A loss has no items of its own: they are compared in the rows before it, or not at all.
            if scene.expect is None or not thorough or not inside.has_rows():
                return
            flow = replace(flow, batch_leak=inside.batch_leak)
        if flow.batch_leak is not None and self._by_statistics(feeding, content, flow):
            self.notes.append("in training mode sequences of one batch read each other, by batch statistics")
        elif flow.batch_leak is not None or content.batch > 1:
            self.ledger.settle(
                feeding.label,
                verdict.subject(Compared.BATCH),
                _batch_finding(flow, feeding.label, self.model, inside),
            )

    def _at_another_draw(self, flow: Flow, content: Content, feeding: Feeding, runner: Runner) -> Flow | None:
        """The same flow with other random numbers; None where it cannot be measured."""
        mode = replace(feeding.mode, random=drawn_by(OTHER_DRAWS[0]))
        again = self.runner(replace(feeding, mode=mode))
        again.end = max(runner.end, self.budget.end(0.5))
        positions = None if flow.positions is None else list(flow.positions)
        try:
            flows = measure(again, content, positions)
        except Exception:
            return None
        same = [one for one in flows if one.output == flow.output and one.positions == flow.positions]
        return same[0] if same else None

    def _by_statistics(self, feeding: Feeding, content: Content, flow: Flow) -> bool:
        """Whether items read each other by batch norms alone, as is meant in training: with the statistics
        that these keep no item moves with another."""
        norms = any(isinstance(module, BATCH_NORM) for module in self.model.modules())
        if not (feeding.mode.train and norms):
            return False
        runner = self.runner(replace(feeding, mode=replace(feeding.mode, statistics=False)))
        if flow.whole_batch:
            inside = Inside(runner, content, None, content.length)
            return inside.has_rows() and inside.batch_leak is None
        leaks = batch_leaks(runner, content, runner.places(), runner.base())
        names = [place.name for place in runner.places()]
        return flow.output in names and leaks[names.index(flow.output)] is None

    def _groups(
        self,
        verdict: FlowVerdict,
        content: Content,
        scene: Scene,
        inside: Inside,
        result: Examination,
        runner: Runner,
    ) -> None:
        """Where not every position was changed by itself: change many at once."""
        told = "extra edges, by groups of positions"
        kept = self.kept.get(content.name, content)
        if verdict.role not in ("own", "inner") or kept is None:
            return
        try:
            moves, double = (
                moves_of_output(runner, kept, verdict.flow.output)
                if verdict.role == "own"
                else (inside.moves(), False)
            )
            found, tried = forbidden_by_groups(moves, content, verdict, scene, runner, double)
        except DataError as error:
            verdict.opened(Compared.EXTRA, str(error), told)
            return
        result.groups = max(result.groups, tried)
        if verdict.role == "own" and found is None:
            result.waiting.append((runner, content, verdict, scene, inside))
        if found is not None:
            verdict.broken(Compared.EXTRA, found, told)
        elif tried:
            verdict.held(Compared.EXTRA, told)

    def runs_beside(self, result: Examination) -> int:
        """How many runs `beside` may take, and those that follow a row to its position."""
        return sum(needed(content.length) + FOLLOWED for _, content, *_ in result.waiting)

    def beside(self, result: Examination) -> None:
        """With the time that is left: what flows beside attention, at positions that were not changed."""
        told = []
        for runner, content, verdict, scene, inside in result.waiting:
            runner.end = self.budget.end(1.0)
            if any(one.counterexample is not None for one in result.calls):
                return  # attention itself is at fault, and rows that it moves would be taken for others
            self.tell(f"beside attention, from {content.name}")
            found = beside_attention(runner, content, verdict, scene)
            told.append(found is not None and found[1])
            if found is None:
                continue
            finding = found[0]
            if finding is not None and self.budget.left > 0:
                finding = inside.origin(finding)
            if found[1] or finding is not None:
                subject = verdict.subject(Compared.EXTRA, "extra edges beside attention")
                self.ledger.settle(result.label, subject, finding)
                verdict.counterexample = verdict.counterexample or finding
        result.beside = bool(told) and all(told)

    def _judge_integers(
        self,
        flow: Flow,
        content: Content,
        labels: bool,
        scene: Scene,
        inside: Inside,
        feeding: Feeding,
        result: Examination,
        output: Any,
    ) -> None:
        """Integers that move are evidence; where they stay, the numbers they are made of are looked at."""
        rivals = _rivals(flow, content, [*scene.contents, *feeding.reading.labels], scene.readers)
        role = role_of(flow, content, rivals, flow.relations[0].queries)
        direct = judge_flow(flow, content, "labels" if labels else role, replace(scene, exact=False))
        if labels:
            direct.settled = [_metric(one, flow) for one in direct.settled]
        elif not direct.wrong_somewhere:
            direct = self._rounded(direct, flow, content, role, scene, inside, feeding, output)
        result.flows.append(direct)
        for ended in direct.settled:
            located = None if ended.finding is None else inside.origin(ended.finding)
            self.ledger.enter(replace(ended, finding=located))
        if flow.batch_leak is not None and not self._by_statistics(feeding, content, flow):
            finding = _batch_finding(flow, feeding.label, self.model, inside)
            self.ledger.settle(feeding.label, direct.subject(Compared.BATCH), finding)

    def _rounded(
        self, direct: FlowVerdict, flow: Flow, content: Content, role: str, scene: Scene, inside: Inside,
        feeding: Feeding, output: Any,
    ) -> FlowVerdict:  # fmt: skip
        """What the numbers behind an integer output read, in place of the integers."""
        nothing = FlowVerdict(flow, role, scene.label)
        thorough = feeding.label == "given" or feeding.thorough
        if scene.expect is None or role == "foreign" or content.axis is None or not thorough:
            return direct if role == "foreign" else nothing
        if role == "pooled":  # rows that come out of the same model stand for those before it
            return nothing if scene.seen else self._inner(flow, content, scene, inside)
        name = flow.output or "the output"
        try:
            tensor = dict(output_tensors(output))[flow.output]
            found = inside.before_rounding(flow.output, tensor)
        except Exception as error:
            nothing.opened(
                Compared.EDGES,
                f"{name} holds integers, and looking inside failed ({type(error).__name__}): return the "
                "numbers that they are made of",
            )
            return nothing
        if found is None:
            return nothing  # a function of integers: what it reads is seen in the flow
        inner, sure = found
        verdict = judge_flow(inner, content, "inner", scene if sure else replace(scene, exact=False))
        if not sure and verdict.wrong_somewhere:
            verdict.settled = []
            verdict.opened(
                Compared.EXTRA,
                f"{name} holds integers, and which numbers they are made of could not be told: return these",
            )
        return verdict

    def _inner(self, flow: Flow, content: Content, scene: Scene, inside: Inside) -> FlowVerdict:
        """The rows before a pooled output, judged in its place, and whether it reads all that it must."""
        verdict, rows = self._before_pooling(flow, content, scene, inside)
        own = content is scene.contents[0] or content.length == scene.contents[0].length
        if not (flow.pooled and own and must_read_all(scene.expect)):
            return verdict
        found = unread(FlowVerdict(flow, "pooled", scene.label), content, scene, inside.runner)
        if isinstance(found, Finding):
            verdict.leave_out(OPEN)
            verdict.broken(Compared.MISSING, found)
        elif isinstance(found, str):
            verdict.opened(Compared.MISSING, found)
        elif not rows and not scene.hidden:
            # Nothing can be too much, and every position is read: it needs no rows to be judged by.
            verdict.settled = []
            verdict.held(Compared.EDGES)
        return verdict

    def _before_pooling(
        self, flow: Flow, content: Content, scene: Scene, inside: Inside
    ) -> tuple[FlowVerdict, bool]:
        """The rows before a pooled output, judged; False where it has none."""
        relation = overall(scene.expect)
        any_edge = isinstance(relation, AtMost) and everything(relation)
        if inside.rows in self.widths:  # features would be taken for rows: not so at another length
            if any_edge:
                verdict = FlowVerdict(flow, "pooled", scene.label)
                verdict.held(Compared.EXTRA)  # nothing could be too much
                return verdict, True
            self.ambiguous[content.name] = self.ambiguous.get(content.name, True)
            return FlowVerdict(flow, "pooled", scene.label), True
        self.ambiguous[content.name] = False
        own = content is scene.contents[0] or content.length == scene.contents[0].length
        alone = not each_itself(flow) or must_read_all(scene.expect)
        try:
            inner = inside.before_pooling(flow.output)
        except Exception as error:
            inner, why = None, f"; looking inside failed: {type(error).__name__}"
        else:
            why = ""
        if inner is not None and each_itself(inner) and alone:
            inner, why = None, "; the rows before it read themselves only: others are read behind them"
        if inner is None and not why and content is scene.contents[0]:
            # A wrapper for training gives the model all tokens but the last, and returns the loss alone.
            inner = inside.one_row_less(self.widths, flow.output)
            # Rows that read themselves only say nothing of what is read behind them.
            if inner is not None and not (each_itself(inner) and alone):
                return judge_flow(inner, content, "mapped", scene), True
            inner = None
        if inner is None:
            verdict = FlowVerdict(flow, "pooled", scene.label)
            across = _only_read_across(content, scene.calls)
            if across or not (own or _asks(content, scene.calls)):
                verdict.notes.append(
                    f"nothing is expected of reading {content.name}, which is another sequence"
                )
                verdict.held(Compared.ANOTHER)
                return verdict, True
            if any_edge:
                verdict.held(Compared.EXTRA)  # nothing could be too much
                return verdict, True
            verdict.opened(
                Compared.EDGES,
                "it has no rows, and no tensor with rows was seen before it: give a model that returns rows"
                + why,
            )
            return verdict, "failed" in why
        verdict = judge_flow(inner, content, "inner", scene)
        if not (own or _asks(content, scene.calls)) and verdict.settled:
            if not verdict.right:
                verdict.settled, verdict.counterexample = [], None
                verdict.opened(
                    Compared.EXTRA,
                    f"rows of {content.name} inside the model read more than expected, and whether it is "
                    f"another sequence could not be told: if so, say content=[...] without {content.name!r}",
                )
            return verdict, True
        if verdict.right:
            self._other_branches(verdict, flow, content, scene, inside)
        return verdict, True

    def _other_branches(
        self, verdict: FlowVerdict, flow: Flow, content: Content, scene: Scene, inside: Inside
    ) -> None:
        """Open where rows of some module read too much, although the last rows before pooling do not."""
        relation, real = overall(scene.expect), scene.real.get(content.name)
        if relation is None or everything(relation) or (real is not None and not real.all()):
            return
        n = content.length
        try:
            bound = [single(relation, b) for b in range(len(flow.relations))]
            allowed = [closure_of(one.on(n), one, n).dense() for one in bound]
        except ErlangenError:
            return  # the expectation cannot be held at this length, which is said elsewhere
        module = inside.beyond(allowed)
        if module is not None:
            verdict.opened(
                Compared.EXTRA,
                f"rows of {module} read more than expected, and whether {flow.output or 'the output'} takes "
                "them could not be told: give a model that returns rows",
                "extra edges, in other branches",
            )

    def _positions(self, content: Content, runner: Runner, feeding: Feeding) -> list[int] | None:
        """Which positions to change: all, unless asked for fewer or the budget does not allow it."""
        n = content.length
        if self.positions is not None:
            return [p for p in self.positions if p < n] if content.axis is not None else None
        thorough = feeding.thorough or feeding.label == "given"
        # So short that changing groups as well would take as many runs as changing every position.
        most = n if thorough or n <= feeding.spread + GROUPS else feeding.spread
        # Others are the second run, those that change one item, and groups of positions.
        others = 1 + (min(content.batch, 8) if content.batch > 1 else 0)
        affordable = int(min(runner.affordable(), 1e9)) - others
        count = min(most, affordable)
        if count >= n:
            return None
        count = max(LEAST, min(most, affordable - GROUPS))
        return sorted({*(round(k * (n - 1) / (count - 1)) for k in range(count)), *feeding.besides(n)})

    # ---------------------------------------------------------------- outputs as numbers

    def _finite(
        self, feeding: Feeding, runner: Runner, output: Any, real: dict[str, np.ndarray | None]
    ) -> None:
        """No real row may be NaN, nor infinite throughout."""
        for place in runner.places():
            rows = place.rows(output)
            bad = rows.isnan().any(-1) | rows.isinf().all(-1)
            fitting = [m for m in real.values() if m is not None and m.shape == tuple(bad.shape)]
            if fitting:
                bad = bad & torch.from_numpy(fitting[0])
            finding = None
            if bool(bad.any()):
                b, i = bad.nonzero()[0].tolist()
                detail = (
                    f"{int(bad.sum())} of {bad.numel()} rows of {place.name or 'the output'} are not finite, "
                    f"first item {b}, row {i}: they move with nothing, so nothing could be told about them"
                )
                finding = Finding("finite", WHOLE, item=b, query=i, where=feeding.label, detail=detail)
            self.ledger.settle(feeding.label, Subject(Compared.FINITE, output=place.name), finding)

    notes: list[str] = field(default_factory=list)
    """What is worth saying and breaks nothing."""


def _judge_part(
    call: Measured, expect: Expectation, real: dict[str, np.ndarray | None], feeding: Feeding
) -> CallVerdict:
    """A call, judged; one that reads a part of a sequence, as of one document, is judged by the flow."""
    try:
        return judge_call(call, expect, real, feeding.label)
    except ErlangenError:
        shorter = any(max(call.queries, call.keys) < one.length for one in feeding.reading.sequences)
        if not (shorter and has_own_size(expect)):
            raise
        call.kind = "derived"
        return judge_call(call, None, real, feeding.label)


def _readers(runner: Runner, output: Any) -> dict[str, set[str]]:
    """Output -> the inputs and labels that move it; empty where there is one only, or one cannot be
    changed."""
    every = [*runner.reading.contents, *runner.reading.labels]
    found: dict[str, set[str]] = {place.name: set() for place in runner.places()}
    if len(every) < 2:
        return {}
    for content in every:
        try:
            other = runner.changed(content, range(content.length))
            for place in runner.places():
                if bool(differs(place.rows(other), place.rows(output))[0].any()):
                    found[place.name].add(content.name)
        except Exception:
            return {}  # the flow says why
    return found


def _rivals(
    flow: Flow, content: Content, every: list[Content], readers: dict[str, set[str]]
) -> list[Content]:
    """The inputs whose rows those of an output may be: one that does not move it is no rival."""
    read = readers.get(flow.output)
    return [one for one in every if one is content or read is None or one.name in read]


def _of_another(flow: Flow, content: Content, scene: Scene) -> bool:
    """Whether an output is of another sequence alone: this input moves other outputs and not this one."""
    read = scene.readers.get(flow.output)
    moves = any(content.name in names for names in scene.readers.values())
    others = {one.name for one in scene.contents if one.axis is not None and one is not content}
    return read is not None and content.name not in read and moves and bool(read & others)


def _metric(one: Obligation, flow: Flow) -> Obligation:
    """Integers that depend on labels may be a metric, or predictions that read them."""
    if one.finding is None:
        return one
    name = flow.output or "the output"
    reason = (
        f"{name} holds integers that depend on {flow.content}: a metric may, a prediction may not; return "
        f"the numbers that they are made of, or say content=[...] to leave {flow.content} as it is"
    )
    return replace(one, state=OPEN, finding=None, reason=reason)


def _only_read_across(content: Content, calls: list[Measured]) -> bool:
    """Whether attention reads an input from another sequence alone: nothing is then expected of its rows."""
    crossing = [call for call in calls if call.kind == "cross" and content.name in call.key_inputs]
    return bool(crossing) and not any(call.query_owner == content.name for call in calls)


def _asks(content: Content, calls: list[Measured]) -> bool:
    """Whether its positions were seen to be the queries of self-attention, of which something is expected."""
    return any(call.kind == "self" and call.query_owner == content.name for call in calls)


def _union(
    flows: list[Flow], content: Content, every: list[Content], readers: dict[str, set[str]]
) -> list[Neighborhoods]:
    """For each item, what any output that is of this sequence reads."""
    result: list[Neighborhoods] = []
    for flow in [] if only_early(flows) else flows:
        rivals = _rivals(flow, content, every, readers)
        if role_of(flow, content, rivals, flow.relations[0].queries) == "own":
            same = not result or result[0].queries == flow.relations[0].queries
            if same and len(result) in (0, len(flow.relations)):
                pairs = zip(result, flow.relations, strict=True) if result else ()
                result = [a | b for a, b in pairs] if result else list(flow.relations)
    return result


def _rows_inside(content: Content, calls: list[Measured]) -> int:
    """How many rows tensors inside have: as many as positions, or a few more (a class token comes first)."""
    sizes = {call.queries for call in calls if call.kind == "self" and call.queries == call.keys}
    size = sizes.pop() if len(sizes) == 1 else content.length
    return size if content.patch is not None and 0 <= size - content.length <= 4 else content.length


def inherit(calls: list[Measured], base: list[Measured]) -> None:
    """Give the calls of another feeding the sources found on the given inputs: by module, in order."""
    waiting: dict[str, list[Measured]] = {}
    for call in base:
        waiting.setdefault(call.module, []).append(call)
    for call in calls:
        group = waiting.get(call.module)
        if group:
            known = group.pop(0) if len(group) > 1 else group[0]
            call.kind, call.query_inputs, call.key_inputs = known.kind, known.query_inputs, known.key_inputs
            call.query_owner, call.key_owner = known.query_owner, known.key_owner


def _batch_finding(flow: Flow, label: str, model: nn.Module, inside: Inside) -> Finding | None:
    if flow.batch_leak is None:
        return None
    changed, moved = flow.batch_leak
    text = f"sequences of one batch read each other: changing item {changed} moves item {moved}"
    text += told_of_items(model)
    found = Finding(
        "batch", WHOLE, item=moved, where=label, size=flow.leak_size, content=flow.content,
        output=flow.output or None, detail=text,
    )  # fmt: skip
    return inside.origin_of_item(found, changed)

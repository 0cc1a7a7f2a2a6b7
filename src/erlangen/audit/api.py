"""`audit`: feed a model in several ways, compare what it reads with what was meant, and put everything
back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from erlangen.audit.arguments.reading import LABELS, Reading
from erlangen.audit.beginning import (
    find_sources,
    first_run,
    fixed_axes,
    read_inputs,
    shortened,
    take_out_structure,
)
from erlangen.audit.calls.classified import classify_measured
from erlangen.audit.calls.compared import only_at_the_start
from erlangen.audit.calls.contradictions import flow_contradictions, flow_warnings
from erlangen.audit.case import Examiner
from erlangen.audit.documents import name_documents
from erlangen.audit.expect import Expectation, check_batch, check_expectation
from erlangen.audit.feeding import FEEDINGS, Feeding, Given
from erlangen.audit.flow_rules.invariance import unpadded
from erlangen.audit.flow_rules.structure import judge_structure
from erlangen.audit.flow_verdict import FlowVerdict
from erlangen.audit.inputs import Inputs
from erlangen.audit.limits import judge_coverage, judge_patterns, limits, not_judged, tried
from erlangen.audit.obligations import Compared, Ledger, Subject
from erlangen.audit.observed import unwrapped
from erlangen.audit.report import Coverage, Report
from erlangen.audit.same_outputs import at_the_end, compare_paths, has_fast_path, other_path, same_outputs
from erlangen.audit.state import untouched
from erlangen.audit.trials import Trials, chosen_feedings, examine, look_beside
from erlangen.audit.witnesses.runs import Budget, Runner
from erlangen.errors import DataError, ErlangenError, ParameterError

GIVEN_SHARE = 0.4
"""The part of the budget that the given inputs may take; what is left is shared by the other feedings."""


def audit(
    model: nn.Module,
    inputs: Any,
    expect: Expectation = None,
    *,
    flow: bool = True,
    variants: bool = True,
    feedings: Sequence[str] | None = None,
    positions: Sequence[int] | None = None,
    budget: float = 120.0,
    progress: Callable[[str], None] | None = None,
) -> Report:
    """Which relation does each attention call of a model really compute, and is it what was meant?

    - `inputs`: a tensor, a tuple of arguments, a mapping of keyword arguments, an `Inputs`, or a list of
      several of these. The model is audited in eval mode, and once more in training mode.
    - `expect`: one relation (of every self-attention call, and of what the outputs depend on), a mapping from
      module-name patterns to relations, a callable from a call to a relation or None, or `AtMost(relation)`.
      Keys marked as padding are expected unread.
    - `flow`: also measure the model as a black box, one run for each position of each input.
    - `variants`: also feed the model in other ways; `feedings` names them ("shorter", "padded", "training",
      "other content", "special tokens", "alone", "with gradients", "autocast", "other sizes", "zeros filled",
      "second call", "longer"), all by default; "padded right", "padded left" are the halves of "padded".
    - `positions`: the positions to change, all by default as far as the budget goes.
    - `budget`: about how many seconds the audit may take. What did not fit is said, never passed over.

    Three witnesses: *declared* (the mask and flags that reached the call), *measured* (the call run again
    with zero queries and one-hot values) and *flow* (which outputs move when one position's content changes).
    What must be compared is written down as obligations, and the verdict is a fold over them: `violated` if
    one is broken, `undecided` if one could not be compared, `holds` otherwise. The model is left exactly as
    it was, and the report says whether that was checked to be so.

    >>> import torch
    >>> import erlangen as er
    >>> layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    >>> mask = nn.Transformer.generate_square_subsequent_mask(6)
    >>> report = audit(layer, ({"src": torch.randn(2, 6, 8), "src_mask": mask}), er.Causal())
    >>> report.verdict, report.calls[0].kernel, report.flow.relation
    ('holds', Causal(), Causal())
    """
    if isinstance(model, type):
        raise ParameterError(
            f"audit takes a model, got the class {model.__name__}: write {model.__name__}(...)"
        )
    if not isinstance(model, nn.Module):
        raise ParameterError(f"audit takes a torch.nn.Module, got {type(model).__name__}")
    check_expectation(expect)
    chosen = chosen_feedings(feedings, variants)
    if positions is not None and (not list(positions) or min(positions) < 0):
        raise ParameterError(f"positions= takes a list of positions from 0 on, got {list(positions)!r}")
    if progress is not None and not callable(progress):
        raise ParameterError(f"progress= takes a function of one text, such as print; got {progress!r}")
    if not budget > 0:
        raise ParameterError(f"budget= is a number of seconds above 0, got {budget!r}")
    given = [_own_labels(one.gathered()) for one in Inputs.several(inputs)]
    ledger = Ledger()
    with untouched(model) as snapshot:
        _to_eval(model)
        examiner = Examiner(
            model, snapshot, expect, ledger, Budget(budget), flow,
            None if positions is None else sorted({int(p) for p in positions}),
            progress or (lambda step: None),
        )  # fmt: skip
        try:
            report = _audit(examiner, given, chosen)
        except ErlangenError:
            raise
        except Exception as error:
            raise DataError(
                f"{type(model).__name__} runs on these inputs, but the audit could not be finished: "
                f"{type(error).__name__}: {error}"
            ) from error
    left = snapshot.differences()
    for text in left:
        ledger.open("given", Subject(Compared.STATE), text)
    report.contradictions += left
    report.unchanged = report.unchanged and not left
    report.settle(expect is not None)
    return report


def _to_eval(model: nn.Module) -> None:
    try:
        model.eval()
    except NotImplementedError as error:
        raise DataError(
            f"{type(model).__name__} cannot be put into eval mode: {error}; audit it before export"
        ) from error


def _own_labels(inputs: Inputs) -> Inputs:
    """Labels in a tensor of their own: given as the same tensor as the tokens they could not be told from
    them."""
    others = [value for name, value in inputs.kwargs.items() if name not in LABELS]
    shared = {
        name: value.clone()
        for name, value in inputs.kwargs.items()
        if name in LABELS
        and isinstance(value, torch.Tensor)
        and any(value is other for other in (*others, *inputs.args))
    }
    return replace(inputs, kwargs={**inputs.kwargs, **shared}) if shared else inputs


def _audit(examiner: Examiner, inputs: list[Inputs], chosen: list[str]) -> Report:
    """Feed, observe, judge, and fold what was found into a report."""
    model, ledger, budget = examiner.model, examiner.ledger, examiner.budget
    examiner.tell("declared and measured witnesses")
    examiner.first = runner = Runner(model, inputs[0], Reading([]), examiner.snapshot)

    # The given inputs: what they are, what each call reads, and of what.
    before = first_run(runner)
    small = shortened(runner, budget) if examiner.positions is None else None
    reading = read_inputs(runner, small)
    given = Given.of(runner, reading)
    feeding = Feeding("given", inputs[0], reading, given=True, alike=unpadded(given))
    base = examiner.observed(feeding)
    stable = same_outputs(before, runner.again())
    contradictions = [] if stable else ["two runs of the model on the same inputs differ"]
    warnings = [] if same_outputs(before, base.output) else [other_path(model, before, base.output)]
    warnings += reading.notes
    examiner.fixed = fixed_axes(given, runner, before, small)
    brief = None if small is None else examiner.observed(Feeding("short", small.given.inputs, small.reading))
    sources = find_sources(examiner, feeding, base, small, brief)
    examiner.deciding |= set(sources.values())
    structural = take_out_structure(reading, examiner.deciding)
    if small is not None:
        take_out_structure(small.reading, examiner.deciding)
    examiner.base = base.calls
    _check_sizes(examiner, reading)

    # The given inputs, judged; then every other feeding.
    result = examine(examiner, feeding, GIVEN_SHARE, base)
    for one in structural if examiner.flow and examiner.expect is not None else ():
        judge_structure(examiner, feeding, base, one)
    main = _main_flow(result.flows)
    if main is not None and has_fast_path(model):
        compare_paths(examiner, feeding, main)
    classify_measured(result.calls, result.flows, budget)
    own = [Feeding(label, one, reading.of(model, one), thorough=True)
           for label, one in zip(_labels(inputs)[1:], inputs[1:], strict=True)]  # fmt: skip
    trials = Trials(examiner, runner, small, own)
    trials.make(given, chosen)
    trials.examine(result, base, brief)
    look_beside(examiner, result)
    every = [result, *trials.results]
    broken = {(one.module, one.where) for one in ledger.findings}
    shown = [call for one in trials.results for call in one.calls if (call.module, call.where) in broken]
    classify_measured(shown, (), budget)

    # What could not be compared, and what is worth saying.
    for name in [name for name, open_ in examiner.ambiguous.items() if open_]:
        reason = f"{name} has as many positions as the model has features somewhere: give another length"
        before_pooled = Subject(Compared.EDGES, told=f"{name} -> outputs, before they are pooled")
        ledger.open("given", before_pooled, reason)
    for one in base.unexplained:
        if one.failed:
            reason = f"it could not be measured ({one.reason})"
            ledger.open("given", Subject(Compared.CALL, module=one.module), reason)
    judge_patterns(examiner, [base, *(one.seen for one in trials.results if one.seen is not None)])
    contradictions += result.contradictions
    for one in trials.results:
        contradictions += [f"{one.label}: {text}" for text in one.contradictions]
    warnings += trials.warnings
    for one in result.flows:
        contradictions += flow_contradictions(one)
        warnings += [*flow_warnings(one), *one.notes]
    fed = [reading, *(one.reading for one, _ in trials.done)]
    warnings += limits(examiner, result.calls, reading.sequences, fed)
    warnings += examiner.notes
    warnings += only_at_the_start(ledger, trials.feedings)
    pairs = zip(trials.feedings, trials.results, strict=True)
    name_documents(ledger, [(feeding, result), *pairs], examiner.expect, model, examiner.deciding)
    coverage = Coverage(base.seen, len(base.calls), tuple(base.unexplained), base.other_softmaxes)
    judge_coverage(examiner, coverage, reading, every)

    # The fold.
    told = tried([(feeding, result), *trials.done])
    last = at_the_end(runner, before) if stable else ""
    if last:
        contradictions.append(last)
        ledger.open("given", Subject(Compared.STATE), last)
    not_tried = trials.not_tried(chosen, max(told["lengths"], default=0))
    silent = not_judged(examiner, every)
    data_dependent = {module: f"on the content of {name}" for module, name in sources.items()}
    for one in trials.results:
        data_dependent |= one.varying
        one.release()
    beside = [] if main is None else [one for one in result.flows if one.flow.output == main.flow.output]
    return Report(
        type(unwrapped(model)).__name__, "undecided", coverage, result.calls, main,
        [one for one in beside if one is not main],
        trials.results, contradictions, list(dict.fromkeys(warnings)), data_dependent,
        stable and not last, ledger, flows=result.flows, tried=told, not_tried=not_tried, not_judged=silent,
    )  # fmt: skip


def _labels(inputs: list[Inputs]) -> list[str]:
    """The labels of several inputs, such as no feeding of the audit and no other of the inputs has: what is
    found is told apart by them."""
    given = [one.label for one in inputs]
    taken = ("given", "short", *FEEDINGS)
    return [
        f"{label} (input {number})" if label.startswith(taken) or given.count(label) > 1 else label
        for number, label in enumerate(given)
    ]


def _check_sizes(examiner: Examiner, reading: Reading) -> None:
    """Raise where positions or a batch are asked for that the inputs do not have."""
    if reading.contents:
        check_batch(examiner.expect, reading.batch)
    positions, longest = examiner.positions, max((one.length for one in reading.sequences), default=0)
    if positions is not None and longest and max(positions) >= longest:
        raise ParameterError(f"positions= must lie in 0..{longest - 1}, got {max(positions)}")


def _main_flow(flows: list[FlowVerdict]) -> FlowVerdict | None:
    """The flow of the sequence that the first output belongs to, if any; otherwise the first flow."""
    flows = [one for one in flows if one.role not in ("labels", "inner")]
    own = [one for one in flows if one.square and one.flow.output == flows[0].flow.output]
    return own[-1] if own else flows[0] if flows else None

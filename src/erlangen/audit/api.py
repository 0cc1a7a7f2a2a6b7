"""`audit`: feed a model in several ways, compare what it reads with what was meant, and put everything
back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import nn

from erlangen.audit.classified import classify_measured
from erlangen.audit.compared import against_given
from erlangen.audit.documents import name_documents
from erlangen.audit.ending import at_the_end, same_outputs
from erlangen.audit.examine import OUT_OF_TIME, Examination, Examiner, inherit
from erlangen.audit.expect import Expectation, about_the_whole, check_batch, check_expectation
from erlangen.audit.feedings import FEEDINGS, SIDES, Feeding, Given
from erlangen.audit.feedings.padded import unpadded
from erlangen.audit.flow_verdict import FlowVerdict
from erlangen.audit.inputs import Content, Inputs
from erlangen.audit.limits import limits, uncrossed
from erlangen.audit.obligations import Compared, Ledger, Subject
from erlangen.audit.observed import Measured, Pass, unwrapped
from erlangen.audit.orientation import measured
from erlangen.audit.other_side import only_at_the_start, other_side
from erlangen.audit.outputs import floating
from erlangen.audit.reading import LABELS, Reading, read
from erlangen.audit.report import Coverage, Report
from erlangen.audit.shapes import shapes
from erlangen.audit.short import Short, corresponds, shortened
from erlangen.audit.state import untouched
from erlangen.audit.streams import name_sources
from erlangen.audit.structure import judge_structure
from erlangen.audit.witnesses.flow import measure
from erlangen.audit.witnesses.runs import Budget, Runner
from erlangen.errors import DataError, ErlangenError, ParameterError

GIVEN_SHARE = 0.4
"""The part of the budget that the given inputs may take; what is left is shared by the other feedings."""
NEEDED = 8
"""A feeding is tried if there is time for so many runs at least."""
FULL_RUNS = 10
"""So many runs in training at full length are kept time for, where other feedings are short."""
MAKING = {"special tokens": 8, "second call": 16}
"""About so many runs it takes to make a feeding, before it is tried, where these are many."""
LEAST_SHARE = 0.3
"""What is kept for later leaves this part of the time."""


_MAKERS = {**FEEDINGS, **SIDES}


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

    Three witnesses: *declared* (the mask and flags that reached the call), *kernel* (the call run again with
    zero queries and one-hot values) and *flow* (which outputs move when one position's content changes). What
    must be compared is written down as obligations, and the verdict is a fold over them: `violated` if one is
    broken, `undecided` if one could not be compared, `holds` otherwise. The model is left exactly as it was,
    and the report says whether that was checked to be so.

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
    chosen = _chosen(feedings, variants)
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


def _chosen(feedings: Sequence[str] | None, variants: bool) -> list[str]:
    if feedings is None:
        return list(FEEDINGS) if variants else []
    if isinstance(feedings, str):
        raise ParameterError(f"feedings= takes a list of names, got the string {feedings!r}")
    for name in feedings:
        if name not in _MAKERS:
            raise ParameterError(f"feedings= knows {', '.join(map(repr, _MAKERS))}; got {name!r}")
    wanted = set(feedings) - (set(SIDES) if "padded" in feedings else set())
    return [name for name in _MAKERS if name in wanted]


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


def _audit(examiner: Examiner, given: list[Inputs], chosen: list[str]) -> Report:
    model, first, ledger = examiner.model, given[0], examiner.ledger
    examiner.tell("declared and kernel witnesses")
    runner = Runner(model, first, Reading([]), examiner.snapshot)
    before = _first_run(model, runner)
    small = shortened(runner, examiner.budget) if examiner.positions is None else None
    reading = _read(runner, small)
    maker = Given(model, first, reading, lambda inputs: _takes(runner, inputs), runner.on)
    feeding = Feeding("given", first, reading, alike=unpadded(maker))
    base = examiner.observed(feeding)
    after = runner.again()
    examiner.first = runner
    stable = same_outputs(before, after)
    contradictions = [] if stable else ["two runs of the model on the same inputs differ"]
    warnings = [] if same_outputs(before, base.output) else [_other_path(model, before, base.output)]
    warnings += reading.notes
    examiner.fixed = _fixed_axes(maker, runner, before, small)
    brief = None if small is None else examiner.observed(Feeding("short", small.given.inputs, small.reading))
    data_dependent = _sources(examiner, feeding, base, small, brief)
    structural = _take_out_structure(reading, data_dependent)
    if small is not None:
        _take_out_structure(small.reading, data_dependent)
    examiner.base = base.calls
    _check_sizes(examiner, reading)
    result = _examined(examiner, feeding, GIVEN_SHARE, base)
    for one in structural if examiner.flow and examiner.expect is not None else ():
        judge_structure(examiner, feeding, base, one)
    main = _main_flow(result.flows)
    if main is not None and _has_fast_path(model):
        _fast_path(examiner, feeding, main)
    classify_measured(result.calls, main, examiner.budget)

    others = [Feeding(one.label, one, reading.of(model, one), thorough=True) for one in given[1:]]
    own, refused = len(others), dict[str, str]()
    for name in chosen:
        if small is not None and examiner.budget.left <= MAKING.get(name, 0) * small.runner.seconds:
            refused[name] = OUT_OF_TIME
            continue
        try:
            if small is None or name == "longer":
                others += _MAKERS[name](maker)
            else:
                others += [small.named(one) for one in _MAKERS[name](small.given)]
        except Exception as error:  # a feeding that cannot be made is not tried, and said
            reason = str(error).splitlines()[0] if str(error) else ""
            if not isinstance(error, ErlangenError):
                reason = f"{type(error).__name__}: {reason}"
            refused[name] = reason
            warnings.append(f"{name}: not tried: {reason}")
    shorts = len(others) if small is not None else own
    if small is not None and "training" in chosen:
        others.append(next(FEEDINGS["training"](maker)))
    trials: list[Examination] = []
    for number, other in enumerate(others):
        examiner.tell(f"{other.label}")
        longer = other.label.startswith("longer")
        brief_one = small is not None and own <= number < shorts
        each = small.runner.seconds if small is not None and brief_one and not longer else runner.seconds
        # What needs full length comes last and needs the most; a longer input takes none of it.
        kept = examiner.runs_beside(result) + FULL_RUNS * brief_one
        # A trial observes the model once and runs it twice before anything is changed.
        least = 0.0 if small is None else NEEDED * each + longer * kept * runner.seconds
        if examiner.budget.left <= max(0.2 * longer * examiner.budget.seconds, least):
            trials.append(Examination(other.label, skipped=OUT_OF_TIME))
            continue
        share = max(LEAST_SHARE, 1 - kept * runner.seconds / examiner.budget.left) / (len(others) - number)
        trial = _examined(examiner, other, share)
        against_given(
            model, trial, other.inputs, base if not brief_one or brief is None else brief, examiner.random
        )
        trials.append(trial)
        data_dependent |= trial.varying
        if other.added:
            ledger.name_added(other.label, other.added)
        if other.unshown:
            warnings += other_side(ledger, other, trial, examiner.base)

    examiner.beside(result)
    broken = {(one.module, one.where) for one in ledger.findings}
    shown = [call for trial in trials for call in trial.calls if (call.module, call.where) in broken]
    classify_measured(shown, None, examiner.budget)
    for name in [name for name, open_ in examiner.ambiguous.items() if open_]:
        reason = f"{name} has as many positions as the model has features somewhere: give another length"
        ledger.open(
            "given", Subject(Compared.EDGES, told=f"{name} -> outputs, before they are pooled"), reason
        )
    for one in base.unexplained:
        if one.failed:
            ledger.open(
                "given", Subject(Compared.CALL, module=one.module), f"it could not be measured ({one.reason})"
            )
    _patterns(examiner, [base, *(trial.seen for trial in trials if trial.seen is not None)])
    contradictions += result.contradictions
    for trial in trials:
        contradictions += [f"{trial.label}: {text}" for text in trial.contradictions]
    for one in result.flows:
        contradictions += _flow_contradictions(one)
        warnings += [*_flow_warnings(one), *one.notes]
    warnings += _limits(examiner, result, reading, trials, others)
    warnings += examiner.notes
    warnings += only_at_the_start(ledger)
    name_documents(
        ledger, [(feeding, result), *zip(others, trials, strict=True)], examiner.expect, model, data_dependent
    )
    coverage = Coverage(base.seen, len(base.calls), tuple(base.unexplained), base.other_softmaxes)
    _nothing_compared(examiner, coverage, reading, [result, *trials])
    tried = _tried(feeding, result, others, trials)
    last = at_the_end(runner, before) if stable else ""
    if last:
        contradictions.append(last)
        ledger.open("given", Subject(Compared.STATE), last)
    not_tried = _not_tried(examiner, trials, chosen, others, max(tried["lengths"], default=0))
    for trial in trials:
        trial.release()
    return Report(
        type(unwrapped(model)).__name__,
        "undecided",
        coverage,
        result.calls,
        main,
        [
            one
            for one in result.flows
            if main is not None and one is not main and one.flow.output == main.flow.output
        ],
        trials,
        contradictions,
        list(dict.fromkeys(warnings)),
        data_dependent,
        stable and not last,
        ledger,
        flows=result.flows,
        tried=tried,
        not_tried={**not_tried, **refused},
        not_judged=_not_judged(examiner, [result, *trials]),
    )


def _read(runner: Runner, small: Short | None) -> Reading:
    """What each input is, measured on the inputs or on a short beginning of them."""
    model, inputs = runner.model, runner.inputs
    if small is not None:
        return replace(small.reading.of(model, inputs), notes=small.reading.notes)

    def run(other: Inputs, within: Any = None) -> Any:
        return runner.base() if other is inputs and within is None else runner.on(other, within)

    return measured(model, inputs, read(model, inputs), run)


def _examined(examiner: Examiner, feeding: Feeding, share: float, seen: Pass | None = None) -> Examination:
    """A feeding, examined; where no rule fits its outputs it is open, and the others are judged."""
    try:
        return examiner.examine(feeding, share, seen)
    except ErlangenError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        settled = "say content=[...]" if feeding.label == "given" else "leave it out by feedings=[...]"
        examiner.ledger.open(
            feeding.label, Subject(Compared.OUTPUTS), f"they could not all be compared ({reason}): {settled}"
        )
        return Examination(feeding.label, skipped=reason)


def _fixed_axes(
    given: Given, runner: Runner, output: Any, small: Short | None = None
) -> dict[str, frozenset[int]]:
    """Axes of outputs that keep their size when the inputs are shorter."""
    if small is not None:
        return _equal_axes(output, small.runner.base())
    for feeding in FEEDINGS["shorter"](given):
        try:
            return _equal_axes(output, runner.on(feeding.inputs))
        except Exception:
            return {}  # one length only: axes are told by their size
    return {}


def _equal_axes(output: Any, shorter: Any) -> dict[str, frozenset[int]]:
    other = dict(floating(shorter))
    return {
        name: frozenset(a for a in range(tensor.dim()) if tensor.shape[a] == other[name].shape[a])
        for name, tensor in floating(output)
        if name in other and other[name].dim() == tensor.dim()
    }


def _first_run(model: nn.Module, runner: Runner) -> Any:
    try:
        return runner.base()
    except Exception as error:
        raise DataError(
            f"{type(model).__name__} does not run on these inputs ({shapes(model, runner.inputs)}): "
            f"{type(error).__name__}: {error}"
        ) from error


def _check_sizes(examiner: Examiner, reading: Reading) -> None:
    """Raise where positions or a batch are asked for that the inputs do not have."""
    if reading.contents:
        check_batch(examiner.expect, reading.batch)
    positions, longest = examiner.positions, max((one.length for one in reading.sequences), default=0)
    if positions is not None and longest and max(positions) >= longest:
        raise ParameterError(f"positions= must lie in 0..{longest - 1}, got {max(positions)}")


def _takes(runner: Runner, inputs: Inputs) -> bool:
    try:
        runner.on(inputs)
    except Exception:
        return False
    return True


def _sources(
    examiner: Examiner, feeding: Feeding, base: Pass, small: Short | None = None, brief: Pass | None = None
) -> dict[str, str]:
    """Find which inputs each call reads; what comes back are relations that vary with the content."""
    if small is not None and brief is not None:
        lengths = [max(one.length for one in r.sequences) for r in (feeding.reading, small.reading)]
        if corresponds(base, brief, (lengths[0], lengths[1])):
            varying = _sources(examiner, Feeding("short", small.given.inputs, small.reading), brief)
            inherit(base.calls, brief.calls)
            return varying
    contents = [*feeding.reading.contents, *feeding.reading.labels]  # labels may be a decoder's input
    changed: dict[str, Pass] = {}
    spots: dict[str, list[tuple[int, Pass]]] = {}
    varying: dict[str, str] = {}
    if not base.calls:
        return varying
    several = len(feeding.reading.sequences) > 1 or any(call.queries != call.keys for call in base.calls)
    for content in contents:
        try:
            changed[content.name] = examiner.observed(feeding, content, range(content.length))
            if several and content.axis is not None and content.length > 2:
                places = sorted({content.length // 3, 2 * content.length // 3})
                spots[content.name] = [(p, examiner.observed(feeding, content, p)) for p in places]
        except Exception:
            continue  # the flow says why this content cannot be changed
        for other in (changed[content.name], *(one for _, one in spots.get(content.name, []))):
            varying |= _varying(base, other, f"on the content of {content.name}")
    name_sources(base, changed, spots, contents)
    return varying


def _take_out_structure(reading: Reading, varying: dict[str, str]) -> list[Content]:
    """Inputs that decide who reads whom (document or segment ids): they are judged by themselves."""
    found = []
    for one in list(reading.contents[1:]):
        if one.pool is not None and f"on the content of {one.name}" in varying.values():
            reading.contents.remove(one)
            reading.ignored[one.name] = "it decides which keys are read"
            reading.notes.append(f"{one.name} decides which keys are read, and was left as it is")
            found.append(one)
    return found


def _varying(base: Pass, other: Pass, what: str) -> dict[str, str]:
    """Modules whose relation is another one although sizes and masks are the same."""

    def sizes(call: Measured) -> tuple[Any, ...]:
        return call.module, call.queries, call.keys, call.heads, call.batch

    return {
        call.module: what
        for call, again in zip(base.calls, other.calls, strict=False)
        if sizes(call) == sizes(again) and call.kernel != again.kernel
    }


def _patterns(examiner: Examiner, passes: list[Pass]) -> None:
    """A pattern that matches no call is open: a module was renamed, and nobody would notice."""
    expect = examiner.expect
    calls = [call for one in passes for call in one.calls]
    if not isinstance(expect, Mapping):
        return
    for pattern in expect:
        if pattern == "*" and about_the_whole(expect, calls):
            continue  # then it is about the whole model
        first = {
            call.module: next(p for p in expect if fnmatchcase(call.module, p))
            for call in calls
            if fnmatchcase(call.module, pattern)
        }
        if pattern in first.values():
            examiner.ledger.held("given", Subject(Compared.PATTERN, told=f"the pattern {pattern!r} is used"))
        elif first:
            earlier = ", ".join(repr(one) for one in dict.fromkeys(first.values()))
            examiner.ledger.open(
                "given", Subject(Compared.PATTERN, told=f"the pattern {pattern!r}"),
                f"the pattern {pattern!r} matches {_few(list(first))}, which {earlier} takes before it: the "
                "first pattern that matches counts, so put the narrower one first",
            )  # fmt: skip
        else:
            examiner.ledger.open(
                "given", Subject(Compared.PATTERN, told=f"the pattern {pattern!r}"),
                f"the pattern {pattern!r} matches no attention call; calls are {_names(calls)}",
            )  # fmt: skip


def _not_judged(examiner: Examiner, results: list[Examination]) -> list[str]:
    """Modules whose calls the expectation does not speak about; those of summaries are judged by the flow.

    Of other feedings, whose sizes an expectation may not fit, modules count that the given inputs do not run.
    """
    seen = {call.module for call in results[0].calls}
    calls = [call for one in results for call in one.calls if one is results[0] or call.module not in seen]
    silent = [call for call in calls if call.expected is None and call.kind != "derived"]
    return [] if examiner.expect is None else list(dict.fromkeys(call.module or "(model)" for call in silent))


def _names(calls: list[Measured]) -> str:
    return _few(list(dict.fromkeys(call.module for call in calls)))


def _few(modules: list[str]) -> str:
    names = [name or "(model)" for name in modules]
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "") or "none"


def _nothing_compared(
    examiner: Examiner, coverage: Coverage, reading: Reading, done: list[Examination]
) -> None:
    """An expectation that met neither a call nor a flow was not compared with anything."""
    if examiner.expect is None:
        return
    if reading.sequences and max(one.length for one in reading.sequences) < 2:
        examiner.ledger.open(
            "given", Subject(Compared.INPUTS), "one position shows nothing of who reads whom: give several"
        )
    if not examiner.flow:
        pass  # the user asked for the calls alone
    elif not reading.sequences:
        ignored = "".join(f"; {name}: {why}" for name, why in reading.ignored.items())
        examiner.ledger.open(
            "given",
            Subject(Compared.INPUTS),
            f"no input with positions was recognised: say content=[...]{ignored}",
        )
    else:
        for name in reading.refused:
            examiner.ledger.open(
                "given", Subject(Compared.FLOW, input=name),
                f"{reading.ignored[name]}: say vary=... to change what belongs together",
            )  # fmt: skip
    if examiner.flow:
        for name, why in reading.opened.items():
            examiner.ledger.open("given", Subject(Compared.FLOW, input=name), why)
        flows = [one for trial in done for one in trial.flows]
        if flows and not any(one.settled for one in flows if one.role != "labels"):
            names = " or ".join(one.name for one in reading.contents)
            examiner.ledger.open(
                "given", Subject(Compared.EDGES, told="edges"),
                f"no output moves with {names}, so that no edge could be compared: give a model whose "
                "outputs depend on its inputs, or content=[...]",
            )  # fmt: skip
        return
    if all(one.subject.module is None for one in examiner.ledger):
        examiner.ledger.open(
            "given", Subject(Compared.EXPECTATION),
            "no attention call was seen that the expectation is about, and no output was held against it",
        )  # fmt: skip
    elif not examiner.flow and (
        coverage.unexplained or any(call.kind == "derived" for call in examiner.base)
    ):
        examiner.ledger.open(
            "given",
            Subject(Compared.CALLS),
            "not every call could be explained: ask for the flow (flow=True)",
        )


# --------------------------------------------------------------------------------- the report


def _main_flow(flows: list[FlowVerdict]) -> FlowVerdict | None:
    """The flow of the sequence that the first output belongs to, if any; otherwise the first flow."""
    flows = [one for one in flows if one.role not in ("labels", "inner")]
    own = [one for one in flows if one.square and one.flow.output == flows[0].flow.output]
    return own[-1] if own else flows[0] if flows else None


def _fast_path(examiner: Examiner, feeding: Feeding, verdict: FlowVerdict) -> None:
    """Measure the flow under an idle observer as well: PyTorch then leaves its fast path."""
    flow, content = verdict.flow, feeding.reading.content(verdict.flow.content)
    if content is None or not flow.complete:
        return
    try:
        flows = measure(examiner.runner(feeding, observed=True), content)
    except Exception:
        return  # only the fast path takes these inputs
    for watched in flows:
        if watched.output != flow.output:
            continue
        for b, (a, c) in enumerate(zip(flow.relations, watched.relations, strict=True)):
            apart = verdict.meaningful(a ^ c, b).edges()
            if len(apart) and verdict.fast_path is None:
                verdict.fast_path = b, int(apart[0, 0]), int(apart[0, 1])


def _flow_contradictions(verdict: FlowVerdict) -> list[str]:
    found = []
    if verdict.flow.batch_leak is not None:
        changed, moved = verdict.flow.batch_leak
        found.append(f"sequences of one batch read each other: changing item {changed} moves item {moved}")
    if verdict.fast_path is not None:
        b, i, j = verdict.fast_path
        found.append(f"the fast path differs from the observed path: item {b}, row {i}, position {j}")
    return found


def _flow_warnings(verdict: FlowVerdict) -> list[str]:
    name, found = verdict.flow.content, []
    for b, part in enumerate(verdict.outside_attention or ()):
        if part.num_edges:
            i, j = part.edges()[0].tolist()
            found.append(
                f"outside attention: output row {i} depends on position {j} of {name} (item {b}), which no "
                f"attention call carries; {part.num_edges} such edges"
            )
            break
    for b, part in enumerate(verdict.missing or ()):
        if part.num_edges:
            i, j = part.edges()[0].tolist()
            found.append(
                f"predicted but not seen: output row {i} on position {j} of {name} (item {b}); "
                f"{part.num_edges} such edges: cancelled, or smaller than rounding"
            )
            break
    return found


def _limits(
    examiner: Examiner,
    result: Examination,
    reading: Reading,
    trials: list[Examination],
    others: list[Feeding],
) -> list[str]:
    done = [one for one, trial in zip(others, trials, strict=True) if trial.skipped is None]
    fed = [reading, *(one.reading for one in done)]
    masks = [mask.real() for one in fed for mask in one.masks]
    longest = max((content.length for one in fed for content in one.sequences), default=0)
    batch = max((content.batch for one in fed for content in one.sequences), default=0)
    padded = any(not mask.all() for mask in masks)
    found = limits(examiner.model, result.calls, reading.sequences, padded, longest, batch)
    if examiner.flow and not reading.sequences:
        found.append("no input with positions was recognised: the flow was not measured")
    return found


def _tried(
    given: Feeding, result: Examination, others: list[Feeding], trials: list[Examination]
) -> dict[str, Any]:
    """Lengths, batch sizes, modes, feedings and token range that were tried."""
    done = [(given, result), *((f, t) for f, t in zip(others, trials, strict=True) if t.skipped is None)]
    contents = [one for feeding, _ in done for one in feeding.reading.sequences]
    tokens = [one.pool for one in contents if one.pool is not None]
    sampled = {trial.label: trial.sampled for _, trial in done if trial.sampled is not None}
    return {
        "lengths": sorted({one.length for one in contents}),
        "batch": sorted({feeding.reading.batch for feeding, _ in done}),
        "modes": list(dict.fromkeys(feeding.mode.name for feeding, _ in done)),
        "feedings": [trial.label for _, trial in done],
        "tokens": [int(min(pool.min() for pool in tokens)), int(max(pool.max() for pool in tokens))]
        if tokens
        else None,
        "sampled": {label: list(pair) for label, pair in sampled.items()},
        "beside attention": result.beside,
        "added": list(dict.fromkeys(feeding.added for feeding, _ in done if feeding.added)),
        "groups": {trial.label: trial.groups for _, trial in done if trial.groups},
    }


def _not_tried(
    examiner: Examiner, trials: list[Examination], chosen: list[str], others: list[Feeding], longest: int
) -> dict[str, str]:
    """Feedings that were not tried, each with its reason."""
    found = {trial.label: trial.skipped for trial in trials if trial.skipped is not None}
    made = {other.label.partition(" (")[0].replace(" left", "") for other in others}
    halves = [name for name in SIDES if name in chosen]
    for name in SIDES if halves else ():
        if name not in chosen:
            found[name] = "not asked for"
        elif "padded" not in made:
            found[name] = "the model's inputs do not offer it"
    for name in FEEDINGS:
        if name == "padded" and halves:
            continue
        if name not in chosen:
            found[name] = "not asked for"
        elif name not in made and name != "longer":
            found[name] = "the model's inputs do not offer it"
        elif name == "longer" and (beyond := uncrossed(examiner.model, longest)):
            found[name] = beyond
    if not examiner.flow:
        found["flow"] = "not asked for"
    return {name: reason for name, reason in found.items() if reason is not None}


def _has_fast_path(model: nn.Module) -> bool:
    """Whether PyTorch may run other code when nobody watches."""
    fast = (nn.TransformerEncoderLayer, nn.TransformerEncoder, nn.MultiheadAttention)
    return unwrapped(model) is model and any(isinstance(module, fast) for module in model.modules())


def _other_path(model: nn.Module, before: Any, observed: Any) -> str:
    seen = dict(floating(observed))
    apart = [
        name or "the output"
        for name, tensor in floating(before)
        if name not in seen or not torch.allclose(tensor, seen[name], rtol=1e-2, atol=1e-4, equal_nan=True)
    ]
    if apart and unwrapped(model) is model:
        path = "PyTorch leaves its fast path" if _has_fast_path(model) else "the model takes other code"
        return f"under observation {path}, and {apart[0]} is another one (rows of padding, or more)"
    if unwrapped(model) is not model:
        return (
            "the model is compiled: calls were seen in the code before compilation, the flow in the compiled"
        )
    if _has_fast_path(model):
        return "under observation PyTorch leaves its fast path: outputs agree up to rounding, not bit for bit"
    return "under observation the outputs are not bit-identical: the model takes other code when observed"

"""`audit`: run the witnesses on a model, reconcile them, and put everything back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from torch import nn

from erlangen.audit.expect import Expectation, check_expectation
from erlangen.audit.inputs import Content, Inputs, contents, real_positions, with_content
from erlangen.audit.limits import limits
from erlangen.audit.measure import Known, Measured, Pass, observe, unwrapped
from erlangen.audit.outputs import output_tensors
from erlangen.audit.report import Coverage, Report, Trial
from erlangen.audit.state import RandomState, Snapshot, same_bits, untouched
from erlangen.audit.streams import name_sources
from erlangen.audit.trials import differences, training_flow, try_inputs, try_training
from erlangen.audit.variants import variants as make_variants
from erlangen.audit.verdict import CallVerdict, FlowVerdict, judge_call, judge_flow
from erlangen.audit.witnesses.flow import flow as measure_flow
from erlangen.errors import DataError, ParameterError

Progress = Callable[[str], None]


def audit(
    model: nn.Module,
    inputs: Any,
    expect: Expectation = None,
    *,
    flow: bool = True,
    variants: bool = True,
    progress: Progress | None = None,
) -> Report:
    """Which relation does each attention call of a model really compute, and is it what was meant?

    - `inputs`: a tensor, a tuple of arguments, a mapping of keyword arguments, an `Inputs`, or a list of
      several of these. The model is audited in eval mode, and once more in training mode.
    - `expect`: one relation (of every self-attention call), a mapping from module-name patterns to
      relations, or a callable from a call to a relation or None. Keys marked as padding are expected unread.
    - `flow`: also measure the model as a black box, one run for each position.
    - `variants`: also try shorter and padded inputs, another decoder length, and training mode.

    Three witnesses: *declared* (the mask and flags that reached the call), *kernel* (the call run again with
    zero queries and one-hot values) and *flow* (which outputs move when one position's content changes). The
    model is left exactly as it was, and the report says whether that was checked to be so.

    >>> import torch
    >>> import erlangen as er
    >>> layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    >>> mask = nn.Transformer.generate_square_subsequent_mask(6)
    >>> report = audit(layer, ({"src": torch.randn(2, 6, 8), "src_mask": mask}), er.Causal())
    >>> report.verdict, report.calls[0].kernel, report.flow.relation
    ('holds', Causal(), Causal())
    """
    if not isinstance(model, nn.Module):
        raise ParameterError(f"audit takes a torch.nn.Module, got {type(model).__name__}")
    check_expectation(expect)
    given = Inputs.several(inputs)
    tell = progress or (lambda step: None)
    with untouched(model) as snapshot:
        model.eval()
        report = _audit(model, given, expect, flow, variants, tell, snapshot)
    report.contradictions += snapshot.differences()
    report.unchanged = report.unchanged and not snapshot.differences()
    return report


def _audit(
    model: nn.Module,
    given: list[Inputs],
    expect: Expectation,
    flow: bool,
    variants: bool,
    tell: Progress,
    snapshot: Snapshot,
) -> Report:
    first, random = given[0], snapshot.random
    found = contents(model, first)
    batch = found[0].batch if found else 1
    tell("declared and kernel witnesses")
    before = _run(model, first, random)
    known: Known = {}
    base = observe(model, first, batch, random, known)
    after = _run(model, first, random)
    contradictions = [] if _same(before, after) else ["two runs of the model on the same inputs differ"]
    warnings = [] if _same(before, base.output) else [_other_path(model)]

    changed = {
        content.name: observe(
            model, with_content(first, content, content.changed(range(content.length))), batch, random, known
        )
        for content in found
    }
    name_sources(base, changed)
    real = {content.name: real_positions(model, first, content) for content in found}
    calls = [judge_call(call, expect, real, "given") for call in base.calls]
    data_dependent = {
        name_: what
        for content_name, other in changed.items()
        for name_, what in _varying(base, other, f"on the content of {content_name}").items()
    }

    trials: list[Trial] = []
    for other in given[1:]:
        tell(other.label)
        trials.append(try_inputs(model, other, base, expect, random, batch, known))
        data_dependent |= trials[-1].varying
    if variants:
        for other in make_variants(model, first):
            tell(f"{other.label} inputs")
            trials.append(try_inputs(model, other, base, expect, random, batch, known))
        tell("training mode")
        trials.append(try_training(model, first, base, expect, real, snapshot, batch, known))

    flows = _flows(model, first, found, base, expect, real, tell, warnings) if flow else []
    main = _main_flow(flows)
    if variants and trials[-1].skipped is None:
        for one in flows:
            trials[-1].differences += training_flow(model, first, found, one.flow)
    for verdict in calls:
        contradictions += differences(verdict)
    for trial in trials:
        contradictions += [f"{trial.label}: {text}" for text in trial.contradictions]
    for one in flows:
        contradictions += _flow_contradictions(one)
        warnings += _flow_warnings(one)
    padded = any(mask is not None and not mask.all() for mask in real.values()) or any(
        trial.label == "padded" and trial.skipped is None for trial in trials
    )
    warnings += limits(model, calls, found, padded, flow)
    warnings += [f"{trial.label}: not tried: {trial.skipped}" for trial in trials if trial.skipped]
    examples = [call.counterexample for call in calls]
    examples += [call.counterexample for trial in trials for call in trial.calls]
    examples += [one.counterexample for one in flows]
    # The same broken edge under other inputs or in training mode is the same fault.
    broken = {(e.module, e.head, e.query, e.key, e.expected): e for e in reversed(examples) if e is not None}
    violated = list(reversed(broken.values()))
    coverage = Coverage(base.seen, len(base.calls), tuple(base.unexplained), base.other_softmaxes)
    return Report(
        type(unwrapped(model)).__name__,
        _verdict(
            expect,
            bool(violated) or any(f.flow.batch_leak for f in flows),
            contradictions,
            coverage,
            calls,
            main,
        ),
        coverage,
        calls,
        main,
        [one for one in flows if one is not main],
        trials,
        violated,
        contradictions,
        warnings,
        data_dependent,
        _same(before, after),
    )


def _verdict(
    expect: Expectation,
    violated: bool,
    contradictions: list[str],
    coverage: Coverage,
    calls: list[CallVerdict],
    flow: FlowVerdict | None,
) -> str:
    if expect is None:
        return "contradictory" if contradictions else "measured"
    if violated:
        return "violated"
    # Without a recognised call only the flow speaks, and a softmax nobody explained may have been attention.
    by_flow = not calls and flow is not None and not coverage.other_softmaxes
    tested = any(call.expected is not None for call in calls) or by_flow
    return "undecided" if coverage.unexplained or not tested else "holds"


def _flows(
    model: nn.Module,
    inputs: Inputs,
    found: list[Content],
    base: Pass,
    expect: Expectation,
    real: dict[str, np.ndarray | None],
    tell: Progress,
    warnings: list[str],
) -> list[FlowVerdict]:
    verdicts = []
    for content in found:
        tell(f"flow from {content.name}: {content.length} positions")
        try:
            measured = measure_flow(model, inputs, content)
        except DataError as error:
            warnings.append(f"the flow was not measured: {error}")
            return []
        verdict = judge_flow(measured, base.calls, found, expect, real, not base.unexplained)
        if _has_fast_path(model):
            watched = measure_flow(model, inputs, content, observed=True)
            for b, (a, c) in enumerate(zip(measured.relations, watched.relations, strict=True)):
                apart = verdict.meaningful(a ^ c, b).edges()
                if len(apart) and verdict.fast_path is None:
                    verdict.fast_path = b, int(apart[0, 0]), int(apart[0, 1])
        verdicts.append(verdict)
    return verdicts


def _main_flow(flows: list[FlowVerdict]) -> FlowVerdict | None:
    """The flow of the sequence that the output belongs to: the last one of its own sequence, if any."""
    square = [one for one in flows if one.square]
    return square[-1] if square else flows[0] if flows else None


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


def _varying(base: Pass, other: Pass, what: str) -> dict[str, str]:
    """Modules whose relation is another one although sizes and masks are the same."""
    return {
        call.module: what
        for call, again in zip(base.calls, other.calls, strict=False)
        if _comparable(call, again) and call.kernel != again.kernel
    }


def _comparable(a: Measured, b: Measured) -> bool:
    return a.module == b.module and (a.queries, a.keys, a.heads, a.batch) == (
        b.queries,
        b.keys,
        b.heads,
        b.batch,
    )


def _run(model: nn.Module, inputs: Inputs, random: RandomState) -> Any:
    random.set()
    try:
        return inputs.run(model)
    except Exception as error:
        raise DataError(
            f"{type(model).__name__} does not run on these inputs: {type(error).__name__}: {error}"
        ) from error


def _same(a: Any, b: Any) -> bool:
    left, right = output_tensors(a), output_tensors(b)
    return len(left) == len(right) and all(
        name == other and same_bits(x, y) for (name, x), (other, y) in zip(left, right, strict=True)
    )


def _has_fast_path(model: nn.Module) -> bool:
    """Whether PyTorch may run other code when nobody watches."""
    fast = (nn.TransformerEncoderLayer, nn.TransformerEncoder, nn.MultiheadAttention)
    return unwrapped(model) is model and any(isinstance(module, fast) for module in model.modules())


def _other_path(model: nn.Module) -> str:
    if unwrapped(model) is not model:
        return (
            "the model is compiled: calls were seen in the code before compilation, the flow in the compiled"
        )
    if _has_fast_path(model):
        return "under observation PyTorch leaves its fast path: outputs agree up to rounding, not bit for bit"
    return "under observation the outputs are not bit-identical: the model takes other code when observed"

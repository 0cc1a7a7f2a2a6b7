"""The attention calls of one feeding, judged: each against what is expected of it, and its padding."""

from __future__ import annotations

from erlangen.audit.calls.contradictions import contradictions_of, padding_read
from erlangen.audit.calls.over_draws import OTHER_DRAWS, counterpart, drawn_at_random, sizes
from erlangen.audit.calls.padding_rows import place_padding
from erlangen.audit.case import Case
from erlangen.audit.expect import (
    Expectation,
    RaisingExpectation,
    about_given_alone,
    at_most,
    has_own_size,
)
from erlangen.audit.obligations import Compared, Subject
from erlangen.audit.observed import Measured
from erlangen.audit.verdict import CallVerdict, judge_call
from erlangen.errors import ErlangenError


def judge_calls(case: Case) -> None:
    """Judge the calls, and find what of the expectation can be held at these sizes."""
    feeding, result, seen = case.feeding, case.result, case.seen
    case.expect = at_most(case.audit.expect) if feeding.at_most else case.audit.expect
    place_padding(seen.calls, case.reading.sequences, case.real_by_group, case.observed)
    if about_given_alone(case.expect, feeding.other_items, feeding.other_content or feeding.resized):
        # Such as documents: which they are may follow the content, and they fit one length.
        case.expect = None
        result.differences.append("the expectation is about the given inputs, and was not held here")
    try:
        result.calls = [_judged(case, call, case.expect) for call in seen.calls]
        if feeding.mode.train and not feeding.at_most:
            result.calls = _over_draws(case)
    except ErlangenError as error:
        if feeding.resized and isinstance(error, RaisingExpectation):
            case.open(Subject(Compared.CALLS), str(error))  # at the given sizes it is raised
        if feeding.resized:
            case.expect = None
            result.calls = [judge_call(call, None, case.real_by_group, case.label) for call in seen.calls]
            result.differences.append(f"the expectation was not held against other lengths: {error}")
        else:
            result.calls = [_judge_part(case, call) for call in seen.calls]
    for call in result.calls:
        if call.expected is not None:
            case.settle(Subject(Compared.CALL, module=call.module), call.counterexample)
        result.contradictions += contradictions_of(call)
        if call.real_keys is not None and not call.real_keys.all():
            case.settle(Subject(Compared.PADDING, module=call.module), padding_read(call))


def _judged(case: Case, call: Measured, expect: Expectation) -> CallVerdict:
    """A call, judged. It may read the keys of padding that the model tells by a token: this was taken for
    padding because nothing of what stands there arrives at other rows."""
    real = case.real_by_group
    verdict = judge_call(call, expect, real, case.label)
    tokens = {mask.content for mask in case.reading.masks if mask.token is not None}
    if not tokens or (verdict.counterexample is None and padding_read(verdict) is None):
        return verdict
    without = {name: None if name in tokens else mask for name, mask in real.items()}
    free = judge_call(call, expect, without, case.label)
    if free.counterexample is not None:
        return verdict
    case.note(
        f"{call.module or 'the model'} reads keys of padding, though nothing of what stands there arrives at "
        "other rows: they take weight from the others"
    )
    return free


def _over_draws(case: Case) -> list[CallVerdict]:
    """The verdicts of calls in training: one that reads otherwise at another draw of random numbers lacks
    nothing, and reads too much if it does so at any draw."""
    calls = case.result.calls
    given = {sizes(call): call.kernel for call in case.audit.base}
    unlike = [
        one for one in calls if given.get(sizes(one.measured), one.measured.kernel) != one.measured.kernel
    ]
    if not unlike and not any(one.counterexample is not None for one in calls):
        return calls
    try:
        passes = [case.audit.observed(case.drawn(seed)) for seed in OTHER_DRAWS]
    except Exception:
        return calls
    found = []
    for one in calls:
        if drawn_at_random(one.measured, passes):
            case.audit.random.add(one.module)
            others = [other for seen in passes if (other := counterpart(one.measured, seen)) is not None]
            inherit(others, [one.measured])
            each = [_judged(case, call, at_most(case.expect)) for call in (one.measured, *others)]
            one = next((verdict for verdict in each if verdict.counterexample is not None), each[0])
        found.append(one)
    return found


def _judge_part(case: Case, call: Measured) -> CallVerdict:
    """A call, judged; one that reads a part of a sequence, as of one document, is judged by the flow."""
    try:
        return judge_call(call, case.expect, case.real_by_group, case.label)
    except ErlangenError:
        shorter = any(max(call.queries, call.keys) < one.length for one in case.reading.sequences)
        if not (shorter and has_own_size(case.expect)):
            raise
        call.kind = "derived"
        return judge_call(call, None, case.real_by_group, case.label)


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

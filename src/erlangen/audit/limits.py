"""What an audit tried, where it is weak, and what an expectation was not held against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

from erlangen.audit.arguments.reading import Reading
from erlangen.audit.arguments.sizes import named_sizes
from erlangen.audit.case import Examination, Examiner
from erlangen.audit.expect import about_the_whole
from erlangen.audit.feeding import Feeding
from erlangen.audit.inputs import Content
from erlangen.audit.obligations import Compared, Subject
from erlangen.audit.observed import Pass
from erlangen.audit.report import Coverage
from erlangen.audit.verdict import CallVerdict
from erlangen.relations import Window


def limits(
    examiner: Examiner, calls: list[CallVerdict], contents: list[Content], fed: list[Reading]
) -> list[str]:
    """What was not, or could not be, tried: `calls` and `contents` are those of the given inputs, `fed` is
    all that was fed."""
    model, found = examiner.model, list[str]()
    padded = any(not mask.real().all() for one in fed for mask in one.masks)
    longest = max((content.length for one in fed for content in one.sequences), default=0)
    batch = max((content.batch for one in fed for content in one.sequences), default=0)
    for name, size in named_sizes(model):
        if longest and longest <= size:
            found.append(
                f"{name} = {size} was not crossed by {longest} positions: its window cannot be seen, and "
                "nothing is known about longer inputs"
            )
    for call in calls:
        window = call.expected
        seen = max(longest, call.keys)
        if isinstance(window, Window) and seen <= window.lookback + 1 and window.lookahead == 0:
            found.append(
                f"{call.module}: {call.keys} keys are not more than {window} reads, so it looks like Causal()"
            )
            break
    merged = [call.module for call in calls if call.measured.whole]
    if merged:
        found.append(f"{merged[0]} ({len(merged)} calls) was probed as a whole: its heads are not told apart")
    derived = [call for call in calls if call.kind == "derived"]
    if derived:
        found.append(
            f"{derived[0].module or 'the model'} ({len(derived)} calls): {derived[0].queries} queries and "
            f"{derived[0].keys} keys are not the positions of an input: judged by what flows through them"
        )
    local = [call for call in calls if contents and _is_local(call, contents)]
    if local:
        found.append(
            f"{local[0].module or 'the model'} ({len(local)} calls) attends within {local[0].queries} "
            "positions, which are no whole input: its relation is that of a chunk"
        )
    if contents and max((content.length for content in contents), default=0) < 4:
        found.append(f"a sequence of {contents[0].length} positions tells little: give a longer one")
    if contents and calls and not padded:
        found.append("no padding was tried")
    if contents and batch == 1 and contents[0].batch_axis is not None:
        found.append("a batch of one sequence cannot show whether sequences of a batch read each other")
    if examiner.flow and not contents:
        found.append("no input with positions was recognised: the flow was not measured")
    return found


def _is_local(call: CallVerdict, contents: list[Content]) -> bool:
    """Whether a self-attention call sees fewer positions than every input has."""
    return call.kind == "self" and all(call.queries < content.length for content in contents)


def tried(done: list[tuple[Feeding, Examination]]) -> dict[str, Any]:
    """Lengths, batch sizes, modes, feedings and token range that were tried: those of the given feeding
    first."""
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
        "beside attention": done[0][1].beside,
        "added": list(dict.fromkeys(feeding.added for feeding, _ in done if feeding.added)),
        "groups": {trial.label: trial.groups for _, trial in done if trial.groups},
    }


def judge_patterns(examiner: Examiner, passes: list[Pass]) -> None:
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
        subject = Subject(Compared.PATTERN, told=f"the pattern {pattern!r}")
        if pattern in first.values():
            examiner.ledger.held("given", replace(subject, told=f"{subject} is used"))
            continue
        reason = f"{subject} matches no attention call; calls are {_few([call.module for call in calls])}"
        if first:
            earlier = ", ".join(repr(one) for one in dict.fromkeys(first.values()))
            reason = (
                f"{subject} matches {_few(list(first))}, which {earlier} takes before it: the first pattern "
                "that matches counts, so put the narrower one first"
            )
        examiner.ledger.open("given", subject, reason)


def not_judged(examiner: Examiner, results: list[Examination]) -> list[str]:
    """Modules whose calls the expectation does not speak about; those of summaries are judged by the flow.

    Of other feedings, whose sizes an expectation may not fit, modules count that the given inputs do not run.
    """
    seen = {call.module for call in results[0].calls}
    calls = [call for one in results for call in one.calls if one is results[0] or call.module not in seen]
    silent = [call for call in calls if call.expected is None and call.kind != "derived"]
    return [] if examiner.expect is None else list(dict.fromkeys(call.module or "(model)" for call in silent))


def _few(modules: list[str]) -> str:
    names = [name or "(model)" for name in dict.fromkeys(modules)]
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "") or "none"


def judge_coverage(examiner: Examiner, coverage: Coverage, reading: Reading, done: list[Examination]) -> None:
    """An expectation that met neither a call nor a flow was not compared with anything."""
    if examiner.expect is None:
        return
    opened = partial(examiner.ledger.open, "given")
    if reading.sequences and max(one.length for one in reading.sequences) < 2:
        opened(Subject(Compared.INPUTS), "one position shows nothing of who reads whom: give several")
    if not examiner.flow:  # the user asked for the calls alone
        if all(one.subject.module is None for one in examiner.ledger):
            told = (
                "no attention call was seen that the expectation is about, and no output was held against it"
            )
            opened(Subject(Compared.EXPECTATION), told)
        elif coverage.unexplained or any(call.kind == "derived" for call in examiner.base):
            told = "not every call could be explained: ask for the flow (flow=True)"
            opened(Subject(Compared.CALLS), told)
        return
    if not reading.sequences:
        ignored = "".join(f"; {name}: {why}" for name, why in reading.ignored.items())
        told = f"no input with positions was recognised: say content=[...]{ignored}"
        opened(Subject(Compared.INPUTS), told)
    for name in reading.refused if reading.sequences else ():
        told = f"{reading.ignored[name]}: say vary=... to change what belongs together"
        opened(Subject(Compared.FLOW, input=name), told)
    for name, why in reading.opened.items():
        opened(Subject(Compared.FLOW, input=name), why)
    flows = [one for trial in done for one in trial.flows]
    if flows and not any(one.settled for one in flows if one.role != "labels"):
        names = " or ".join(one.name for one in reading.contents)
        told = (
            f"no output moves with {names}, so that no edge could be compared: give a model whose outputs "
            "depend on its inputs, or content=[...]"
        )
        opened(Subject(Compared.EDGES, told="edges"), told)

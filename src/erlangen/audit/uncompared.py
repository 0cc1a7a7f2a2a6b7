"""What an expectation was not held against: patterns that match nothing, inputs that were not recognised."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

from erlangen.audit.case import Examination
from erlangen.audit.examiner import Examiner
from erlangen.audit.expect import about_the_whole
from erlangen.audit.obligations import Compared, Subject
from erlangen.audit.observed import Measured, Pass
from erlangen.audit.reading import Reading
from erlangen.audit.report import Coverage


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


def not_judged(examiner: Examiner, results: list[Examination]) -> list[str]:
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


def judge_coverage(examiner: Examiner, coverage: Coverage, reading: Reading, done: list[Examination]) -> None:
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

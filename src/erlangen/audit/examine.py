"""One feeding, examined: its calls and its flows, each comparison an obligation."""

from __future__ import annotations

from erlangen.audit.beside import beside_attention
from erlangen.audit.case import Case, Examination
from erlangen.audit.examiner import Examiner, in_short
from erlangen.audit.feeding import Feeding
from erlangen.audit.judged_calls import inherit, judge_calls
from erlangen.audit.judged_flows import judge_flows
from erlangen.audit.obligations import Compared, Subject
from erlangen.audit.observed import Pass
from erlangen.errors import ErlangenError


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

"""A feeding held against the given inputs: relations that are not the same though they should be."""

from __future__ import annotations

import torch
from torch import nn

from erlangen.audit.calls.over_draws import reads_more
from erlangen.audit.case import Examination, Examiner
from erlangen.audit.feeding import Feeding
from erlangen.audit.identify import identify
from erlangen.audit.inputs import Inputs
from erlangen.audit.obligations import Compared, Ledger, Subject
from erlangen.audit.observed import Measured, Pass
from erlangen.errors import ErlangenError
from erlangen.relations import Causal, Neighborhoods, Relation


def against_given(examiner: Examiner, feeding: Feeding, result: Examination, base: Pass) -> None:
    """Note where the calls of a feeding read otherwise than on the given inputs.

    Modules whose calls drop keys at random may read less in training.
    """
    if result.seen is None or result.skipped is not None:
        return
    pairs = _pairs(result.seen.calls, base.calls)
    if len(result.seen.calls) != len(base.calls):
        result.differences.append(
            f"{len(result.seen.calls)} attention calls, {len(base.calls)} on the given inputs"
        )
    unlike = None
    for now, call in pairs:
        if _sizes(now) == _sizes(call) and now.kernel != call.kernel:
            if now.module in examiner.random and feeding.mode.train and not reads_more(now, call):
                result.varying[now.module] = "on random numbers in training"
            elif feeding.same_relations:
                result.contradictions.append(_mode_difference(feeding, now, call))
            elif not feeding.pads:
                unlike = _unlike(examiner.model, base.inputs, feeding.inputs) if unlike is None else unlike
                what = ", ".join(unlike) or "the inputs"
                if feeding.all_content:
                    what = f"the content of {what}"
                    examiner.deciding |= set(unlike) if len(unlike) == 1 else set()
                result.varying[now.module] = f"on {what}"
        elif feeding.same_family and not _same_family(call, now):
            kernel = next(
                (one.kernel_text for one in result.calls if one.measured is now), "another relation"
            )
            result.differences.append(
                f"{now.module or 'the model'}: {kernel}, not the relation at full length"
            )


def _pairs(calls: list[Measured], base: list[Measured]) -> list[tuple[Measured, Measured]]:
    """Calls with their counterparts: by module, in order of execution; layers may be dropped in training."""
    waiting: dict[str, list[Measured]] = {}
    for call in base:
        waiting.setdefault(call.module, []).append(call)
    return [(call, waiting[call.module].pop(0)) for call in calls if waiting.get(call.module)]


def _mode_difference(feeding: Feeding, now: Measured, call: Measured) -> str:
    b, h, i, j, has = now.kernel.difference(call.kernel) or (0, 0, 0, 0, False)
    mode = feeding.described or f"{feeding.label}:"
    return (
        f"{now.module or 'the model'}, item {b}, head {h}: {mode} query {i} "
        f"{'reads' if has else 'does not read'} key {j}, as given it {'does not' if has else 'does'}"
    )


def _same_family(call: Measured, now: Measured) -> bool:
    """Whether the relation at full length, read as an expression, also gives the one measured now."""
    for long, short in zip(call.kernel.items[0], now.kernel.items[0], strict=False):
        relation: Relation = identify(long)
        try:
            bound: Neighborhoods = relation.on(now.queries, now.keys)
        except ErlangenError:
            continue  # a relation of one size only: nothing to compare
        if bound != short:
            return False
    return True


def _unlike(model: nn.Module, a: Inputs, b: Inputs) -> list[str]:
    """The names of the arguments in which two inputs differ."""
    first, second = a.leaves(model), b.leaves(model)
    names = [*first, *(name for name in second if name not in first)]
    return [name for name in names if not _equal(first.get(name), second.get(name))]


def _equal(x: torch.Tensor | None, y: torch.Tensor | None) -> bool:
    return x is not None and y is not None and x.shape == y.shape and torch.equal(x, y)


def _sizes(call: Measured) -> tuple[int, int, int, int]:
    return call.batch, call.heads, call.queries, call.keys


ALWAYS = ("batch", "labels", "state")
"""Kinds of findings that have nothing to do with where padding stands."""


def other_side(ledger: Ledger, feeding: Feeding, trial: Examination, calls: list[Measured]) -> list[str]:
    """Take what is wrong with a model there out of the obligations, and say it as warnings.

    A model that counts its tokens from the start (`mask.sum(1) - 1`) is right as long as padding stands at
    the end, and the mask that was given says that it does. What has to do with content alone shows under the
    other feedings. A causal model reads no padding at the end whatever it does with its mask: whether it
    takes the mask into account is then open.
    """
    left = feeding.pads == "left"
    shown, asked = ("right", "left") if left else ("left", "right")
    told = ledger.excuse(feeding.label, ALWAYS)
    told += [f"{feeding.label}: {text}" for text in trial.contradictions]
    trial.contradictions = []
    if not told:
        return []
    more = f" (and {len(told) - 1} more)" if len(told) > 1 else ""
    said = f"{told[0]}{more}: {feeding.unshown} as given marks padding on the {shown} only, "
    knobs = f'feedings=["padded {shown}"] leaves it out, feedings=["padded {asked}"] judges it'
    if left and _causal(calls):
        reason = f"{said}where a causal model reads none even if it ignores the mask: {knobs}"
        ledger.open(feeding.label, Subject(Compared.PADDING, told="padding at the start"), reason)
        return []
    return [f"{said}so this is no violation; {knobs}"]


def only_at_the_start(ledger: Ledger, feedings: list[Feeding]) -> list[str]:
    """The knob, where nothing but the audit's own padding at the start is at fault."""
    places = {place for one in ledger.findings for place in (one.where, *one.also)}
    if not places or not places <= {one.label for one in feedings if one.pads == "left"}:
        return []
    return [
        "only padding at the start, which the audit added, is at fault: where this model is never padded "
        'there, give feedings=[...] with "padded right" and without "padded left"'
    ]


def _causal(calls: list[Measured]) -> bool:
    """Whether all self-attention that was seen reads nothing later."""
    own = [call for call in calls if call.kind == "self" and call.queries == call.keys]
    reads = {bound for call in own for heads in call.kernel.items for bound in heads}
    return bool(reads) and not any((bound - Causal().on(bound.queries)).num_edges for bound in reads)

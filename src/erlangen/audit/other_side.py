"""Padding that the audit made on a side on which the given mask marks none."""

from __future__ import annotations

from erlangen.audit.case import Examination
from erlangen.audit.feeding import Feeding
from erlangen.audit.obligations import Compared, Ledger, Subject
from erlangen.audit.observed import Measured
from erlangen.relations import Causal

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

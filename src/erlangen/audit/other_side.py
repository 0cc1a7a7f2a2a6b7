"""Padding that the audit made on a side on which the given mask marks none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from erlangen.audit.feedings.feeding import Feeding
from erlangen.audit.obligations import Ledger

if TYPE_CHECKING:
    from erlangen.audit.examine import Examination

ALWAYS = ("batch", "labels", "state")
"""Kinds of findings that have nothing to do with where padding stands."""


def other_side(ledger: Ledger, feeding: Feeding, trial: Examination) -> list[str]:
    """Take what is wrong with a model there out of the obligations, and say it as warnings.

    A model that counts its tokens from the start (`mask.sum(1) - 1`) is right as long as padding stands at
    the end, and the mask that was given says that it does. What has to do with content alone shows under the
    other feedings.
    """
    left = feeding.label.startswith("padded left")
    shown, asked = ("right", "left") if left else ("left", "right")
    told = ledger.excuse(feeding.label, ALWAYS)
    told += [f"{feeding.label}: {text}" for text in trial.contradictions]
    trial.contradictions = []
    if not told:
        return []
    more = f" (and {len(told) - 1} more)" if len(told) > 1 else ""
    return [
        f"{told[0]}{more}: {feeding.unshown} as given marks padding on the {shown} only, so this is no "
        f'violation; feedings=["padded {shown}"] leaves it out, feedings=["padded {asked}"] judges it'
    ]

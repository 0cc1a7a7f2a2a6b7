"""The given inputs in a second call: what a model keeps of the first may change what it does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from erlangen.audit.feedings import other_content, shorter
from erlangen.audit.feedings.feeding import FEW, Feeding, Given
from erlangen.audit.inputs import Inputs
from erlangen.audit.outputs import output_tensors
from erlangen.audit.state import same_bits
from erlangen.audit.witnesses.runs import Mode

LABEL = "second call"


def feedings(given: Given) -> Iterator[Feeding]:
    """The given inputs after a call on the same, on other content, twice, and on shorter inputs.

    Caches that are never reset, counters and masks that are kept from a first call show there. Where the
    outputs are those of a first call, bit for bit, nothing else is to be measured.
    """
    fresh = _after(given, ())
    same, *others = (given.inputs,), *_other(given)
    first = _after(given, same)
    differing = None if _equal(first, fresh) else same
    reason = ""
    for earlier in others:
        try:
            second = _after(given, earlier)
        except Exception as error:
            reason = (
                f"after another call the model does not run ({type(error).__name__}): reset what it keeps"
            )
            continue
        differing = differing if differing is not None or _equal(second, fresh) else earlier
        if len(earlier) == 1 and not _equal(second, first):
            reason = (
                "outputs depend on the inputs of an earlier call: reset what the model keeps of it, or leave "
                f"{LABEL!r} out by feedings=[...] where that is meant"
            )
    if differing is None:
        yield given.feeding(LABEL, given.inputs, same=True, opened=reason)
    else:
        mode = Mode("a second call", earlier=differing)
        yield given.feeding(LABEL, given.inputs, mode, opened=reason, exact=False, spread=FEW)


def _other(given: Given) -> list[tuple[Inputs, ...]]:
    """Earlier calls that the model takes: twice the same, on other content, on shorter inputs."""
    found: list[tuple[Inputs, ...]] = [(given.inputs, given.inputs)]
    made = [*other_content.feedings(given), *shorter.feedings(given)]
    return found + [(one.inputs,) for one in made if given.runs(one.inputs)]


def _after(given: Given, earlier: tuple[Inputs, ...]) -> dict[str, torch.Tensor]:
    """The outputs on the given inputs after other calls."""
    assert given.on is not None
    output: Any = given.on(given.inputs, Mode("", earlier=earlier).called(given.model))
    return {name: tensor.detach().clone() for name, tensor in output_tensors(output)}


def _equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return list(one) == list(other) and all(same_bits(one[name], other[name]) for name in one)

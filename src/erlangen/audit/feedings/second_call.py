"""The given inputs in a second call: what a model keeps of the first may change what it does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from erlangen.audit.arguments.resized import stretchable, stretched
from erlangen.audit.feeding import FEW, Feeding, Given, Way, register
from erlangen.audit.feedings.other_content import OtherContent
from erlangen.audit.feedings.shorter import Shorter
from erlangen.audit.inputs import Inputs
from erlangen.audit.outputs import output_tensors
from erlangen.audit.state import same_bits
from erlangen.audit.witnesses.runs import TRAINING, Mode


@register
class SecondCall(Way):
    """The given inputs after a call on the same, on other content, twice, on shorter and on longer inputs.

    Caches that are never reset, counters and masks that are kept from a first call show there. Where the
    outputs are those of a first call, bit for bit, nothing else is to be measured. In training it is only
    asked whether outputs depend on what an earlier step was given.
    """

    name = "second call"
    order = 100
    runs = 16

    def make(self, given: Given) -> Iterator[Feeding]:
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
                    "outputs depend on the inputs of an earlier call: reset what the model keeps of it, or "
                    f"leave {self.name!r} out by feedings=[...] where that is meant"
                )
        reason = reason or _kept_in_training(given)
        if differing is None:
            yield given.feeding(self.name, given.inputs, same=True, opened=reason)
        else:
            mode = Mode("a second call", earlier=differing)
            yield given.feeding(self.name, given.inputs, mode, opened=reason, exact=False, spread=FEW)


def _other(given: Given) -> list[tuple[Inputs, ...]]:
    """Earlier calls that the model takes: twice the same, on other content, on shorter and longer inputs."""
    made = [one.inputs for one in (*OtherContent().make(given), *Shorter().make(given))]
    content = stretchable(given)
    if content is not None:
        made.append(stretched(given, content, content.length + (content.length + 1) // 2))
    return [(given.inputs, given.inputs), *((one,) for one in made if given.runs(one))]


def _kept_in_training(given: Given) -> str:
    """Why it is open what outputs of a training step depend on; empty where it is not on earlier steps."""
    for other in OtherContent().make(given):
        try:
            one, again = (_after(given, (given.inputs,), TRAINING) for _ in range(2))
            if _equal(one, again) and not _equal(_after(given, (other.inputs,), TRAINING), one):
                return (
                    "in training outputs depend on the inputs of an earlier step (a memory, a queue, a code "
                    f"book that is learned so): leave {SecondCall.name!r} out by feedings=[...] where "
                    "that is meant"
                )
        except Exception:
            return ""  # a model that does not train so; other feedings say so
    return ""


def _after(given: Given, earlier: tuple[Inputs, ...], mode: Mode | None = None) -> dict[str, torch.Tensor]:
    """The outputs on the given inputs after other calls, in the mode of the given feeding or in another."""
    assert given.on is not None
    told = Mode("", earlier=earlier)
    within = told.called(given.model) if mode is None else replace(mode, earlier=earlier).on(given.model)
    output: Any = given.on(given.inputs, within)
    return {name: tensor.detach().clone() for name, tensor in output_tensors(output)}


def _equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return list(one) == list(other) and all(same_bits(one[name], other[name]) for name in one)

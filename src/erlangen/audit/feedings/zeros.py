"""Parameters that are zero and that training moves, given other values: a gate of zero hides what it gates.

ReZero (arXiv 2003.04887), LoRA (arXiv 2106.09685), the tanh gates of Flamingo (arXiv 2204.14198) and the
adaptive norms of DiT (arXiv 2212.09748) start at zero: what they let pass is not seen before the first step.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from erlangen.audit.feeding import FEW, Feeding, Given, Way, register
from erlangen.audit.outputs import floating
from erlangen.audit.witnesses.runs import GRADIENTS, Mode, Zeros

ROUNDS = 3
"""A gate that is opened may show another zero behind it: so often that is looked for."""


@register
class ZerosFilled(Way):
    """The given inputs to the model as it is after a first step: entries of zero that have a gradient are
    filled.

    An entry without a gradient stays zero in training, too: masked weights and padding vectors are such.
    """

    name = "zeros filled"
    order = 95

    def make(self, given: Given) -> Iterator[Feeding]:
        zeros: Zeros = {}
        for _ in range(ROUNDS):
            moved = _moved(given, _filled(zeros))
            if moved is None or not moved:
                break
            for name, entries in moved.items():
                zeros = {**zeros, name: zeros[name] | entries if name in zeros else entries}
        if zeros:
            yield given.feeding("zeros filled", given.inputs, _filled(zeros), exact=False, spread=FEW)


def _filled(zeros: Zeros) -> Mode:
    return Mode("with zeros filled", grad=GRADIENTS.grad, zeros=zeros)


def _moved(given: Given, mode: Mode) -> Zeros | None:
    """The entries of parameters that are zero and have a gradient; None where there are no gradients."""
    model = given.model
    with mode.on(model):
        waiting = {
            name: parameter
            for name, parameter in model.named_parameters()
            if parameter.requires_grad and parameter.is_floating_point() and bool((parameter == 0).any())
        }
        if not waiting:
            return {}
        try:
            outputs = [t for _, t in floating(given.inputs.copied().run(model)) if t.requires_grad]
            if not outputs or not all(bool(t.isfinite().any()) for t in outputs):
                return None
            generator = torch.Generator().manual_seed(3)
            total = sum(
                (
                    t.nan_to_num(0.0, 0.0, 0.0)
                    * torch.randn(t.shape, generator=generator, device="cpu").to(t)
                ).sum()
                for t in outputs
            )
            gradients = torch.autograd.grad(total, list(waiting.values()), allow_unused=True)  # type: ignore[arg-type]
        except Exception:
            return None  # code without derivatives: nothing is known of what training would move
        return {
            name: entries
            for (name, parameter), gradient in zip(waiting.items(), gradients, strict=True)
            if gradient is not None and bool((entries := (parameter == 0) & (gradient != 0)).any())
        }

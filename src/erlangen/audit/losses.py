"""Losses of single tokens among the outputs: each may read its own label."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from erlangen.audit.inputs import Content
from erlangen.audit.observed import Measured
from erlangen.audit.outputs import floating
from erlangen.audit.witnesses.runs import Runner

_LOSSES = ("loss", "cross_entropy")
"""Parts of the names of PyTorch's loss functions."""


class _Watch(TorchFunctionMode):
    """Remembers what loss functions return."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[torch.Tensor] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        if isinstance(result, torch.Tensor) and any(word in name for word in _LOSSES):
            self.seen.append(result.detach().flatten())
        return result


def losses_of(runner: Runner) -> set[str]:
    """The names of outputs that are what a loss function of PyTorch returned for each token."""
    watch = _Watch()
    try:
        output = runner.on(runner.inputs, watch)
    except Exception:
        return set()  # a model that runs only unobserved
    return {
        name
        for name, tensor in floating(output)
        if tensor.dim() and any(torch.equal(one, tensor.flatten()) for one in watch.seen)
    }


def labelled_rows(labels: list[Content]) -> np.ndarray | None:
    """Which rows have a label that counts, (batch, rows); None where no label is -100."""
    for one in labels:
        tensor = one.tensor.detach().cpu()
        if one.axis == 1 and one.batch_axis == 0 and tensor.dim() == 2 and bool((tensor == -100).any()):
            return (tensor != -100).numpy()
    return None


def fed_labels(labels: list[Content], calls: list[Measured]) -> list[Content]:
    """The labels that a decoder is fed with: its queries read another sequence."""
    asking = {name for call in calls if call.kind == "cross" for name in call.query_inputs}
    return [one for one in labels if one.axis is not None and one.name in asking]

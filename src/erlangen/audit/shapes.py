"""The inputs that were given, by shape and type: what an error says when a model does not run on them."""

from __future__ import annotations

import torch
from torch import nn

from erlangen.audit.inputs import Inputs

MOST = 12
"""So many inputs are named."""


def shapes(model: nn.Module, inputs: Inputs) -> str:
    """Every argument: tensors by shape and type, also inside containers, numbers and flags by their value.

    >>> shapes(nn.GRU(4, 4), Inputs.of((torch.zeros(1, 4), None)))
    'input: float32 (1, 4), hx: None'
    """
    leaves = inputs.leaves(model)
    told = [f"{name}: {_type(tensor)} {tuple(tensor.shape)}" for name, tensor in leaves.items()]
    for name, value in inputs.named(model).items():
        if not any(leaf == name or leaf.startswith(f"{name}.") for leaf in leaves):
            plain = value is None or isinstance(value, bool | int | float | str)
            told.append(f"{name}: {str(value)[:40] if plain else type(value).__name__}")
    return ", ".join(told[:MOST]) + (f" and {len(told) - MOST} more" if len(told) > MOST else "") or "none"


def _type(tensor: torch.Tensor) -> str:
    device = "" if tensor.device.type == "cpu" else f" on {tensor.device}"
    return f"{str(tensor.dtype).removeprefix('torch.')}{device}"

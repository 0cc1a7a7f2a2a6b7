"""Modules that quantise what they are given by the range of the whole tensor: every row then reads every
other, of every item, by as much as rounding to eight bits shows."""

from __future__ import annotations

from torch import nn

BY_RANGE = "quantised by the range of the whole tensor"


def by_range(module: nn.Module) -> bool:
    """Whether a module is dynamically quantised, as `torch.ao.quantization.quantize_dynamic` makes it."""
    return ".quantized.dynamic" in type(module).__module__ and type(module).__module__.startswith("torch.")


def kind_of(module: nn.Module) -> str:
    """The type of a module as a finding names it.

    >>> kind_of(nn.Linear(1, 1))
    'Linear'
    """
    name = type(module).__name__
    return f"{name}, {BY_RANGE}" if by_range(module) else name


def told_of_items(model: nn.Module) -> str:
    """What is to be said where items of a batch read each other: the first module that makes them do so."""
    name = next((name for name, module in model.named_modules() if by_range(module)), None)
    return "" if name is None else f" ({name or 'the model'} is {BY_RANGE}, over all items)"

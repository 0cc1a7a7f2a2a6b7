"""Other inputs of the same kind that an audit tries by itself: shorter, padded, other decoder length."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import nn

from erlangen.audit.inputs import PADDING_MASKS, Content, Inputs, contents


def variants(model: nn.Module, inputs: Inputs) -> Iterator[Inputs]:
    """Inputs made from the given ones; which of them a model accepts is found by running it.

    >>> model = nn.Linear(2, 2)
    >>> [one.label for one in variants(model, Inputs.of(torch.zeros(1, 6, 2)))]
    ['shorter']
    """
    found = [c for c in contents(model, inputs) if c.patch is None and c.batch_axis is not None]
    if not found:
        return
    named = inputs.named(model)
    masks = {id(named[name]) for name in PADDING_MASKS if isinstance(named.get(name), torch.Tensor)}
    if all(content.length >= 3 for content in found):
        yield _cut(inputs, found, masks, "shorter")
    if len(found) > 1 and found[-1].length >= 3 and found[-1].name.startswith(("decoder", "tgt")):
        yield _cut(inputs, found[-1:], masks, "shorter decoder")
    padded = _padded(model, inputs, found[0])
    if padded is not None:
        yield padded


def _cut(inputs: Inputs, found: list[Content], masks: set[int], label: str) -> Inputs:
    """The first two thirds of every sequence, with its masks."""
    lengths = {content.length: max(2, content.length * 2 // 3) for content in found}

    def cut(tensor: torch.Tensor) -> torch.Tensor:
        for content in found:
            if tensor is content.tensor:
                return tensor.narrow(content.axis, 0, lengths[content.length]).contiguous()
        if id(tensor) in masks and tensor.shape[-1] in lengths and label == "shorter":
            return tensor[..., : lengths[tensor.shape[-1]]].contiguous()
        square = tensor.dim() >= 2 and tensor.shape[-1] == tensor.shape[-2] and tensor.shape[-1] in lengths
        if square and label == "shorter":
            n = lengths[tensor.shape[-1]]
            return tensor[..., :n, :n].contiguous()
        return tensor

    return inputs.map(cut, label)


def _padded(model: nn.Module, inputs: Inputs, content: Content) -> Inputs | None:
    """The last quarter of the last item marked as padding, where the model takes an attention mask."""
    named = inputs.named(model)
    try:
        parameters = inspect.signature(model.forward).parameters
    except (TypeError, ValueError):
        return None
    mask = named.get("attention_mask")
    if "attention_mask" not in parameters or content.name not in PADDING_MASKS["attention_mask"][0]:
        return None
    shape = (content.batch, content.length)
    if mask is None:
        mask = torch.ones(shape, dtype=torch.long, device=content.tensor.device)
    elif tuple(mask.shape) != shape or not bool(mask.to(torch.bool).all()):
        return None
    mask = mask.clone()
    mask[-1, -max(1, content.length // 4) :] = 0
    if len(inputs.args) > list(parameters).index("attention_mask"):
        return None
    return replace(inputs, kwargs={**inputs.kwargs, "attention_mask": mask}, label="padded")

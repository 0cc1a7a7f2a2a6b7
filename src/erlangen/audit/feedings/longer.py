"""Longer inputs, beyond the sizes that the model itself names: windows, chunks, blocks, strides."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from erlangen.audit.feedings.feeding import Feeding, Given
from erlangen.audit.inputs import Content
from erlangen.audit.sizes import named_sizes

MOST = 640
"""No longer input is made than this."""


def feedings(given: Given) -> Iterator[Feeding]:
    """One input for each named size that the given length does not cross, as long as the model takes it."""
    found = [one for one in given.reading.sequences if one.sequence]
    if len(found) != 1 or found[0].batch_axis is None or given.inputs.vary is not None:
        return
    if found[0].embedding or found[0].together:
        return
    content = found[0]
    tried = set()
    for _, size in named_sizes(given.model):
        length = 2 * size + 3
        if content.length > 2 * size or length > MOST or length in tried:
            continue
        tried.add(length)
        yield given.feeding(
            f"longer ({length})", given.inputs.map(_stretch(given, content, length)), resized=True
        )


def _stretch(given: Given, content: Content, length: int):
    masks = {id(one.tensor) for one in given.reading.masks}
    labels = {id(one.tensor): one for one in given.reading.labels}
    generator = torch.Generator().manual_seed(7)
    index = torch.arange(length) % content.length

    def longer(tensor: torch.Tensor) -> torch.Tensor:
        if tensor is content.tensor:
            repeated = tensor.index_select(content.axis or 0, index.to(tensor.device))
            if content.pool is not None:
                drawn = content.pool[torch.randint(len(content.pool), repeated.shape, generator=generator)]
                return drawn.to(repeated)
            noise = torch.randn(repeated.shape, generator=generator) * float(tensor.float().std() or 1.0)
            return repeated + noise.to(repeated)
        if id(tensor) in masks:
            return tensor.index_select(tensor.dim() - 1, index.to(tensor.device))
        one = labels.get(id(tensor))
        if one is not None and one.axis is not None and one.length == content.length:
            return tensor.index_select(one.axis, index.to(tensor.device))
        return tensor

    return longer

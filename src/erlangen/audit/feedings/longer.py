"""Longer inputs, beyond the sizes that the model itself names: windows, chunks, blocks, strides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import nn

from erlangen.audit.feedings.feeding import Feeding, Given
from erlangen.audit.inputs import Content, Inputs
from erlangen.audit.possible_sizes import possible_sizes
from erlangen.audit.sizes import named_sizes

MOST = 640
"""No longer input is made than this."""


FULL = 256
"""Tables of positions up to this size are filled."""
TRIES = 4
"""So many lengths are tried until the model takes one, for sizes that are none by their names."""


def feedings(given: Given) -> Iterator[Feeding]:
    """One input for each named size that the given length does not cross, as long as the model takes it; one
    for all integers that may be lengths, beyond the largest that it takes; one that fills a table."""
    content = stretchable(given)
    if content is None:
        return
    tried = set()
    for _, size in named_sizes(given.model):
        length = 2 * size + 3
        if content.length > 2 * size or length > MOST or length in tried:
            continue
        tried.add(length)
        yield _longer(given, content, length, (size, 2 * size))
    waiting = [size for _, size in possible_sizes(given.model) if 2 * size >= content.length]
    waiting = [size for size in waiting if 2 * size + 3 <= MOST]
    for length, size in _lengths(waiting, content.length):
        feeding = _longer(given, content, length, tuple(one for one in waiting if one <= size))
        if given.runs(feeding.inputs):
            if length not in tried:
                yield feeding
            tried.add(length)
            break
    beyond = max(tried, default=content.length)
    for size in [size for size in _longest(given, content) if size > beyond][:TRIES]:
        feeding = _longer(given, content, size, ())
        if given.runs(feeding.inputs):
            yield replace(feeding, exact=False)  # what fades on the way is not missing
            return


def _longest(given: Given, content: Content) -> list[int]:
    """The sizes of tables of embeddings, the largest first, but for that of the tokens: a table of positions
    takes nothing beyond."""
    tables = {one.num_embeddings for one in given.model.modules() if isinstance(one, nn.Embedding)}
    tokens = 0 if content.pool is None else int(content.pool.max()) + 1
    return sorted((one for one in tables if content.length < one <= FULL and one != tokens), reverse=True)


def _lengths(sizes: list[int], given: int) -> list[tuple[int, int]]:
    """Lengths to be tried, from the largest size down: twice beyond it, then just beyond it."""
    found = [(2 * size + 3, size) for size in sizes] + [(size + 3, size) for size in sizes]
    found = [one for one in found if one[0] > given]
    return (
        [found[round(k * (len(found) - 1) / (TRIES - 1))] for k in range(TRIES)]
        if len(found) > TRIES
        else found
    )


def stretchable(given: Given) -> Content | None:
    """The only sequence, where it can be made longer."""
    found = [one for one in given.reading.sequences if one.sequence]
    if len(found) != 1 or found[0].batch_axis is None or given.inputs.vary is not None:
        return None
    return None if found[0].embedding or found[0].together else found[0]


def _longer(given: Given, content: Content, length: int, at: tuple[int, ...]) -> Feeding:
    inputs = stretched(given, content, length)
    return given.feeding(f"longer ({length})", inputs, resized=True, at=at)


def stretched(given: Given, content: Content, length: int) -> Inputs:
    """The inputs with other, longer content, its masks and labels with it."""
    masks = {id(one.tensor): one for one in given.reading.masks}
    labels = {id(one.tensor): one for one in given.reading.labels}
    generator = torch.Generator().manual_seed(7)
    index = torch.arange(length, device="cpu") % content.length

    def longer(tensor: torch.Tensor) -> torch.Tensor:
        if tensor is content.tensor:
            repeated = tensor.index_select(content.axis or 0, index.to(tensor.device))
            if content.pool is not None:
                drawn = content.pool[
                    torch.randint(len(content.pool), repeated.shape, generator=generator, device="cpu")
                ]
                return drawn.to(repeated)
            noise = torch.randn(repeated.shape, generator=generator, device="cpu") * float(
                tensor.float().std() or 1.0
            )
            return repeated + noise.to(repeated)
        mask = masks.get(id(tensor))
        if mask is not None and mask.lengths:
            return torch.full_like(tensor, length)
        if mask is not None:  # nothing is padding: repeated, padding would stand in between
            repeated = tensor.index_select(tensor.dim() - 1, index.to(tensor.device))
            return replace(mask, tensor=repeated).unpadded()
        one = labels.get(id(tensor))
        if one is not None and one.axis is not None and one.length == content.length:
            return tensor.index_select(one.axis, index.to(tensor.device))
        return tensor

    return given.inputs.map(longer)

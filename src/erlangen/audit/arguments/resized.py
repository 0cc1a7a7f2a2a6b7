"""The given inputs at other sizes: sequences cut or made longer, or one item more, with what belongs to
them."""

from __future__ import annotations

from dataclasses import replace

import torch

from erlangen.audit.arguments.reading import special_tokens
from erlangen.audit.feeding import Given
from erlangen.audit.inputs import Content, Inputs


def may_cut(given: Given, content: Content, span: tuple[int, int]) -> bool:
    """Whether all special tokens stay where a sequence that may not do without them is cut to [start, stop).

    Placeholders of an image are as many as its rows; with fewer of them items would take each other's rows.
    """
    if content.embedding is None or content.axis is None:
        return True
    special = torch.tensor(sorted(special_tokens(given.model)), dtype=content.tensor.dtype, device="cpu")
    marked = torch.isin(content.tensor.cpu(), special)
    return int(marked.sum()) == int(marked.narrow(content.axis, span[0], span[1] - span[0]).sum())


def cut(given: Given, lengths: dict[str, tuple[int, int]], label: str) -> Inputs:
    """The inputs with every named sequence cut to [start, stop), its masks and labels with it.

    Other tensors that have the length of a cut sequence as their last axis, or as their last two, are cut
    too: masks of pairs, positions.
    """
    reading = given.reading
    contents = {id(one.tensor): one for one in (*reading.contents, *reading.labels)}
    for one in reading.contents:
        contents |= {id(other.tensor): replace(other, name=one.name) for other in one.together}
    sizes = {one.length: lengths[one.name] for one in reading.sequences if one.name in lengths}
    masks = {id(one.tensor): one.content for one in reading.masks}
    counted = {id(one.tensor) for one in reading.masks if one.lengths}
    main = next((lengths[one.name] for one in reading.sequences if one.name in lengths), None)

    def narrowed(tensor: torch.Tensor) -> torch.Tensor:
        one = contents.get(id(tensor))
        if one is not None:
            span = lengths.get(one.name)
            if span is None and one in reading.labels and main is not None and one.axis is not None:
                span = main if one.length in sizes else None
            if span is None or one.axis is None:
                return tensor
            return tensor.narrow(one.axis, span[0], span[1] - span[0]).contiguous()
        if id(tensor) in masks:
            span = lengths.get(masks[id(tensor)])
            if span is not None and id(tensor) in counted:
                return (tensor - span[0]).clamp(1, span[1] - span[0])
            return tensor if span is None else tensor[..., span[0] : span[1]].contiguous()
        if tensor.dim() and tensor.shape[-1] in sizes:
            start, stop = sizes[tensor.shape[-1]]
            tensor = (
                tensor[..., start:stop] if not tensor.is_floating_point() or tensor.dim() == 2 else tensor
            )
            if tensor.dim() >= 2 and tensor.shape[-2] in sizes and tensor.shape[-2] != stop - start:
                tensor = tensor[..., start:stop, :]
            if tensor.is_floating_point() and tensor.dim() > 2 and tensor.shape[-2] == stop - start:
                tensor = tensor[..., start:stop]
            return tensor.contiguous()
        return tensor

    return given.inputs.map(narrowed, label)


def more_items(given: Given, inputs: Inputs) -> Inputs | None:
    """The batch and one item more, whose content is another one."""
    first = given.reading.contents[0] if given.reading.contents else None
    if first is None or first.batch_axis is None or inputs.vary is not None:
        return None
    contents = {id(one.tensor): one for one in (*given.reading.contents, *given.reading.labels)}
    axis = 0 if first.batch_axis == 0 else None

    def more(tensor: torch.Tensor) -> torch.Tensor:
        one = contents.get(id(tensor))
        along = axis if one is None else one.batch_axis
        square = tensor.dim() == 2 and tensor.shape[0] == tensor.shape[1] and one is None
        if along is None or tensor.dim() <= along or tensor.shape[along] != first.batch or square:
            return tensor
        other = tensor if one is None or one.embedding else one.changed(range(one.length), seed=2)
        return torch.cat([tensor, other.narrow(along, 0, 1)], dim=along)

    return inputs.map(more, "other sizes")


def stretchable(given: Given) -> Content | None:
    """The only sequence, where it can be made longer."""
    found = [one for one in given.reading.sequences if one.sequence]
    if len(found) != 1 or found[0].batch_axis is None or given.inputs.vary is not None:
        return None
    return None if found[0].embedding or found[0].together else found[0]


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

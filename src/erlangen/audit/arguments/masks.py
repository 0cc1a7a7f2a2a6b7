"""Masks of padding: what they mark, in which of their shapes, and what looks like one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from erlangen.audit.inputs import Content


@dataclass(frozen=True, eq=False)
class Mask:
    """A padding mask: one entry for each position of one input."""

    name: str
    tensor: torch.Tensor
    content: str
    hides: bool
    """True: a non-zero entry marks padding. False: a zero (or very negative) entry does."""
    lengths: int = 0
    """The number of positions, where the mask is one length for each sequence."""
    rate: int = 1
    """How many positions one entry is about: a mask may be over a subsampled sequence."""
    measured: bool = False
    """Whether the meaning was measured by running the model, and not only read off its type and name."""
    token: int | None = None
    """The token that is padding, where the mask is the tokens themselves."""

    def real(self) -> np.ndarray:
        """Which positions are real; of several sequences of an item, in any of them."""
        marked = self.by_group()
        return marked if marked.ndim == 2 else np.asarray(marked.any(axis=1))

    def by_group(self) -> np.ndarray:
        """Which positions are real, (batch, length), or (batch, choices, length) where each item has several
        sequences with padding of their own."""
        tensor = self.tensor.detach()
        if self.lengths:
            return np.arange(self.lengths)[None, :] < tensor.cpu().numpy()[:, None]
        if self.token is not None:
            return (tensor != self.token).cpu().numpy()
        tensor = tensor.reshape(squeezed(tensor)) if tensor.dim() > 2 else tensor
        array = (
            (tensor.float() if tensor.is_floating_point() else tensor)
            .cpu()
            .numpy()
            .repeat(self.rate, axis=-1)
        )
        if np.issubdtype(array.dtype, np.floating) and (array < 0).any():
            return array > -1e3
        marked = np.asarray(array, bool)
        return np.logical_not(marked) if self.hides else marked

    def unpadded(self) -> torch.Tensor:
        """The mask with every position real."""
        if self.lengths:
            return torch.full_like(self.tensor, self.lengths)
        if self.token is not None:
            real = self.tensor[self.tensor != self.token]
            index = torch.arange(self.tensor.numel(), device=real.device).reshape(self.tensor.shape) % len(
                real
            )
            return torch.where(self.tensor == self.token, real[index], self.tensor)
        additive = self.tensor.is_floating_point() and bool((self.tensor < 0).any())
        return torch.full_like(self.tensor, 0 if self.hides or additive else 1)

    def padded(self, rows: slice | int, columns: slice) -> torch.Tensor:
        """The mask with these entries marked as padding."""
        tensor = self.tensor.clone()
        if self.lengths:
            if columns.start == 0:
                raise ValueError("lengths mark padding at the end only")
            tensor[rows] = columns.start
            return tensor
        if self.token is not None:
            tensor[rows, columns] = self.token
            return tensor
        additive = tensor.is_floating_point() and not self.hides and not bool((tensor == 1).all())
        if additive:
            tensor[rows, ..., columns] = torch.finfo(tensor.dtype).min
        else:
            tensor[rows, ..., columns] = torch.tensor(1 if self.hides else 0, device="cpu").to(tensor)
        return tensor


def squeezed(tensor: torch.Tensor) -> tuple[int, ...]:
    """The shape of a mask of keys, which may be given as (batch, 1, 1, keys)."""
    shape = tuple(tensor.shape)
    return (shape[0], shape[-1]) if len(shape) > 2 and all(size == 1 for size in shape[1:-1]) else shape


def mask_shapes(content: Content) -> list[tuple[int, ...]]:
    if content.batch_axis is None:
        return [(content.length,)]
    shapes: list[tuple[int, ...]] = [(content.batch, content.length)]
    if content.axis == 2 and content.batch_axis == 0 and content.pool is not None:
        shapes.append(tuple(content.tensor.shape[:3]))  # (batch, choices, length)
    return shapes


def says_mask(name: str) -> bool:
    """Whether the name of an input says that it marks positions to be left out, or to be kept."""
    last = name.rpartition(".")[2].lower()
    return any(word in last for word in ("mask", "valid", "pad", "keep", "ignore", "visible"))


def mask_like(name: str, tensor: torch.Tensor) -> bool:
    """Booleans, and numbers that only say yes or no or are added to scores to hide keys."""
    if tensor.dtype == torch.bool:
        return True
    if tensor.dim() < 2 or tensor.is_complex():
        return False
    if tensor.is_floating_point():
        off = tensor[tensor != 0]
        hidden = bool((off <= -1e3).all()) and tensor.dim() >= 2
        return bool(hidden and (off.numel() or "mask" in name)) or (
            "mask" in name and bool(((tensor == 0) | (tensor == 1)).all())
        )
    return says_mask(name) and "masked" not in name and bool(((tensor == 0) | (tensor == 1)).all())

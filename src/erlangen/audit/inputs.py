"""The inputs of a model: which of them have positions with content, and how to change that content."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn

from erlangen.errors import DataError

PADDING_MASKS = {
    # name of a mask -> (names of the inputs it is about, what marks a real position)
    "attention_mask": (("input_ids", "inputs_embeds", "input_features", "src", "x"), 1),
    "decoder_attention_mask": (("decoder_input_ids", "decoder_inputs_embeds"), 1),
    "src_key_padding_mask": (("src",), 0),
    "tgt_key_padding_mask": (("tgt",), 0),
    "key_padding_mask": (("query", "key", "x", "src"), 0),
}
_NOT_CONTENT = ("mask", "position", "token_type", "labels", "edge", "cache", "past", "bias", "batch", "index")
_SOUND = ("input_values", "input_features")
_EDGES = ("edge_index", "adj", "adj_t")


@dataclass(frozen=True, eq=False)
class Inputs:
    """One set of inputs of a model: positional and keyword arguments of its forward pass.

    `audit` takes a tensor (one argument), a tuple (positional arguments), a mapping (keyword arguments), an
    `Inputs`, or a *list* of any of these: several inputs, audited one after the other.

    >>> Inputs.of({"input_ids": torch.zeros(1, 4, dtype=torch.long)}).kwargs.keys()
    dict_keys(['input_ids'])
    """

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = None  # type: ignore[assignment]
    label: str = "given"
    """How these inputs came about, for reports: "given", "shorter", "padded", ..."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "kwargs", dict(self.kwargs or {}))

    @classmethod
    def of(cls, value: Any) -> Inputs:
        """Read what a user gave as the inputs of one forward pass."""
        if isinstance(value, Inputs):
            return value
        if isinstance(value, torch.Tensor):
            return cls((value,))
        if isinstance(value, Mapping):
            return cls((), {str(key): part for key, part in value.items()})
        if isinstance(value, tuple):
            return cls(value)
        raise DataError(
            "inputs must be a tensor, a tuple of arguments, a mapping of keyword arguments, an Inputs, or a "
            f"list of these; got {type(value).__name__}"
        )

    @classmethod
    def several(cls, value: Any) -> list[Inputs]:
        """A list means several inputs; anything else is one."""
        if isinstance(value, list):
            if not value:
                raise DataError("inputs is an empty list: give at least one input")
            return [
                replace(one, label=f"input {number}") if one.label == "given" and len(value) > 1 else one
                for number, one in enumerate(map(cls.of, value))
            ]
        return [cls.of(value)]

    def run(self, model: nn.Module) -> Any:
        """The model's output on these inputs."""
        return model(*self.args, **self.kwargs)

    def named(self, model: nn.Module) -> dict[str, Any]:
        """Every argument under the name that the model's forward gives it."""
        try:
            names = list(inspect.signature(model.forward).parameters)
        except (TypeError, ValueError):
            names = []
        names += [f"argument {i}" for i in range(len(names), len(self.args))]
        return {**dict(zip(names, self.args, strict=False)), **self.kwargs}

    def map(self, change: Any, label: str | None = None) -> Inputs:
        """The same inputs with every tensor replaced by change(tensor)."""
        return Inputs(
            tuple(_map(part, change) for part in self.args),
            {key: _map(part, change) for key, part in self.kwargs.items()},
            self.label if label is None else label,
        )


@dataclass(frozen=True, eq=False)
class Content:
    """One input whose positions carry content: token ids or vectors. The same tensor given twice is one."""

    name: str
    tensor: torch.Tensor
    axis: int
    """The axis of positions."""
    batch_axis: int | None
    pool: torch.Tensor | None
    """Token ids to change to, for token inputs."""
    patch: int | None = None
    """For images: positions are square patches of this many pixels a side."""

    @property
    def length(self) -> int:
        """How many positions there are."""
        if self.patch is not None:
            return (self.tensor.shape[-2] // self.patch) * (self.tensor.shape[-1] // self.patch)
        return self.tensor.shape[self.axis]

    @property
    def batch(self) -> int:
        """How many sequences there are."""
        return 1 if self.batch_axis is None else self.tensor.shape[self.batch_axis]

    def changed(self, positions: Any, item: int | None = None, seed: int = 0) -> torch.Tensor:
        """The tensor with other content at these positions, in one batch item or in all; shapes stay."""
        result = self.tensor.clone()
        fresh = self._fresh(seed)
        for position in np.atleast_1d(positions).tolist():
            where = self._where(position, item)
            result[where] = fresh[where]
        return result

    def _fresh(self, seed: int) -> torch.Tensor:
        """Other content everywhere: different at every position."""
        tensor = self.tensor
        generator = torch.Generator(device="cpu").manual_seed(1_000_003 + seed)
        if self.pool is not None:
            places = torch.searchsorted(self.pool, tensor.cpu().contiguous()).clamp(max=len(self.pool) - 1)
            known = self.pool[places] == tensor.cpu()
            # Moving on by 1 .. size - 1 places never ends where it began.
            moves = torch.randint(1, max(len(self.pool), 2), tensor.shape, generator=generator)
            moved = self.pool[(places + moves) % len(self.pool)]
            return torch.where(known, moved, self.pool[moves % len(self.pool)]).to(tensor)
        noise = torch.randn(tensor.shape, generator=generator, dtype=torch.float32)
        spread = float(tensor.detach().float().std(correction=0).nan_to_num()) or 1.0
        return tensor + (noise * spread).to(tensor)

    def _where(self, position: int, item: int | None) -> tuple[Any, ...]:
        where: list[Any] = [slice(None)] * self.tensor.dim()
        if item is not None and self.batch_axis is not None:
            where[self.batch_axis] = item
        if self.patch is not None:
            row, column = divmod(position, self.tensor.shape[-1] // self.patch)
            where[-2] = slice(row * self.patch, (row + 1) * self.patch)
            where[-1] = slice(column * self.patch, (column + 1) * self.patch)
        else:
            where[self.axis] = position
        return tuple(where)


def contents(model: nn.Module, inputs: Inputs) -> list[Content]:
    """The inputs with positions: integer tensors as token ids, (batch, length, dim) or (length, dim) vectors.

    Masks, positions, labels and edges are told by their names. Images are split into the patches of the
    model's patch embedding. Tensors passed more than once (query = key = value) count once.
    """
    found: list[Content] = []
    named = inputs.named(model)
    graph = any(key in _EDGES for key in named)
    sequence_first = _sequence_first(model)
    for name, value in named.items():
        if (
            not isinstance(value, torch.Tensor)
            or any(word in name for word in _NOT_CONTENT)
            or name in _EDGES
        ):
            continue
        if name in _SOUND and not _frames_first(model, value):
            continue
        if any(value is content.tensor for content in found) or value.numel() == 0:
            continue
        if value.is_floating_point() and value.dim() == 4:
            patch = _patch_size(model)
            if patch is not None:
                found.append(Content(name, value, -1, 0, None, patch))
        elif value.is_floating_point() and value.dim() == 3:
            axis = 0 if sequence_first else 1
            found.append(Content(name, value, axis, 1 - axis, None))
        elif value.is_floating_point() and value.dim() == 2:
            found.append(Content(name, value, 0, None, None))
        elif value.dtype in (torch.int64, torch.int32) and value.dim() in (1, 2) and not graph:
            axis = value.dim() - 1
            found.append(Content(name, value, axis, None if axis == 0 else 0, _pool(model, value)))
    return found


def with_content(inputs: Inputs, content: Content, tensor: torch.Tensor) -> Inputs:
    """The inputs with this content replaced, wherever the tensor was passed."""
    return inputs.map(lambda part: tensor if part is content.tensor else part)


def real_positions(model: nn.Module, inputs: Inputs, content: Content) -> np.ndarray | None:
    """Which positions of each item are real, shape (batch, length); None when no padding is marked."""
    named = inputs.named(model)
    for mask, (about, real) in PADDING_MASKS.items():
        value = named.get(mask)
        if not isinstance(value, torch.Tensor) or content.name not in about:
            continue
        if tuple(value.shape) == (content.batch, content.length):
            array = value.detach().cpu().numpy()
            if np.issubdtype(array.dtype, np.floating):
                return array > -1e4 if real == 0 else array > 0
            return array.astype(bool) if real == 1 else ~array.astype(bool)
    return None


def _frames_first(model: nn.Module, sound: torch.Tensor) -> bool:
    """Whether sound is given as (batch, frames, features); samples and (batch, features, frames) are not."""
    bins = getattr(getattr(model, "config", None), "num_mel_bins", None)
    return sound.dim() == 3 and not (bins == sound.shape[1] != sound.shape[2])


def _sequence_first(model: nn.Module) -> bool:
    if not type(model).__module__.startswith("torch.nn"):
        return False
    return next(
        (not m.batch_first for m in model.modules() if isinstance(getattr(m, "batch_first", None), bool)),
        False,
    )


def _patch_size(model: nn.Module) -> int | None:
    for module in model.modules():
        if isinstance(module, nn.Conv2d) and module.stride == module.kernel_size and module.stride[0] > 1:
            return int(module.stride[0])
    return None


def _pool(model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    """Token ids that are surely valid and not special: those up to the largest one given."""
    config = getattr(model, "config", None)
    special: set[int] = set()
    for name, value in (vars(config) if config is not None else {}).items():
        if name.endswith("_token_id"):
            special.update(
                v for v in (value if isinstance(value, list | tuple) else [value]) if isinstance(v, int)
            )
    largest = max(int(tokens.max()), 1)
    pool = [token for token in range(largest + 1) if token not in special]
    return torch.tensor(pool if len(pool) > 1 else [0, 1])


def _map(value: Any, change: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return change(value)
    if type(value) in (tuple, list):
        return type(value)(_map(part, change) for part in value)
    if type(value) is dict:
        return {key: _map(part, change) for key, part in value.items()}
    return value

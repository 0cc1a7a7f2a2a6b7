"""Integers that may be lengths whatever they are called, and the shapes of buffers: `tile = 16`, a mask of
16 x 16, `if n > 16`.

Names do not tell a length for sure. What is surely none is left out: counts and ids by their names, widths by
their names where parameters have that dimension. All others may be lengths.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

import torch
from torch import nn

from erlangen.audit.sizes import entries_of, integer

LARGEST = 8192
"""Integers above are no lengths that anybody would try: vocabularies, the base of rotary positions."""
_LETTERS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_COUNTS = {
    "id", "ids", "layer", "head", "nhead", "nheads", "nlayer", "nlayers", "expert", "class", "label", "epoch",
    "seed", "version", "vocab", "vocabulary", "beam", "step", "depth", "top", "rank", "index", "idx", "theta",
    "padding", "level", "codebook", "bit", "quantizer", "branch", "kernel", "patch", "image", "dilation", "k",
    "scalar", "offset", "expand", "negative", "codevector", "suppress", "tdnn", "freq", "bin",
}  # fmt: skip
"""Words of names that count or name something other than positions; k is that of `top_k`."""
_WIDTHS = {
    "hidden", "dim", "width", "embed", "embd", "emb", "embedding", "channel", "feature", "d", "c", "ff",
    "ffn", "inner", "mlp", "intermediate", "state", "in", "out", "input", "output", "unit", "model", "rotary",
    "latent", "projection", "proj", "filter", "bottleneck", "lora", "dmodel",
    "nembd", "nf", "nx", "split", "shape",
    "normalized",
}  # fmt: skip
"""Words of names of features: such an integer is none of positions where a parameter has that dimension."""


def possible_sizes(model: nn.Module) -> list[tuple[str, int]]:
    """Every integer that a model holds and that may be a length, each once, the largest first.

    Attributes, configurations, shapes of tensors that are no parameters, and integers in the code of the
    forward passes of classes of the model's own. Modules of PyTorch itself hold no lengths.

    >>> model = nn.Sequential(nn.Linear(8, 8))
    >>> model.tile, model.hidden_size, model.num_layers = 16, 8, 12
    >>> model.register_buffer("mask", torch.ones(24, 24).tril())
    >>> possible_sizes(model)
    [('mask.shape', 24), ('tile', 16)]
    """
    widths = {size for parameter in model.parameters() for size in parameter.shape}
    found: dict[int, str] = {}
    for path, name, value in _held(model):
        sizes = _shape(value, widths) if isinstance(value, torch.Tensor) and value.dim() else None
        path = path if sizes is None else f"{path}.shape"
        for size in _integers(name, value, widths) if sizes is None else sizes:
            if 1 < size <= LARGEST:
                found.setdefault(size, path)
    return [(found[size], size) for size in sorted(found, reverse=True)]


def _held(model: nn.Module) -> Iterator[tuple[str, str, Any]]:
    yield from entries_of(model, skip=_of_torch)
    kinds = {type(module): name for name, module in reversed(list(model.named_modules()))}
    for kind, name in kinds.items():
        for cls in kind.__mro__:
            if cls.__module__.partition(".")[0] not in ("torch", "builtins", "transformers"):
                where = f"{name}.forward" if name else "forward"
                for function in vars(cls).values():
                    if isinstance(function, FunctionType) and function.__name__ != "__init__":
                        yield from ((said or where, word, value) for said, word, value in _in_code(function))


def _in_code(function: FunctionType) -> Iterator[tuple[str, str, Any]]:
    """Literals, which have no name, globals and cells that the code of a function reads."""
    waiting: list[CodeType] = [function.__code__]
    while waiting:
        code = waiting.pop()
        for value in code.co_consts:
            if isinstance(value, CodeType):
                waiting.append(value)
            elif integer(value) is not None:
                yield "", "", value
        for name in code.co_names:
            if integer(function.__globals__.get(name)) is not None:
                yield name, name, function.__globals__[name]
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            yield name, name, cell.cell_contents
        except ValueError:
            continue  # not filled yet


def _of_torch(module: nn.Module) -> bool:
    return type(module).__module__.startswith("torch.")


def _integers(name: str, value: Any, widths: set[int]) -> list[int]:
    values = value if isinstance(value, list | tuple) else [value]
    found = [number for number in map(integer, values) if number is not None]
    words = {word.lower() for word in _LETTERS.findall(name)}
    words |= {word.removesuffix("es") if word.endswith("sses") else word.removesuffix("s") for word in words}
    if words & _COUNTS:
        return []
    if words & _WIDTHS or {"n", "num"} & words:
        found = [size for size in found if not any(width % size == 0 for width in widths if size)]
    return found


def _shape(tensor: torch.Tensor, widths: set[int]) -> list[int]:
    """The sizes of a tensor that may be lengths: a last axis of numbers is one of features, except in a
    square."""
    shape = tuple(tensor.shape)
    square = len(shape) > 1 and shape[-1] == shape[-2]
    features = tensor.is_floating_point() and not square
    return [
        size
        for axis, size in enumerate(shape)
        if not (features and axis == len(shape) - 1 and any(width % size == 0 for width in widths if size))
    ]

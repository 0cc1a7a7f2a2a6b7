"""Integers that may be lengths whatever they are called, and the shapes of buffers: `tile = 16`, a mask of
16 x 16, `if n > 16`.

Names do not tell a length for sure. What is surely none is left out: counts and ids by their names, widths by
their names where parameters have that dimension. All others may be lengths.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from erlangen.audit.code_sizes import Code, of_library
from erlangen.audit.sizes import entries_of, integer

LARGEST = 8192
"""Integers above are no lengths that anybody would try: vocabularies, the base of rotary positions."""
_LETTERS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_COUNTS = {
    "id", "idx", "layer", "head", "nhead", "nlayer", "expert", "class", "label", "epoch", "seed", "version",
    "vocab", "vocabulary", "beam", "theta", "codebook", "bit", "quantizer", "scalar", "codevector", "topk",
}  # fmt: skip
"""What a name ends with (`num_layers`, `pad_token_id`, `vocab_size`) that counts something other than
positions, or names it."""
_WIDTHS = {
    "hidden", "dim", "width", "embed", "embd", "emb", "embedding", "channel", "feature", "c", "ff", "ffn",
    "feedforward", "inner", "mlp", "intermediate", "state", "in", "out", "input", "output", "unit", "model",
    "rotary", "latent", "projection", "proj", "filter", "bottleneck", "lora", "rank", "dmodel", "nembd", "nf",
    "nx", "split", "shape", "normalized", "kernel", "patch", "bin", "freq", "mel", "level", "branch", "index",
}  # fmt: skip
"""What names of features end with, or begin with as `d_model`: such an integer is none of positions where a
parameter has that dimension."""
_PLAIN = {"size", "sizes", "count", "number", "num"}
"""Words that say nothing: `vocab_size` is of the vocabulary."""


def possible_sizes(model: nn.Module) -> list[tuple[str, int]]:
    """Every integer that a model holds and that may be a length, each once, the largest first.

    Attributes, configurations, shapes of tensors that are no parameters, and integers in the code of classes
    of the model's own and of the functions that these call: literals, defaults, globals, and products that
    are taken there. Modules of PyTorch itself hold no lengths.

    >>> class Model(nn.Sequential):
    ...     pass
    >>> model = Model(nn.Linear(8, 8))
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
    held = list(entries_of(model, skip=_of_torch))
    yield from held
    known = {name: number for _, name, value in held if (number := integer(value)) is not None}
    kinds = {type(module): name for name, module in reversed(list(model.named_modules()))}
    code = Code(known)
    for kind, name in kinds.items():
        where = f"{name}.forward" if name else "forward"
        for cls in kind.__mro__:
            if not of_library(cls):
                yield from ((said or where, word, value) for said, word, value in code.of(cls))
    for path, _, value in held:  # functions that modules hold
        yield from ((said or path, word, value) for said, word, value in code.of(value))


def _of_torch(module: nn.Module) -> bool:
    return type(module).__module__.startswith("torch.")


def _integers(name: str, value: Any, widths: set[int]) -> list[int]:
    values = value if isinstance(value, list | tuple) else [value]
    found = [number for number in map(integer, values) if number is not None]
    words = [word.lower() for word in _LETTERS.findall(name)]
    words = [word.removesuffix("es") if word.endswith("sses") else word.removesuffix("s") for word in words]
    plain = [word for word in words if word not in _PLAIN] or words or [""]
    last, before = plain[-1], plain[-2:-1]
    if last in _COUNTS or (last == "k" and before == ["top"]):
        return []
    if last in _WIDTHS or plain[0] in ("d", "dim") or last.endswith("dim"):
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

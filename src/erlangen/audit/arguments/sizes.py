"""The sizes that a model names for itself: where one lies beyond the input, nothing is known about what it
does."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from numbers import Integral
from typing import Any

import torch
from torch import nn

from erlangen.audit.arguments.containers import parts

_WORDS = (
    "window",
    "chunk",
    "block_size",
    "blocks_size",
    "stride",
    "segment",
    "local",
    "bucket",
    "span",
    "keep_",
)
_NOT = ("num_", "patch", "kernel", "dropout", "vocab", "head", "padding", "layers", "relative", "step")
_TAKEN = {nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.MaxPool1d, nn.MaxPool2d, nn.AvgPool1d, nn.AvgPool2d}


DEPTH, ENTRIES = 3, 2000
"""How deep objects and containers that a module holds are looked into, and at how many of their entries."""
_MACHINERY = {"_parameters", "_buffers", "_modules", "_orig_mod"}


def named_sizes(model: nn.Module) -> list[tuple[str, int]]:
    """Windows, chunks, blocks and strides that a model names, wherever it holds them.

    Configurations, integer attributes of modules and of their classes, defaults of `forward`, and the
    objects, dictionaries, lists and partial functions that modules hold.

    >>> import types
    >>> model = nn.Identity()
    >>> model.chunk_size, model.hidden_size = 16, 64
    >>> model.options = types.SimpleNamespace(scan={"stride": 8})
    >>> named_sizes(model)
    [('chunk_size', 16), ('options.scan.stride', 8)]
    """
    found: dict[str, int] = {}
    seen: set[tuple[str, int]] = set()
    for path, name, value in entries_of(model, lambda module: type(module) in _TAKEN):
        name = name.lower()
        size = _size(name, value)
        if size is not None and (name, size) not in seen:
            seen.add((name, size))
            found[path] = size
    return list(found.items())


def entries_of(model: nn.Module, skip: Callable[[nn.Module], bool]) -> Iterator[tuple[str, str, Any]]:
    """(path, name, value) of everything that a model's configuration and its modules hold, except those to
    skip."""
    looked: set[int] = set()
    config = getattr(model, "config", None)
    places = [("", config)] if config is not None else []
    places += [
        (f"{name}." if name else "", module) for name, module in model.named_modules() if not skip(module)
    ]
    for prefix, place in places:
        yield from _entries(place, prefix, 0, looked)


def _size(name: str, value: Any) -> int | None:
    """The size that an entry names; None if it names none."""
    if not any(word in name for word in _WORDS) or any(word in name for word in _NOT):
        return None
    values = value if isinstance(value, list | tuple) else [value]
    sizes = [number for number in map(integer, values) if number is not None and number > 1]
    return max(sizes, default=None)


def integer(value: Any) -> int | None:
    """The integer that a value is, also as a tensor of no axes; None for anything else."""
    if isinstance(value, torch.Tensor) and value.dim() == 0 and not value.is_floating_point():
        value = None if value.dtype == torch.bool or value.device.type == "meta" else int(value)
    return int(value) if isinstance(value, Integral) and not isinstance(value, bool) else None


def _entries(held: Any, prefix: str, depth: int, looked: set[int]) -> Iterator[tuple[str, str, Any]]:
    """(path, name, value) of every entry of an object and of what it holds; each object is looked into
    once."""
    if id(held) in looked or len(looked) > ENTRIES:
        return
    looked.add(id(held))
    for name, value in _named(held):
        yield f"{prefix}{name}", name, value
        if depth < DEPTH and _looked_into(value):
            yield from _entries(value, f"{prefix}{name}.", depth + 1, looked)


def _named(held: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(held, nn.Module):
        yield from ((name, value) for name, value in vars(held).items() if name not in _MACHINERY)
        yield from held._buffers.items()
        yield from _of_class(type(held))
    elif isinstance(held, partial):
        yield from held.keywords.items()
    else:
        yield from ((str(name), value) for name, value in parts(held)[:ENTRIES])
        if not isinstance(held, Mapping | list | tuple):
            yield from _of_class(type(held))


def _of_class(kind: type) -> Iterator[tuple[str, Any]]:
    """The attributes of classes of the model's own, and the defaults of their forward pass."""
    for cls in kind.__mro__:
        if cls.__module__.partition(".")[0] not in ("torch", "builtins", "transformers"):
            yield from ((name, value) for name, value in vars(cls).items() if not callable(value))
            forward = vars(cls).get("forward")
            code, given = getattr(forward, "__code__", None), getattr(forward, "__defaults__", None)
            if code is not None and given:
                names = code.co_varnames[: code.co_argcount]
                yield from zip(names[-len(given) :], given, strict=False)
            yield from (getattr(forward, "__kwdefaults__", None) or {}).items()


def _looked_into(value: Any) -> bool:
    return not isinstance(value, torch.Tensor | nn.Module) and (
        isinstance(value, partial) or bool(parts(value))
    )


_TOKENS = re.compile(r"(token|eos|bos|sep|cls|mask|pad|unk|eot|end|start)s?_(id|idx|index)(es|s)?$")


def named_tokens(model: nn.Module) -> Iterator[tuple[str, int]]:
    """(name, token) of every token that a model or its configuration names, as `eos_token_id`."""
    for _, name, value in entries_of(model, lambda module: type(module).__module__.startswith("torch.")):
        if _TOKENS.search(name.lower()):
            for one in value if isinstance(value, list | tuple) else [value]:
                number = integer(one)
                if number is not None:
                    yield name.lower(), number

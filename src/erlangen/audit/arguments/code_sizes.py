"""Integers in the code that a model runs: its own classes, and the functions and classes that these call."""

from __future__ import annotations

import dis
import re
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Any

import torch
from torch import nn

from erlangen.audit.arguments.sizes import entries_of, integer

_LIBRARIES = {"torch", "transformers", "numpy", "erlangen", "einops", "builtins", *sys.stdlib_module_names}
"""Code of these is not looked into: what they do follows what they are given."""
FOLLOWED = 500
"""So many functions and classes are looked into."""

Found = Iterator[tuple[str, str, Any]]


def of_library(what: Any) -> bool:
    """Whether a class or function is not of the model's own."""
    module = getattr(what, "__module__", None)
    return not isinstance(module, str) or module.partition(".")[0] in _LIBRARIES


class Code:
    """Looks into functions and classes, each once, and into what these call.

    `known` are integers by the names of attributes: products that are taken of them are sizes, too.

    >>> def scan(x, chunk=32):
    ...     return x[:chunk]
    >>> [(name, value) for _, name, value in Code({}).of(scan)]
    [('chunk', 32)]
    """

    def __init__(self, known: dict[str, int]) -> None:
        self._known, self._seen = known, set[int]()

    def of(self, what: Any) -> Found:
        """(where, name, value) of every integer in a function or in the methods of a class."""
        waiting = [what]
        while waiting and len(self._seen) < FOLLOWED:
            one = _unwrapped(waiting.pop())
            if id(one) in self._seen or not isinstance(one, FunctionType | type | partial):
                continue
            if one is not what and not isinstance(one, partial) and of_library(one):
                continue
            self._seen.add(id(one))
            if isinstance(one, partial):
                yield from ((name, name, value) for name, value in one.keywords.items())
                waiting += [one.func, *one.args]
            elif isinstance(one, type):
                if one is not what:
                    yield from ((name, name, value) for name, value in vars(one).items())
                waiting += [held for name, held in vars(one).items() if name != "__init__" or one is not what]
            else:
                yield from _defaults(one)
                yield from _cells(one)
                yield from self._in_code(one, waiting)

    def _in_code(self, function: FunctionType, waiting: list[Any]) -> Found:
        """Literals, which have no name, globals, and products; what is called is put among the waiting."""
        codes, space = [function.__code__], function.__globals__
        waiting += [_content(cell) for cell in function.__closure__ or ()]
        waiting += [getattr(function, "__wrapped__", None)]
        while codes:
            code = codes.pop()
            codes += [value for value in code.co_consts if isinstance(value, CodeType)]
            yield from (("", "", value) for value in code.co_consts if integer(value) is not None)
            named = [(name, space[name]) for name in code.co_names if name in space]
            named += [(name, sys.modules[name]) for name in _imported(code) if name in sys.modules]
            for _, one in list(named):
                named += _read_of(one, code)
            waiting += [value for _, value in named]
            yield from ((name, name, value) for name, value in named if integer(value) is not None)
            yield from self._products(code, space)

    def _products(self, code: CodeType, space: dict[str, Any]) -> Found:
        """Products of two integers, as `segment * memories`."""
        last: list[tuple[str, int | None]] = []
        for step in dis.get_instructions(code):
            if step.opname == "BINARY_OP" and step.argrepr in ("*", "*="):
                (a, x), (b, y) = last[-2:] if len(last) > 1 else (("", None), ("", None))
                last = last[:-2]
                if x is not None and y is not None:
                    yield f"{a} * {b}", "", x * y
                    last.append((f"{a} * {b}", x * y))
            elif step.opname == "LOAD_CONST":
                last.append((str(step.argval), integer(step.argval)))
            elif step.opname in ("LOAD_ATTR", "LOAD_GLOBAL", "LOAD_NAME"):
                value = space.get(step.argval) if step.opname != "LOAD_ATTR" else self._known.get(step.argval)
                last.append((step.argval, integer(value)))


def _read_of(held: Any, code: CodeType) -> list[tuple[str, Any]]:
    """What code reads of a module, a class, an object or a mapping: `ops.scan`, `CONFIG.block`."""
    if isinstance(held, Mapping):
        return [(key, held[key]) for key in code.co_consts if isinstance(key, str) and key in held]
    inside = getattr(held, "__dict__", {})
    return [(name, inside[name]) for name in code.co_names if name in inside]


def _imported(code: CodeType) -> list[str]:
    """The modules that a function imports when it runs."""
    return [step.argval for step in dis.get_instructions(code) if step.opname == "IMPORT_NAME"]


def _defaults(function: FunctionType) -> Found:
    code, given = function.__code__, function.__defaults__ or ()
    names = code.co_varnames[: code.co_argcount]
    named = [
        *zip(names[len(names) - len(given) :], given, strict=True),
        *(function.__kwdefaults__ or {}).items(),
    ]
    yield from ((name, name, value) for name, value in named)


def _cells(function: FunctionType) -> Found:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        yield name, name, _content(cell)


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None  # not filled yet


def _unwrapped(held: Any) -> Any:
    """The function behind a method, a static method, a property or a cache."""
    for _ in range(8):
        inner = (
            held.fget if isinstance(held, property)
            else held.__func__ if isinstance(held, MethodType | staticmethod | classmethod)
            else getattr(held, "__wrapped__", None) if not isinstance(held, FunctionType | type | partial)
            else None
        )  # fmt: skip
        if inner is None:
            return held
        held = inner
    return held


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

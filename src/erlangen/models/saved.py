"""Saving and loading: weights and configuration in one safetensors file, from which no code is ever run."""

from __future__ import annotations

import json
import reprlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from erlangen.errors import DataError, ErlangenError, ParameterError
from erlangen.relations import Bindable
from erlangen.relations.parse import parse

KEY = "erlangen"
"""The entry of the file's metadata that holds the model's name and configuration."""
SPARE = 8
"""How many times more parameters than tensors a model may register: tied and replaced ones count, too."""
SPARE_SIZE = 1 << 20
"""Largest size in a configuration beyond what the file has numbers for, such as a distance in a relation."""
SPARE_NUMBERS = 1 << 26
"""Numbers in buffers that a model may compute for itself beyond what the file holds."""

_REAL = {torch.float16, torch.bfloat16, torch.float32, torch.float64}
"""Types of numbers that may stand for one another: models are saved in half or double precision, too."""


class Saved(nn.Module):
    """A model made from its configuration alone, `Model(config)`, that can be saved and loaded.

    A subclass names its configuration (`Config`, a frozen dataclass of numbers, strings, tuples and
    relations), kept as `config`. The file holds the state as tensors, and model name and configuration
    as JSON in the metadata; a relation is stored as the expression that writes it.

    >>> import tempfile
    >>> import torch
    >>> from erlangen.models import GPT
    >>> model = GPT(GPT.Config(vocab_size=11, context=8, layers=1, heads=2, width=8)).eval()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save(f"{folder}/gpt.safetensors")
    ...     again = GPT.load(f"{folder}/gpt.safetensors").eval()
    >>> again.config == model.config, torch.equal(again(torch.arange(5)), model(torch.arange(5)))
    (True, True)
    """

    Config: ClassVar[type[Any]]

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config

    def save(self, path: str | Path, metadata: dict[str, str] | None = None) -> None:
        """Write weights and configuration to `path`; `metadata` adds texts of one's own to the file."""
        from safetensors.torch import save_file

        if metadata is not None and KEY in metadata:
            raise ParameterError(
                f"the metadata entry {KEY!r} holds the model's configuration; name it otherwise"
            )
        if not Path(path).parent.is_dir():
            raise DataError(f"{path}: no such directory as {Path(path).parent}")
        about = json.dumps({"model": type(self).__name__, "config": to_plain(self.config)})
        state = {name: tensor.detach().contiguous() for name, tensor in self.state_dict().items()}
        save_file(state, str(path), metadata={**(metadata or {}), KEY: about})

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Eval mode inside the block, and afterwards the mode that the model had."""
        training = self.training
        self.eval()
        try:
            yield
        finally:
            self.train(training)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The model in a file that `save` wrote, in its types of numbers, on the CPU and in training mode."""
        tensors, metadata = read_tensors(Path(path))
        config = _config(cls, Path(path), metadata.get(KEY), tensors)
        _require_fit(cls, config, tensors, str(path))
        model = cls(config)
        fill(model, tensors, str(path))
        return model


def read_tensors(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """The tensors and the metadata of a safetensors file.

    >>> read_tensors(Path("nowhere.safetensors"))
    Traceback (most recent call last):
    ...
    erlangen.errors.DataError: nowhere.safetensors: no such file
    """
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise DataError(f"{path}: no such file")
    try:
        with safe_open(str(path), framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, dict(file.metadata() or {})  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise DataError(f"{path}: not a safetensors file ({error})") from None


def to_plain(config: Any) -> dict[str, Any]:
    """A configuration as JSON data: relations become `{"relation": text}`, tuples lists.

    >>> from erlangen.models import ViT
    >>> from erlangen.relations import Grid
    >>> config = ViT.Config(8, 2, 1, layers=1, heads=2, width=8, classes=3, relation=Grid((4, 4), 1))
    >>> to_plain(config)["relation"]
    {'relation': 'Grid(shape=(4, 4), radius=(1, 1))'}
    """
    if not is_dataclass(config):
        raise ParameterError(f"a configuration is a dataclass, got {config!r}")
    return {field.name: _plain(getattr(config, field.name), field.name) for field in fields(config)}


def _plain(value: Any, name: str) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(item, name) for item in value]
    if isinstance(value, Bindable):
        text = repr(value)
        try:
            same = parse(text) == value
        except ErlangenError:
            same = False
        if not same:
            raise ParameterError(
                f"{name}={value!r} is too large to be written as text, so it cannot be saved"
            )
        return {"relation": text}
    raise ParameterError(
        f"{name}={value!r} cannot be saved: a configuration holds numbers, texts and relations"
    )


def from_plain(kind: type[Any], plain: dict[str, Any]) -> Any:
    """The configuration that `to_plain` wrote.

    >>> from erlangen.models import GPT
    >>> config = GPT.Config(vocab_size=11, context=8, layers=1, heads=2, width=8)
    >>> from_plain(GPT.Config, to_plain(config)) == config
    True
    """
    return kind(**{name: _value(value) for name, value in plain.items()})


def _value(plain: Any) -> Any:
    if isinstance(plain, list):
        return tuple(map(_value, plain))
    if isinstance(plain, dict):
        return parse(plain["relation"])
    return plain


def _config(model: type[Saved], path: Path, about: str | None, tensors: dict[str, Any]) -> Any:
    name = model.__name__
    if about is None:
        raise DataError(f"{path}: a safetensors file, but not one written by {name}.save")
    try:
        told = json.loads(about)
        found, plain = told["model"], dict(told["config"])
        if found != name:
            raise DataError(f"{path} holds a {found}; use {found}.load")
        _require_modest(model, plain, tensors, str(path))
        return from_plain(model.Config, plain)
    except DataError:
        raise
    except ErlangenError as error:
        raise DataError(f"{path}: the configuration of {name} cannot be read ({error})") from None
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, MemoryError) as error:
        raise DataError(f"{path}: the configuration of {name} cannot be read ({error})") from None


def _require_modest(kind: type[Saved], plain: dict[str, Any], tensors: dict[str, Any], where: str) -> None:
    """Raise `DataError` for numbers that no configuration of such a file has, before one is made of them.

    A configuration may bind its relation to its sizes, which takes memory for each position.
    """
    most = SPARE * sum(tensor.numel() for tensor in tensors.values()) + SPARE_SIZE
    for name, value in plain.items():
        for number in value if isinstance(value, list) else [value]:
            if isinstance(number, int) and abs(number) > most:
                raise DataError(
                    f"{where}: {name}={reprlib.repr(number)} is larger than any {kind.__name__} of its "
                    "tensors has"
                )


def _require_fit(kind: type[Saved], config: Any, tensors: dict[str, Any], where: str) -> None:
    """Raise `DataError` unless the tensors fill the model that the configuration describes.

    The model is first built without memory: a configuration from outside may describe one of any size.
    """
    most, thread, made = SPARE * (len(tensors) + SPARE), threading.get_ident(), count(1)
    too_large = f"{where}: the configuration describes a larger {kind.__name__} than the file has tensors for"

    held = sum(tensor.numel() for tensor in tensors.values())

    def bounded(module: nn.Module, name: str, parameter: Any) -> None:
        if threading.get_ident() != thread:
            return
        if next(made) > most or (parameter is not None and parameter.numel() > SPARE * (held + SPARE)):
            raise DataError(too_large)

    hook = register_module_parameter_registration_hook(bounded)
    try:
        with torch.device("meta"):
            model = kind(config)
    except (ErlangenError, RuntimeError, ValueError, TypeError, ArithmeticError, MemoryError) as error:
        raise DataError(f"{where}: no {kind.__name__} can be made of its configuration ({error})") from None
    finally:
        hook.remove()
    _compare(model, tensors, where)
    if sum(buffer.numel() for buffer in model.buffers()) > SPARE * held + SPARE_NUMBERS:
        raise DataError(too_large)


def fill(model: nn.Module, tensors: dict[str, Any], where: str) -> None:
    """Put tensors into a model under exactly its names and shapes, keeping their types of numbers.

    >>> fill(nn.Linear(2, 1), {}, "the file")
    Traceback (most recent call last):
    ...
    erlangen.errors.DataError: the file does not fit Linear: missing ['bias', 'weight'], unknown []
    """
    _compare(model, tensors, where)
    model.load_state_dict(tensors, assign=True)


def _compare(model: nn.Module, tensors: dict[str, Any], where: str) -> None:
    wanted = model.state_dict()
    missing, unknown = wanted.keys() - tensors.keys(), tensors.keys() - wanted.keys()
    if missing or unknown:
        raise DataError(
            f"{where} does not fit {type(model).__name__}: missing {_first(missing)}, "
            f"unknown {_first(unknown)}"
        )
    for name, tensor in wanted.items():
        if tensors[name].shape != tensor.shape:
            raise DataError(
                f"{where}: {name} has shape {tuple(tensors[name].shape)}, expected {tuple(tensor.shape)}"
            )
        alike = _REAL if tensor.dtype in _REAL else {tensor.dtype}
        if tensors[name].dtype not in alike:
            raise DataError(
                f"{where}: {name} has type {_type(tensors[name].dtype)}, "
                f"expected {' or '.join(sorted(map(_type, alike)))}"
            )


def _type(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _first(names: set[str], most: int = 8) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{sorted(names)[:most]}{more}"

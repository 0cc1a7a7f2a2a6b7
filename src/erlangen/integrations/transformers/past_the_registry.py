"""Which models of transformers compute attention past its registry, so that registering changes nothing."""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

import torch
from torch import nn

from erlangen.caches import cached
from erlangen.errors import ParameterError

MODELS = "transformers.models."

WEIGHING = {"softmax", "Softmax", "scaled_dot_product_attention", "multi_head_attention_forward"}
"""The names by which an attention class weighs values itself."""


def check_registry(config: Any) -> None:
    """Raise where the models of a configuration compute attention themselves, past the registry.

    They take any `attn_implementation` and go on as before, so that nothing would tell that erlangen is not
    used.

    >>> import transformers
    >>> from transformers.models.bloom import modeling_bloom
    >>> check_registry(transformers.BloomConfig())
    Traceback (most recent call last):
    ...
    erlangen.errors.ParameterError: models of type 'bloom' compute attention themselves, not through the
    attention registry of transformers: attn_implementation="erlangen" would change nothing; use "eager"
    """
    if _past(type(config).__module__.replace(".configuration_", ".modeling_")):
        raise _refusal(config)


def check_model(model: Any, built: bool) -> None:
    """Raise where a model computes attention past the registry, and warn where some of its modules do.

    A model that is not `built` yet has no modules to be asked: then all of its file are named.
    """
    for cls in type(model).__mro__:
        if _past(cls.__module__):
            raise _refusal(model.config)
    inside = {type(module).__name__ for module in model.modules()} if built else None
    names = [
        name
        for file in dict.fromkeys(cls.__module__ for cls in type(model).__mro__)
        for name in _classes_past(file)
        if inside is None or name in inside
    ]
    if names:
        where = "" if built else ", where it has them,"
        warnings.warn(
            f'{type(model).__name__} is not on "erlangen" altogether: its {", ".join(names)}{where} '
            f"compute{'s' * (len(names) == 1)} attention past the registry of transformers, as before",
            stacklevel=5,
        )


def _refusal(config: Any) -> ParameterError:
    return ParameterError(
        f"models of type {config.model_type!r} compute attention themselves, not through the attention "
        'registry of transformers: attn_implementation="erlangen" would change nothing; use "eager"'
    )


@torch.compiler.assume_constant_result
def _past(name: str) -> bool:
    """Whether a module of transformers has attention classes of its own and does not know the registry, or
    looks implementations up in a table of its own (`FALCON_ATTENTION_CLASSES`)."""
    module = sys.modules.get(name)
    if not name.startswith(MODELS) or module is None:
        return False
    if name.startswith(f"{MODELS}timm_"):
        return True  # another library's models
    if any(value and key.endswith("ATTENTION_CLASSES") for key, value in vars(module).items()):
        return True
    registered = hasattr(module, "ALL_ATTENTION_FUNCTIONS")
    return not registered and any("Attention" in cls.__name__ for cls in _modules_of(module))


@cached(1024)
def _classes_past(name: str) -> tuple[str, ...]:
    """The classes that compute attention themselves, in a module of transformers that knows the registry."""
    if not name.startswith(MODELS):
        return ()
    return tuple(
        cls.__name__
        for cls in _modules_of(sys.modules[name])
        if ("Attention" in cls.__name__ or "Attn" in cls.__name__)
        and "ALL_ATTENTION_FUNCTIONS" not in (words := set(_words(cls)))
        and words & WEIGHING
    )


def _modules_of(module: Any) -> list[type[nn.Module]]:
    own = [value for value in vars(module).values() if getattr(value, "__module__", "") == module.__name__]
    return [value for value in own if isinstance(value, type) and issubclass(value, nn.Module)]


def _words(cls: type) -> Iterator[str]:
    """The names that the functions of a class use."""
    codes = [value.__code__ for value in map(inspect.unwrap, filter(callable, vars(cls).values()))
             if isinstance(value, FunctionType)]  # fmt: skip
    while codes:
        code = codes.pop()
        yield from code.co_names
        codes += [inner for inner in code.co_consts if isinstance(inner, CodeType)]

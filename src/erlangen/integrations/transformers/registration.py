"""Making `attn_implementation="erlangen"` known to transformers."""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Iterator
from functools import wraps
from types import CodeType, FunctionType
from typing import Any

import torch
from torch import nn

from erlangen.attention.cache import cached
from erlangen.errors import DataError, ParameterError

NAME = "erlangen"
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


def register() -> None:
    """Make `attn_implementation="erlangen"` work for every model that uses the attention registry.

    Registers the attention function and the mask function; calling it again changes nothing. A model that
    computes attention past the registry is then refused (`check_model`), where transformers would go on
    with its own attention. The mask
    function hands over relations, not queries x keys booleans: causal, sliding windows, chunks, packed
    sequences and padding are recognised; a mask function of the user's own is evaluated into a dense one.

    >>> import torch, transformers
    >>> register()
    >>> config = transformers.BertConfig(hidden_size=16, num_attention_heads=2, num_hidden_layers=1,
    ...                                  intermediate_size=16, vocab_size=9, attn_implementation="erlangen")
    >>> transformers.BertModel(config)(torch.tensor([[1, 2, 3]])).last_hidden_state.shape
    torch.Size([1, 3, 16])
    """
    try:
        from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
    except ImportError as error:
        raise DataError(
            "the attention registry needs transformers with AttentionInterface and AttentionMaskInterface: "
            "pip install 'transformers>=5'"
        ) from error
    from erlangen.integrations.transformers.forward import attention_forward
    from erlangen.integrations.transformers.relation_mask import relation_mask

    AttentionInterface.register(NAME, attention_forward)
    AttentionMaskInterface.register(NAME, relation_mask)
    _ask_models(PreTrainedModel)


def _ask_models(base: Any) -> None:
    """Let models that are to use erlangen be checked: those past the registry would never call it."""
    found = base.get_correct_attn_implementation
    if getattr(found, NAME, False):
        return

    @wraps(found)
    def checked(self: Any, requested_attention: str | None, is_init_check: bool = False) -> str:
        name = found(self, requested_attention, is_init_check)
        if name == NAME:
            check_model(self, built=not is_init_check)
        return name

    setattr(checked, NAME, True)
    base.get_correct_attn_implementation = checked

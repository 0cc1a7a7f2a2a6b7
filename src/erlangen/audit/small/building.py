"""Small transformers models of any type: rules and data, no code for single types.

A type is built by the first recipe that gives a model that runs: every size that has a usual name made small,
or, where the sizes of a configuration hang together in other ways, all widths divided by one factor.
"""

from __future__ import annotations

import copy
import importlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from erlangen.audit.small.sample_inputs import inputs_of
from erlangen.errors import DataError

NARROWER = 8
"""The factor by which all widths are divided: heads of 64 or 128 keep 8 or 16 features."""
WIDTHS = (
    "hidden", "dim", "embd", "embed", "width", "rank", "channels", "d_model", "d_ff", "d_kv", "ffn", "inner",
    "intermediate", "section", "size",
)  # fmt: skip
"""Parts of the names of widths."""
OTHERS = (
    "vocab", "patch", "image", "window", "kernel", "position", "positions", "token", "num", "n", "layer",
    "layers", "stride", "chunk", "block", "group", "groups", "codebook", "crop", "grid", "scale", "bins",
    "type", "state", "pool", "merge",
)  # fmt: skip
"""Words in the names of other sizes, which are left alone."""
FEW = {
    "num_hidden_layers": 2, "num_layers": 2, "num_decoder_layers": 2, "n_layer": 2, "n_layers": 2,
    "encoder_layers": 2, "decoder_layers": 2, "vocab_size": 64, "num_experts": 16, "num_local_experts": 16,
    "n_routed_experts": 16, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "decoder_start_token_id": 0, "max_position_embeddings": 512, "max_source_positions": 512,
    "max_target_positions": 512, "image_token_id": 10, "image_token_index": 10,
}  # fmt: skip
"""Counts that may be small whatever the widths are."""

LARGE = 10_000_000
"""A model of more parameters is not small."""

Recipe = Callable[[Any], Any]


def built(config_class: Any, n: int, recipes: list[Recipe]) -> tuple[nn.Module, dict[str, torch.Tensor]]:
    """The first model that runs, and inputs of length n for it; a DataError says what failed first."""
    failed: list[str] = []
    large: list[tuple[int, nn.Module, dict[str, torch.Tensor]]] = []
    for recipe in recipes:
        try:
            model = model_of(recipe(config_class)).eval()
        except Exception as error:
            failed.append(f"cannot be built small from its configuration ({_first_line(error)})")
            continue
        known = False
        for inputs in inputs_of(model, n):
            known = True
            try:
                with torch.no_grad():
                    model(**inputs)
                size = sum(one.numel() for one in model.parameters())
                if size <= LARGE:
                    return model, inputs
                large.append((size, model, inputs))  # another recipe may make it smaller
                break
            except Exception as error:
                failed.append(f"does not run on {', '.join(inputs)} ({_first_line(error)})")
        if not known:
            takes = ", ".join(sorted(inspect.signature(model.forward).parameters))
            failed.append(f"is built, but no inputs are known for {type(model).__name__}.forward({takes})")
    if large:
        return min(large, key=lambda one: one[0])[1:]
    told = [text for text in failed if not text.startswith("cannot be built")] or failed
    raise DataError(f"{told[0]}; write a factory that returns (model, inputs)")


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()  # some messages begin with an empty line
    return f"{type(error).__name__}: {lines[0] if lines else ''}"


def model_of(config: Any) -> nn.Module:
    """The base model of a configuration, also where transformers has no automatic class for it."""
    import transformers

    if type(config) in transformers.MODEL_MAPPING:
        return transformers.AutoModel.from_config(config)
    module = inspect.getmodule(type(config))
    name = "" if module is None else module.__name__.replace("configuration_", "modeling_")
    classes = [one for one in vars(importlib.import_module(name)).values() if isinstance(one, type)]
    own = [
        one
        for one in classes
        if issubclass(one, transformers.PreTrainedModel)
        and one.config_class is type(config)
        and "PreTrained" not in one.__name__
    ]
    if own:
        own.sort(key=lambda one: (not one.__name__.endswith("Model"), len(one.__name__)))
        return own[0]._from_config(config)
    stem = type(config).__name__.removesuffix("Config")
    parts: list[Any] = [
        one for one in classes if issubclass(one, nn.Module) and one.__name__ in (stem, f"{stem}Model")
    ]
    if not parts:
        raise DataError(f"{name} has no model for {type(config).__name__}")
    return parts[0](config)


def narrow(config_class: Any, images: bool = True) -> Any:
    """A configuration with all widths divided by one factor, and few layers; images of a few patches.

    >>> import transformers
    >>> narrow(transformers.LlamaConfig).hidden_size
    512
    """
    usual = config_class()
    chosen = dict(_narrower(_own(usual)))
    for name, size in FEW.items():
        given = usual.attribute_map.get(name, name)
        if isinstance(_get(usual, name), int) and settable(usual, given):
            chosen[given] = size
    patch = _get(usual, "patch_size")
    if images and isinstance(patch, int) and isinstance(_get(usual, "image_size"), int):
        chosen["image_size"] = 4 * patch
    one_of_each_kind(usual, chosen)
    for name in getattr(config_class, "sub_configs", {}):
        part = type(_get(usual, name))
        if getattr(part, "model_type", ""):
            chosen[name] = narrow(part, images).to_dict()
        else:
            chosen.pop(name, None)
    return config_class(**chosen)


def sectioned(config: Any, sections: tuple[int, ...]) -> Any:
    """The configuration with its rotary features split anew between time, height and width.

    Where the split is not given, models take one that fits their usual head size only.
    """
    for part in (config, *(_get(config, name) for name in getattr(config, "sub_configs", {}))):
        rotary = _get(part, "rope_parameters")
        if isinstance(rotary, dict) and "rope_theta" in rotary:
            rotary["mrope_section"] = list(sections)
    return config


def _own(config: Any) -> dict[str, Any]:
    """The entries of a configuration that it can be made of."""
    takes = inspect.signature(type(config).__init__).parameters
    every = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in takes.values())
    return {name: value for name, value in config.to_dict().items() if every or name in takes}


def _narrower(entries: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The entries that are widths, or hold some, made narrower."""
    for name, value in entries.items():
        if isinstance(value, dict) and "rope" in name:
            inner = dict(_narrower(value))
            if inner:
                yield name, {**value, **inner}
        elif any(part in name for part in WIDTHS) and not set(name.split("_")) & set(OTHERS):
            if isinstance(value, int) and not isinstance(value, bool) and value >= 32:
                yield name, max(value // NARROWER, 4)
            elif isinstance(value, list | tuple) and value and all(type(one) is int for one in value):
                yield name, _fewer(name, list(value))


def _fewer(name: str, widths: list[int]) -> list[int]:
    if max(widths) < 16:
        return widths
    few = [max(one // NARROWER, 1) for one in widths]
    if "section" in name:  # parts of one width
        few[0] += sum(widths) // NARROWER - sum(few)
    return few


def _get(config: Any, name: str) -> Any:
    """A value of a configuration; None where a property raises."""
    try:
        return getattr(config, name, None)
    except Exception:
        return None


def settable(usual: Any, name: str) -> bool:
    """Whether a configuration takes this value: some follow from others, and their setters refuse."""
    place = getattr(type(usual), name, None)
    if not isinstance(place, property):
        return True
    try:
        setattr(copy.copy(usual), name, getattr(usual, name))
    except Exception:
        return False
    return True


def one_of_each_kind(usual: Any, chosen: dict[str, Any]) -> None:
    """One layer of each kind at least, so that hybrid models show all of them."""
    given = usual.attribute_map.get("layer_types", "layer_types")
    kinds = _get(usual, given)
    every = isinstance(kinds, list) and kinds and len(kinds) == _get(usual, "num_hidden_layers")
    if every and settable(usual, given):
        chosen[given] = list(dict.fromkeys(kinds)) * (1 if len(set(kinds)) > 1 else 2)
        layers = usual.attribute_map.get("num_hidden_layers", "num_hidden_layers")
        if settable(usual, layers):
            chosen[layers] = len(chosen[given])

"""What `erlangen audit TARGET` audits: a transformers model type, or a factory in a file or a module."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from erlangen.audit.small.building import built, narrow, one_of_each_kind, sectioned, settable
from erlangen.audit.small.sample_inputs import inputs_of
from erlangen.errors import DataError, ParameterError

SIZES = {
    # Every name that some configuration gives a size -> a small value.
    "vocab_size": 64, "hidden_size": 32, "d_model": 32, "n_embd": 32, "dim": 32, "emb_dim": 32,
    "embedding_size": 32, "input_embedding_size": 32, "output_embedding_size": 32,
    "num_hidden_layers": 2, "num_layers": 2, "num_decoder_layers": 2, "n_layer": 2, "n_layers": 2,
    "encoder_layers": 2, "decoder_layers": 2, "num_attention_heads": 4, "num_heads": 4, "n_head": 4,
    "n_heads": 4,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
    "d_kv": 8,
    "intermediate_size": 64, "d_ff": 64, "hidden_dim": 64, "ffn_dim": 64, "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "n_inner": 64, "max_position_embeddings": 512, "n_positions": 512, "image_size": 32, "patch_size": 8,
    "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "num_experts_per_tok": 2,
    "moe_intermediate_size": 32, "projection_dim": 32, "attention_window": 8, "sliding_window": 8,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 0,
    "max_source_positions": 512,
    "max_target_positions": 512, "type_vocab_size": 2, "num_groups": 1, "query_pre_attn_scalar": 8,
    "cls_token_id": 3,
    "sep_token_id": 2, "mask_token_id": 4, "image_token_id": 10, "image_token_index": 10,
}  # fmt: skip
KEPT_WHEN_NONE = {"sliding_window", "n_inner", "num_key_value_heads", "head_dim"}
"""Sizes that a configuration may leave open; then they stay open."""


def resolve(target: str, n: int | None = None) -> tuple[nn.Module, Any]:
    """The model and inputs that a target names.

    - `transformers:MODEL_TYPE`: built from its configuration, made small, with random weights: no download;
    - `file.py:factory` or `package.module:factory`: a function without required arguments that returns
      (model, inputs), called with n=... if it takes `n` and a length was asked for. The file's folder, or the
      current directory, is on the path, so that neighbours are found as by `python file.py`.

    >>> resolve("gpt2")
    Traceback (most recent call last):
    ...
    erlangen.errors.ParameterError: TARGET is transformers:MODEL_TYPE, file.py:factory or
    package.module:factory; got 'gpt2'
    """
    place, colon, name = target.rpartition(":")
    if not colon or not place or not name:
        raise ParameterError(
            f"TARGET is transformers:MODEL_TYPE, file.py:factory or package.module:factory; got {target!r}"
        )
    if n is not None and n < 2:
        raise ParameterError(f"--n is the length of the sequence, at least 2; got {n}")
    if place == "transformers":
        return transformers_model(name, n)
    return _called(target, place, name, n)


def transformers_model(model_type: str, n: int | None = None) -> tuple[nn.Module, Any]:
    """A small model of a transformers model type with random weights, and inputs of length n for it.

    The length defaults to 32, more than the small windows, so that windows show.

    >>> model, inputs = transformers_model("gpt2", 10)
    >>> type(model).__name__, inputs["input_ids"].shape
    ('GPT2Model', torch.Size([2, 10]))
    """
    try:
        import transformers
    except ImportError as error:
        raise DataError("transformers is not installed: pip install 'erlangen[transformers]'") from error
    known: Any = transformers.CONFIG_MAPPING
    if model_type not in known:
        near = _near(model_type, list(known.keys()))
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise ParameterError(
            f"transformers {transformers.__version__} knows no model type {model_type!r}{hint}"
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        recipes = [
            small,
            lambda one: small(one, filled=True),
            lambda one: sectioned(small(one), (2, 1, 1)),
            lambda one: sectioned(small(one), (1, 1, 0)),
            narrow,
            lambda one: narrow(one, images=False),
        ]
        try:
            return built(known[model_type], n or 32, recipes)
        except DataError as error:
            raise DataError(f"transformers:{model_type} {error}") from error


def _near(written: str, known: list[str]) -> list[str]:
    """The known names that were probably meant, whatever the case, and for the names of classes and hubs too.

    >>> _near("GPT2", ["gpt2", "bert"]), _near("google/BertForMaskedLM", ["gpt2", "bert"])
    (['gpt2'], ['bert'])
    """

    def plain(name: str) -> str:
        return re.sub(r"[\W_]+", "", name.lower())

    by_plain = {plain(name): name for name in reversed(known)}
    last = written.rpartition("/")[2]
    stem = re.sub(r"(LMHead)?(Model|Config|For[A-Z]\w*)$", "", last) or last
    for name in (last, stem):
        if plain(name) in by_plain:
            return [by_plain[plain(name)]]
    return [by_plain[name] for name in get_close_matches(plain(stem), by_plain, 3)]


def small(config_class: Any, filled: bool = False) -> Any:
    """A configuration with every size that it knows made small, with `filled` also those that it leaves open.

    >>> import transformers
    >>> small(transformers.BertConfig).hidden_size
    32
    """
    usual = config_class()
    chosen: dict[str, Any] = {}
    for name, size in SIZES.items():
        given = usual.attribute_map.get(name, name)
        if not settable(usual, given):
            continue  # follows from other sizes
        try:
            value = getattr(usual, name)
        except Exception:
            continue  # a property may raise anything
        if value is None and name in KEPT_WHEN_NONE and not filled:
            continue
        chosen[given] = [size] * 2 if isinstance(value, list | tuple) else size
    for name in getattr(config_class, "sub_configs", {}):
        part = type(getattr(usual, name, None))  # the class that is meant where any may be given (AutoConfig)
        if getattr(part, "model_type", ""):
            chosen[name] = small(part, filled).to_dict()
    rotary = getattr(usual, "rotary_dim", None)
    if isinstance(rotary, int) and rotary > 8:
        chosen["rotary_dim"] = 4
    layers = getattr(usual, "attention_types", None)
    if layers is not None:  # GPT-Neo says its layers as [[kinds, times]]
        chosen["attention_types"] = [[["global", "local"], 1]]
    one_of_each_kind(usual, chosen)
    if hasattr(usual, "window_size") and isinstance(usual.window_size, int) and layers is not None:
        chosen["window_size"] = 8
    return config_class(**chosen)


def inputs_for(model: nn.Module, n: int) -> dict[str, torch.Tensor]:
    """The likeliest inputs for a transformers model, by the names its forward takes; they may not run."""
    for inputs in inputs_of(model, n):
        return inputs
    names = ", ".join(sorted(inspect.signature(model.forward).parameters))
    raise DataError(
        f"no inputs are known for {type(model).__name__}.forward({names}); "
        "write a factory that returns (model, inputs)"
    )


def _called(target: str, place: str, name: str, n: int | None) -> tuple[nn.Module, Any]:
    """Import the factory and call it, with its neighbours on the path all the while."""
    path = Path(place) if place.endswith(".py") else None
    if path is not None and not path.is_file():
        raise DataError(f"there is no file {place!r}")
    folder = Path.cwd() if path is None else path.resolve().parent
    with _first_on_path(folder):
        with _told(f"importing {place}", folder, path):
            module = importlib.import_module(place) if path is None else _executed(path)
        factory = getattr(module, name, None)
        if not callable(factory):
            near = get_close_matches(name, [one for one in vars(module) if callable(getattr(module, one))], 1)
            hint = f"; did you mean {place}:{near[0]}?" if near else ""
            raise DataError(f"{place} has no function {name!r}{hint}")
        if n is not None and not _takes_length(factory):
            raise ParameterError(f"--n {n} was given, but {target} takes no argument n")
        with _told(target, folder, path):
            made = factory(**({} if n is None else {"n": n}))
    if not isinstance(made, tuple) or len(made) != 2 or not isinstance(made[0], nn.Module):
        raise DataError(
            f"{target} must return (model, inputs) with a torch.nn.Module first, got {type(made).__name__}"
        )
    return made


@contextmanager
def _first_on_path(folder: Path) -> Iterator[None]:
    """The folder comes first on the path, as for `python file.py`, and afterwards last.

    It is not taken off: a forward pass may import a neighbour only when it runs. At the end it hides nothing.
    """
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        if str(folder) in sys.path:
            sys.path.remove(str(folder))
        if str(folder) not in sys.path:
            sys.path.append(str(folder))


def _executed(path: Path) -> ModuleType:
    """A file run as a module under its own name."""
    spec = importlib.util.spec_from_file_location(path.stem, path.resolve())
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    # Dataclasses and pickling look their module up by name; a module that has this name already keeps it.
    known = sys.modules.setdefault(path.stem, module)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        if known is module:
            sys.modules.pop(path.stem, None)
        raise
    return module


@contextmanager
def _told(doing: str, folder: Path, path: Path | None) -> Iterator[None]:
    """Whatever the target's own code raises becomes one sentence that names what is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise DataError(f"{doing} failed: {_missing(error, folder)}") from error
    except ImportError as error:
        if path is not None and "relative import" in str(error):
            hint = (
                f"; a file that imports relatively is a module of a package: audit "
                f"{_dotted(path)}:FACTORY from the folder that holds the package"
            )
            raise DataError(f"{doing} failed: {error}{hint}") from error
        raise DataError(f"{doing} failed: {type(error).__name__}: {error}") from error
    except SystemExit as error:
        # Otherwise a script that ends by itself would end the audit, and 0 reads as "holds".
        raise DataError(
            f"{doing} failed: it ended the program, sys.exit({error.code!r}); code that is to run only as a "
            'script belongs under if __name__ == "__main__"'
        ) from error
    except Exception as error:
        raise DataError(f"{doing} failed: {type(error).__name__}: {error}") from error


def _missing(error: ModuleNotFoundError, folder: Path) -> str:
    if error.name is None:
        return str(error)
    parent = error.name.rpartition(".")[0]
    if parent and parent in sys.modules and not hasattr(sys.modules[parent], "__path__"):
        return f"there is no module {error.name!r}: {parent} is a module, no package"
    inside = f"in the package {parent}" if parent in sys.modules else f"in {folder}, nor is it installed"
    near = error.name != "transformers" and get_close_matches(error.name.lower(), ["transformers"], 1, 0.85)
    hint = "; did you mean transformers:MODEL_TYPE?" if near else ""
    return f"there is no module {error.name!r} {inside}{hint}"


def _dotted(path: Path) -> str:
    """The name under which a file of a package is imported."""
    parts = [path.stem]
    for folder in path.resolve().parents:
        if not (folder / "__init__.py").is_file():
            break
        parts.insert(0, folder.name)
    return ".".join(parts if len(parts) > 1 else [path.resolve().parent.name, *parts])


def _takes_length(factory: Any) -> bool:
    try:
        takes = inspect.signature(factory).parameters
    except (TypeError, ValueError):
        return True  # nothing is known of it, so the call itself tells
    return "n" in takes or any(one.kind is inspect.Parameter.VAR_KEYWORD for one in takes.values())

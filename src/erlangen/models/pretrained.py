"""Weights of Hugging Face models: from a live model, or from a checkpoint directory, running no code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from erlangen.errors import DataError, ParameterError
from erlangen.models.saved import fill, read_tensors

_Model = TypeVar("_Model", bound=nn.Module)
_INDEX = "model.safetensors.index.json"
_PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json")


class Pretrained:
    """Configuration and tensors of a Hugging Face model, each option and tensor asked for by name.

    `source` is a live model, or a directory with `config.json` and `model.safetensors` (in one file or in
    shards). `prefix` is cut off the tensors' names, so that a base model and one with a head read the same.
    Nothing is downloaded or unpickled. Whoever reads says what it understands: `only` refuses options with
    other values, and `filled` refuses tensors that nobody took, for both would mean other numbers.

    >>> Pretrained("nowhere", "gpt2", prefix="transformer")
    Traceback (most recent call last):
    ...
    erlangen.errors.DataError: nowhere: no such directory; expected a checkpoint with config.json and
    model.safetensors (nothing is downloaded)
    """

    def __init__(self, source: Any, model_type: str, prefix: str) -> None:
        if isinstance(source, nn.Module) and hasattr(source, "config"):
            self.where, self.training = type(source).__name__, source.training
            config: Any = source.config
            self.config: dict[str, Any] = config.to_dict()
            tensors = {name: tensor.detach() for name, tensor in source.state_dict().items()}
        elif isinstance(source, (str, Path)):
            self.where, self.training = str(source), False
            self.config, tensors = _directory(Path(source), model_type)
        else:
            raise ParameterError(
                "from_transformers takes a Hugging Face model or the directory of a checkpoint, "
                f"got {type(source).__name__}"
            )
        found = self.config.get("model_type")
        if found != model_type:
            raise ParameterError(f"{self.where} is a model of type {found!r}, expected {model_type!r}")
        self.tensors = {name.removeprefix(f"{prefix}."): tensor for name, tensor in tensors.items()}

    def option(self, name: str, default: Any) -> Any:
        """The value of an option; `default` (that of transformers) where the file leaves it out."""
        return self.config.get(name, default)

    def only(self, name: str, *values: Any) -> Any:
        """The value of an option that must be one of `values`, of which the first is the default."""
        value = self.option(name, values[0])
        if value not in values:
            expected = " or ".join(map(repr, values))
            raise ParameterError(f"{self.where} has {name}={value!r}; only {expected} is supported here")
        return value

    def alike(self, *names: str, default: float) -> float:
        """The one value that several options share."""
        values = {name: self.option(name, default) for name in names}
        if len(set(values.values())) > 1:
            raise ParameterError(f"{self.where} has {values}; only one common value is supported here")
        return values[names[0]]

    def take(self, name: str) -> Tensor:
        """A copy of one tensor, which counts as read."""
        if name not in self.tensors:
            raise DataError(
                f"{self.where} has no tensor {name!r}; it has {', '.join(sorted(self.tensors)) or 'none'}"
            )
        return self.tensors.pop(name).clone()

    def linear(self, ours: str, theirs: str) -> dict[str, Tensor]:
        """Weight and (where there is one) bias of a linear map or a normalisation, under another name."""
        found = {f"{ours}.weight": self.take(f"{theirs}.weight")}
        if f"{theirs}.bias" in self.tensors:
            found[f"{ours}.bias"] = self.take(f"{theirs}.bias")
        return found

    def tied(self, name: str, to: Tensor) -> None:
        """Read a tensor that must be, where it is given at all, another name of `to`."""
        if name in self.tensors and not torch.equal(self.take(name), to):
            raise ParameterError(
                f"{self.where} has {name!r} apart from the embedding; only tied weights are supported here"
            )

    def layers(self, count: int, names: dict[str, str], theirs: str) -> dict[str, Tensor]:
        """The linear maps and normalisations of all layers, by our names of them and those in the file."""
        state: dict[str, Tensor] = {}
        for i in range(count):
            for ours, other in names.items():
                state |= self.linear(f"blocks.{i}.{ours}", f"{theirs}.{i}.{other}")
        return state

    def filled(self, model: _Model, state: dict[str, Tensor], unused: tuple[str, ...] = ()) -> _Model:
        """The model with this state, in the mode of its source; what is left begins or ends with `unused`."""
        left = [n for n in self.tensors if not n.startswith(unused) and not n.endswith(unused)]
        if left:
            raise ParameterError(
                f"{self.where} has tensors that {type(model).__name__} does not use: "
                f"{', '.join(sorted(left))}"
            )
        fill(model, state, self.where)
        return model.train(self.training)


def _directory(folder: Path, model_type: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    if not folder.is_dir():
        raise DataError(
            f"{folder}: no such directory; expected a checkpoint with config.json and model.safetensors "
            "(nothing is downloaded)"
        )
    config = _json(folder / "config.json")
    if (folder / "model.safetensors").is_file():
        return config, read_tensors(folder / "model.safetensors")[0]
    if (folder / _INDEX).is_file():
        shards = set(_json(folder / _INDEX).get("weight_map", {}).values())
        tensors: dict[str, Tensor] = {}
        for shard in sorted(shards):
            if Path(shard).name != shard:
                raise DataError(f"{folder / _INDEX}: the shard {shard!r} lies outside the directory")
            tensors |= read_tensors(folder / shard)[0]
        return config, tensors
    if any((folder / name).is_file() for name in _PICKLES):
        raise DataError(
            f"{folder} holds its weights as a pickle (pytorch_model.bin), which is never loaded because it "
            "can run code; load it in transformers and save it with save_pretrained, which writes safetensors"
        )
    raise DataError(f"{folder}: expected model.safetensors or {_INDEX}, found neither")


def _json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise DataError(f"{path}: not a JSON file ({error})") from None
    if not isinstance(found, dict):
        raise DataError(f"{path}: expected a JSON object, got {type(found).__name__}")
    return found

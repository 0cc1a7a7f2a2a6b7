"""Checkpoints: one safetensors file with the tensors, and all else as JSON in its header. No pickle."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from erlangen.errors import DataError
from erlangen.training.files import replacing

KIND = "erlangen training checkpoint 1"
"""What the header calls the format, so that another safetensors file is not taken for a checkpoint."""


def save(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Write tensors and JSON facts to one file, which is replaced only once it is complete.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "a.safetensors"
    >>> save(path, {"x": torch.tensor([1.0, 2.0])}, {"step": 3})
    >>> load(path)
    ({'x': tensor([1., 2.])}, {'step': 3})
    """
    from safetensors.torch import save_file

    # Tied weights share memory, which the format refuses: every name gets a copy of its own.
    copies = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    with replacing(path) as draft:
        save_file(copies, draft, metadata={"kind": KIND, "facts": json.dumps(facts)})


def load(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what `save` wrote; a `DataError` tells what is wrong with any other file.

    >>> load(Path("nowhere.safetensors"))
    Traceback (most recent call last):
    erlangen.errors.DataError: there is no checkpoint nowhere.safetensors
    """
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise DataError(f"there is no checkpoint {path}")
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise DataError(f"{path} is not a checkpoint, or is damaged: {error}") from None
    if header.get("kind") != KIND:
        raise DataError(f"{path} was not written by training: its header does not say {KIND!r}")
    try:
        facts = json.loads(header["facts"])
        if not isinstance(facts, dict):
            raise TypeError("they are no mapping")
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise DataError(f"{path} is damaged: its facts cannot be read ({str(error)[:200]})") from None
    return tensors, facts


def prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors under names that begin with `prefix.`.

    >>> prefixed("model", {"x": torch.tensor(1)})
    {'model.x': tensor(1)}
    """
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Those of the tensors whose names begin with `prefix.`, without it: the inverse of `prefixed`.

    >>> under("model", {"model.x": torch.tensor(1), "best.x": torch.tensor(2)})
    {'x': tensor(1)}
    """
    start = f"{prefix}."
    return {name[len(start) :]: tensor for name, tensor in tensors.items() if name.startswith(start)}


def packed(optimizer: torch.optim.Optimizer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The state of an optimizer, taken apart into tensors and JSON.

    >>> weight = torch.nn.Parameter(torch.ones(2))
    >>> optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9)
    >>> weight.sum().backward(); optimizer.step()
    >>> tensors, facts = packed(optimizer)
    >>> tensors
    {'0.momentum_buffer': tensor([1., 1.])}
    """
    state = optimizer.state_dict()
    tensors: dict[str, Tensor] = {}
    plain: dict[str, dict[str, Any]] = {}
    for index, entries in state["state"].items():
        for name, value in entries.items():
            if isinstance(value, Tensor):
                tensors[f"{index}.{name}"] = value
            else:
                plain.setdefault(str(index), {})[name] = value
    return tensors, {"plain": plain, "groups": state["param_groups"]}


def unpack(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Give an optimizer the state that `packed` took apart.

    >>> weight = torch.nn.Parameter(torch.ones(2))
    >>> optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9)
    >>> tensors, facts = packed(optimizer)
    >>> unpack(optimizer, {"0.momentum_buffer": torch.tensor([5.0, 6.0])}, facts)
    >>> optimizer.state[weight]["momentum_buffer"]
    tensor([5., 6.])
    """
    sizes = [weight.shape for group in optimizer.param_groups for weight in group["params"]]
    state: dict[int, dict[str, Any]] = {int(index): dict(values) for index, values in facts["plain"].items()}
    for key, tensor in tensors.items():
        index, _, name = key.partition(".")
        # An optimizer takes a state of any shape, and fails only when it takes a step.
        if not 0 <= int(index) < len(sizes) or tensor.shape not in (sizes[int(index)], torch.Size([])):
            raise DataError(
                f"{name} of shape {tuple(tensor.shape)} does not fit the weights of number {index}"
            )
        state.setdefault(int(index), {})[name] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": facts["groups"]})

"""Checkpoints: one safetensors file with the tensors, and all else as JSON in its header. No pickle."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Collection, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from erlangen.errors import DataError, ParameterError
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
    # A weight that no gradient has reached has no state: said here, it is told from one whose state is lost.
    weights = sum(len(group["params"]) for group in state["param_groups"])
    untouched = [index for index in range(weights) if not state["state"].get(index)]
    return tensors, {"plain": plain, "groups": state["param_groups"], "untouched": untouched}


def unpack(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Give an optimizer the state that `packed` took apart; the settings of its groups remain its own.

    A state that does not fit fails only when a step is taken: compare with `rehearsed` before.

    >>> weight = torch.nn.Parameter(torch.ones(2))
    >>> optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9)
    >>> tensors, facts = packed(optimizer)
    >>> unpack(optimizer, {"0.momentum_buffer": torch.tensor([5.0, 6.0])}, facts)
    >>> optimizer.state[weight]["momentum_buffer"]
    tensor([5., 6.])
    """
    state: dict[int, dict[str, Any]] = {int(index): dict(values) for index, values in facts["plain"].items()}
    for key, tensor in tensors.items():
        index, _, name = key.partition(".")
        state.setdefault(int(index), {})[name] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
    # torch casts a state to the type of its weight, but an optimizer may keep a finer one.
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    for index, entries in state.items():
        loaded = optimizer.state[weights[index]]
        for name, value in entries.items():
            if isinstance(value, Tensor) and loaded[name].dtype != value.dtype:
                loaded[name] = value.to(weights[index].device)


def rehearsed(
    optimizer: torch.optim.Optimizer, begun: bool, untouched: Collection[int] = ()
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What `packed` gives of an optimizer, once it has `begun` to take steps: names, shapes, types, settings.

    Only the optimizer knows its state, and makes it in its first step. A copy takes one, with gradients of
    zero for all weights but those of the numbers `untouched`.

    >>> optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1, momentum=0.9)
    >>> rehearsed(optimizer, begun=False)[0], rehearsed(optimizer, begun=True)[0]
    ({}, {'0.momentum_buffer': tensor([0., 0.])})
    """
    if not begun:
        return packed(optimizer)
    # Hooks, and the wrapper that a scheduler of torch puts around `step`, belong to the original.
    outside = ("step", "_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")
    sparse = isinstance(optimizer, torch.optim.SparseAdam)
    try:
        copy = object.__new__(type(optimizer))
        copy.__setstate__(deepcopy({name: v for name, v in vars(optimizer).items() if name not in outside}))
        weights = [weight for group in copy.param_groups for weight in group["params"]]
        for index, weight in enumerate(weights):
            zero = torch.zeros_like(weight) if weight.requires_grad and index not in untouched else None
            weight.grad = zero.to_sparse() if sparse and zero is not None else zero
        with torch.random.fork_rng(devices=[]):
            copy.step()
    except Exception as error:  # an optimizer of the user's may fail in any way
        raise ParameterError(
            "a run is resumed only if a copy of its optimizer can take a step with gradients of zero, which "
            f"fails here: {type(error).__name__}: {str(error)[:300]}"
        ) from None
    return packed(copy)


def settings(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of an optimizer's groups by name, but for the learning rate, which the schedule sets.

    What a state holds besides tensors is named, too, by its type: it changes from step to step.

    >>> optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1, momentum=0.9)
    >>> settings(packed(optimizer)[1])["momentum of the optimizer"]
    0.9
    """
    plain, groups = (json.loads(json.dumps(facts[part])) for part in ("plain", "groups"))
    found = {
        f"{name} of {f'group {number} of ' if number else ''}the optimizer": value
        for number, group in enumerate(groups)
        for name, value in group.items()
        if name != "lr"
    }
    for index, entries in plain.items():
        for name, value in entries.items():
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            found[f"the type of {index}.{name} of the optimizer"] = (
                "number" if number else type(value).__name__
            )
    return found


def described(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """Type and shape of every tensor, in words.

    >>> described({"x": torch.zeros(2, 3)})
    {'x': 'float32 (2, 3)'}
    """
    return {
        name: f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"
        for name, tensor in tensors.items()
    }


def agree(path: Path, saved: Mapping[str, Any], wanted: Mapping[str, Any], most: int = 8) -> None:
    """A `DataError` that names the differences, unless a checkpoint has what a run wants.

    >>> agree(Path("a"), {"steps": 10, "width": 8}, {"steps": 20, "width": 8})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    erlangen.errors.DataError: a is the checkpoint of another run, or was changed: steps is 10 there and 20
    here; ...
    """
    absent = "absent"
    pairs = [(name, saved.get(name, absent), wanted.get(name, absent)) for name in sorted({*saved, *wanted})]
    differing = [
        f"{name} is {_shown(there, here)} there and {_shown(here, there)} here"
        for name, there, here in pairs
        if there != here
    ]
    if differing:
        more = f", and {len(differing) - most} more differ" if len(differing) > most else ""
        raise DataError(
            f"{path} is the checkpoint of another run, or was changed: {', '.join(differing[:most])}{more}; "
            "resume with the settings it was begun with, or choose another place"
        )


def _shown(value: Any, other: Any) -> str:
    plain = isinstance(value, str) and len(value) < 100 and value != str(other)
    return str(value) if plain else reprlib.repr(value)

"""The value of a recorded chain of steps if all scores had been zero: the same steps, the same masks."""

from __future__ import annotations

from typing import Any

import torch

from erlangen.audit.capture.masking import leveled
from erlangen.audit.capture.tape import ADDING, Node, Ref, in_place, mapped, name_of


def replay(node: Node, memory: dict[int, torch.Tensor] | None = None, *, level: bool = True) -> torch.Tensor:
    """The value of a node if all scores had been zero: same steps, same masks, dropout off.

    Biases that do not mask are taken as zero, so that no edge is lost to underflow; without `level`
    they are kept, and the value tells the weights.
    """
    memory = {} if memory is None else memory
    if id(node) in memory:
        return memory[id(node)]
    if node.function is None:
        value = torch.zeros(node.shape, dtype=node.dtype, device=node.device)
        for bias in node.arguments[0]:
            value = value + (leveled(bias) if level else bias)
    else:

        def value_of(argument: Any) -> Any:
            return replay(argument.node, memory, level=level) if isinstance(argument, Ref) else argument

        args, kwargs = mapped(node.arguments, value_of)
        name = name_of(node.function)
        if name in ("dropout", "alpha_dropout", "dropout1d"):
            value = args[0]
        else:
            if level and name in ADDING and not node.weights:
                recorded = (*node.arguments[0], *node.arguments[1].values())
                subtracts = name in ("sub", "subtract", "isub") and isinstance(recorded[0], Ref)
                args, kwargs = (_level(part, recorded, -1 if subtracts else 1) for part in (args, kwargs))
            if in_place(node.function):
                args = (args[0].clone(), *args[1:])
            value = node.function(*args, **kwargs)
    memory[id(node)] = value
    return value


def _level(arguments: Any, recorded: tuple[Any, ...], sign: int) -> Any:
    """Level the arguments that were recorded as plain floating tensors (the biases, not the scores)."""
    plain = {id(value) for value in recorded if isinstance(value, torch.Tensor) and value.is_floating_point()}
    if isinstance(arguments, dict):
        return {k: leveled(v, sign) if id(v) in plain else v for k, v in arguments.items()}
    return tuple(leveled(value, sign) if id(value) in plain else value for value in arguments)

"""Keys by which contents are told apart: two tensors, or two functions, with equal keys are equal."""

from __future__ import annotations

from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import torch


class UnknownContent(Exception):
    """A function depends on something whose content cannot be told."""


def function_key(function: Any, depth: int = 4) -> Any:
    """Two functions with the same key compute the same: equal code, on equal captured values.

    Masks of FlexAttention are functions, made anew in every forward pass and for every layer.
    """
    if function is None:
        return None
    if type(function) is not FunctionType or depth == 0:
        raise UnknownContent
    code = function.__code__
    try:
        cells = tuple(_value_key(cell.cell_contents, depth) for cell in function.__closure__ or ())
    except ValueError:
        raise UnknownContent from None  # a cell that is still empty
    names = [name for name in code.co_names if name in function.__globals__]
    used = tuple((name, _value_key(function.__globals__[name], depth)) for name in names)
    inner = [part for part in code.co_consts if isinstance(part, CodeType)]
    if inner or function.__kwdefaults__:
        raise UnknownContent
    defaults = tuple(_value_key(value, depth) for value in function.__defaults__ or ())
    return code, cells, used, defaults


def _value_key(value: Any, depth: int) -> Any:
    if isinstance(value, torch.Tensor):
        return content_key(value)
    if value is None or isinstance(value, int | float | str):
        return type(value), value
    if isinstance(value, ModuleType | BuiltinFunctionType | torch.dtype | torch.device):
        return id(value)
    if isinstance(value, tuple | list):
        return tuple(_value_key(part, depth) for part in value)
    return function_key(value, depth - 1)


def content_key(tensor: torch.Tensor | None) -> Any:
    """Two tensors with the same key are equal, whatever memory they lie in."""
    if tensor is None:
        return None
    expanded = tensor[tuple(slice(0, 1) if step == 0 else slice(None) for step in tensor.stride())]
    return fingerprint(expanded), tensor.shape, tensor.stride(), tensor.dtype


def fingerprint(tensor: torch.Tensor) -> int:
    """A hash of the bits of a tensor."""
    flat = tensor.detach().contiguous().cpu().flatten()
    return hash(flat.view(torch.uint8).numpy().tobytes())

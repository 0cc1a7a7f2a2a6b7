"""A copy of a model in another precision, and operators that PyTorch has in single precision only, computed
in any: a copy in double must run."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

_HIGH = {
    torch.float32: torch.float64, torch.float16: torch.float64, torch.bfloat16: torch.float64,
    torch.complex64: torch.complex128, torch.complex32: torch.complex128,
}  # fmt: skip
_CASTS = {
    torch.Tensor.float: torch.float64, torch.Tensor.half: torch.float64,
    torch.Tensor.bfloat16: torch.float64, torch.Tensor.chalf: torch.complex128,
    torch.Tensor.cfloat: torch.complex128,  # pyright: ignore[reportAttributeAccessIssue]
}  # fmt: skip


def recast(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A tensor of numbers in a precision: complex ones stay complex, integers what they are.

    >>> recast(torch.zeros(1, dtype=torch.complex64), torch.float64).dtype
    torch.complex128
    """
    if tensor.is_complex():
        return tensor.to(torch.complex128 if dtype == torch.float64 else torch.complex64)
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


def copied(model: nn.Module, dtype: torch.dtype | None) -> nn.Module:
    """A copy of a model with its parameters and buffers in a precision: `Module.to` would make complex ones
    real.

    >>> layer = nn.Module()
    >>> layer.phase = nn.Parameter(torch.ones(1, dtype=torch.complex64))
    >>> copied(layer, torch.float64).phase.dtype
    torch.complex128
    """
    other = copy.deepcopy(model)
    return other if dtype is None else other._apply(lambda tensor: recast(tensor, dtype))


class AnyPrecision(TorchFunctionMode):
    """Runs grouped products (mixtures of experts) in the type of their operands.

    With `casts=False` the model's own casts to lower precision (`x.float()`, `softmax(..., dtype=...)`) give
    double precision: a model that rounds inside would round in a copy in double, too.

    >>> x, weight = torch.ones(3, 2).double(), torch.ones(2, 2, 4).double()
    >>> with AnyPrecision():
    ...     y = torch.nn.functional.grouped_mm(x, weight, offs=torch.tensor([1, 3], dtype=torch.int32))
    >>> y.shape, y.dtype
    (torch.Size([3, 4]), torch.float64)
    >>> with AnyPrecision(casts=False):
    ...     x.float().dtype, x.to(torch.bfloat16).dtype
    (torch.float64, torch.float64)
    """

    def __init__(self, casts: bool = True) -> None:
        super().__init__()
        self.casts = casts

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__name__", "") in ("grouped_mm", "_grouped_mm"):
            result = _grouped(*args, **kwargs)
            if result is not None:
                return result
        if not self.casts:
            if func in _CASTS:
                return args[0].to(_CASTS[func])
            args = tuple(_raised(one) for one in args)
            kwargs = {name: _raised(one) for name, one in kwargs.items()}
        return func(*args, **kwargs)


def _raised(value: Any) -> Any:
    """A floating or complex type of lower precision as double precision; everything else as it is."""
    return _HIGH.get(value, value) if isinstance(value, torch.dtype) else value


def _grouped(a: torch.Tensor, b: torch.Tensor, **options: Any) -> torch.Tensor | None:
    """Rows of `a` by group times the matrix of the group; None where that is not what is asked for."""
    ends = options.pop("offs", None)
    if a.dtype != torch.float64 or a.dim() != 2 or b.dim() != 3 or ends is None or any(
        value is not None for value in options.values()
    ):  # fmt: skip
        return None
    result = a.new_zeros(a.shape[0], b.shape[-1])
    start = 0
    for matrix, end in zip(b, ends.tolist(), strict=True):
        result[start:end] = a[start:end] @ matrix
        start = end
    return result


@contextmanager
def in_precision(dtype: torch.dtype, casts: bool) -> Iterator[None]:
    """Runs a copy in a precision: autocast leaves double as it is, so it must leave its copy in single, too;
    rounded to bfloat16 there, small changes would vanish, and with them the measure of rounding."""
    with AnyPrecision(casts), ExitStack() as stack:
        if dtype == torch.float32:
            for device in ("cpu", *(["cuda"] if torch.cuda.is_available() else [])):
                stack.enter_context(torch.autocast(device, enabled=False))
        yield

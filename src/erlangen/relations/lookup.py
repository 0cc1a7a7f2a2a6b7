"""Table look-ups that work alike on Python integers, NumPy arrays and torch tensors.

Torch is never imported here: a torch index can only exist if the caller has imported torch.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np


def is_torch(value: Any) -> bool:
    """Whether `value` is a torch tensor (without importing torch).

    >>> is_torch(np.arange(3))
    False
    """
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def indices(*values: Any) -> tuple[Any, ...]:
    """Each index as an array: torch tensors stay, everything else becomes a NumPy array."""
    return tuple(value if is_torch(value) else np.asarray(value) for value in values)


def take(table: np.ndarray, index: Any) -> Any:
    """`table[index]`, as torch when the index is torch.

    >>> take(np.array([10, 20]), np.array([1, 0]))
    array([20, 10])
    """
    if is_torch(index):
        return sys.modules["torch"].tensor(table, device=index.device)[index]
    return table[index]


def where(condition: Any, a: Any, b: Any) -> Any:
    """`a` where `condition`, else `b`, in the library of the condition."""
    return (sys.modules["torch"] if is_torch(condition) else np).where(condition, a, b)


def to_numpy(value: Any) -> np.ndarray:
    """Any array-like as NumPy; torch tensors are detached and brought to the CPU."""
    if is_torch(value):
        value = value.detach().cpu()
        return (value.float() if value.dtype.itemsize == 2 and value.is_floating_point() else value).numpy()
    return np.asarray(value)

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


def like(table: np.ndarray, index: Any) -> Any:
    """`table` in the library and on the device of `index`, so that `table[index]` works.

    >>> like(np.array([10, 20]), np.array([1, 0]))[1]
    np.int64(20)
    """
    return sys.modules["torch"].tensor(table, device=index.device) if is_torch(index) else table


def search(indptr: Any, starts: Any, stops: Any, steps: int, i: Any, j: Any) -> Any:
    """Whether key j lies in a run of query i: a branch-free binary search, elementwise.

    It takes the same `steps` for every pair and only indexes, compares and selects, so that it also runs
    under `vmap` and inside a FlexAttention `mask_mod`.
    """
    first = indptr[i]
    low, high = first, indptr[i + 1]
    for _ in range(steps):
        middle = (low + high) // 2
        some = low < high
        before = some & (starts[where(some, middle, middle * 0)] <= j)
        low = where(before, middle + 1, low)
        high = where(some & ~before, middle, high)
    found = low > first
    return found & (j < stops[where(found, low - 1, low * 0)])


def where(condition: Any, a: Any, b: Any) -> Any:
    """`a` where `condition`, else `b`, in the library of the condition."""
    return (sys.modules["torch"] if is_torch(condition) else np).where(condition, a, b)


def to_numpy(value: Any) -> np.ndarray:
    """Any array-like as NumPy; torch tensors are detached and brought to the CPU."""
    if is_torch(value):
        value = value.detach().cpu()
        return (value.float() if value.dtype.itemsize == 2 and value.is_floating_point() else value).numpy()
    return np.asarray(value)

"""Numbers as users give them, and table look-ups alike on Python integers, NumPy arrays and torch tensors.

Torch is never imported here: a torch index can only exist if the caller has imported torch.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from erlangen.errors import ParameterError, SizeError
from erlangen.relations import sizes


def is_torch(value: Any) -> bool:
    """Whether `value` is a torch tensor (without importing torch).

    >>> is_torch(np.arange(3))
    False
    """
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def indices(*values: Any) -> tuple[Any, ...]:
    """Each position as a signed 64-bit array, in torch if any of them is a tensor, else in NumPy.

    Differences of unsigned or narrow integers would wrap, so every integer type is widened first. Positions
    are smaller than 2^61 in size, which leaves room for differences and sums; others, and everything that
    is no integer, are refused.

    >>> indices(np.uint8(3), [250])
    (array(3), array([250]))
    >>> indices(2**63)
    Traceback (most recent call last):
    ...
    erlangen.errors.ParameterError: positions must be integers between -2^61 and 2^61, got 9223372036854775808
    """
    if not any(map(is_torch, values)):
        return tuple(map(_widened, values))
    torch = sys.modules["torch"]
    device = next(value.device for value in values if is_torch(value))
    return tuple(
        _widened_tensor(value) if is_torch(value) else torch.as_tensor(_widened(value), device=device)
        for value in values
    )


def _widened(value: Any) -> np.ndarray:
    array = to_numpy(value)
    if array.size == 0 and array.dtype == np.float64:  # an empty list has no integers to tell its type
        return array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise _not_positions(value if array.dtype == object else f"numbers of type {array.dtype}")
    if array.dtype.itemsize == 8 and array.size:
        for end in (array.min(), array.max()):
            if abs(int(end)) >= sizes.MAX_POSITION:
                raise _not_positions(end)
    return array.astype(np.int64, copy=False)


def _widened_tensor(tensor: Any) -> Any:
    torch = sys.modules["torch"]
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
        raise _not_positions(f"a tensor of {tensor.dtype}")
    if tensor.dtype.itemsize == 8 and readable(tensor):
        # The sign bit of an unsigned number is not a sign: beyond 2^63 it becomes negative, beyond -2^61.
        signed = tensor.to(torch.int64)
        outside = (signed >= sizes.MAX_POSITION) | (signed <= -sizes.MAX_POSITION)
        if tensor.dtype == torch.uint64:
            outside = outside | (signed < 0)
        if outside.any():
            raise _not_positions(tensor[outside][0].item())
    return tensor.to(torch.int64)


def readable(tensor: Any) -> bool:
    """Whether the numbers can be looked at: not inside `vmap` or a trace, where only shapes are known."""
    torch = sys.modules["torch"]
    if torch.compiler.is_compiling() or torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        return False
    return type(tensor) in (torch.Tensor, torch.nn.Parameter) and not tensor.is_meta and tensor.numel() > 0


def _not_positions(got: Any) -> ParameterError:
    return ParameterError(f"positions must be integers between -2^61 and 2^61, got {got}")


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
    """Any array-like as NumPy; torch tensors are detached and brought to the CPU. Half types become single.

    Sparse, nested and meta tensors have no array: they are refused. Inside `torch.func.grad` and `jvp` a
    tensor still has its numbers; inside `vmap` it has several, and a relation cannot depend on them.
    """
    if not is_torch(value):
        try:
            array = np.asarray(value)
        except (TypeError, ValueError, RuntimeError) as error:  # rows of unequal length, for one
            raise ParameterError(
                f"expected numbers in rows of equal length, got a {type(value).__name__} that NumPy cannot "
                f"read: {str(error)[:200]}"
            ) from None
        return array.astype(np.float32) if array.dtype == np.float16 else array
    torch = sys.modules["torch"]
    kind = "nested" if value.is_nested else "meta" if value.is_meta else str(value.layout)
    if value.is_nested or value.is_meta or value.layout != torch.strided:
        raise ParameterError(
            f"expected a dense tensor, got a {kind.removeprefix('torch.')} one of shape "
            f"{'' if value.is_nested else tuple(value.shape)}; write .to_dense(), or give its indices"
        )
    value = _unwrapped(value)
    with torch._C._DisableFuncTorch():  # a transform would wrap every result again
        value = value.detach().cpu().resolve_conj().resolve_neg()
        value = value.float() if value.dtype.itemsize < 4 and value.is_floating_point() else value
        try:
            return value.numpy()
        except RuntimeError as error:  # a tensor of a trace
            raise ParameterError(
                f"the numbers of a {type(value).__name__} cannot be read here: {error}"
            ) from None


def booleans(array: np.ndarray, what: str) -> np.ndarray:
    """A mask of booleans or of the integers 0 and 1 as booleans; `what` names it in the error.

    Floats are refused whatever they are: 0.0 lets read in a mask that is added to scores, and hides in one
    that multiplies the weights.

    >>> booleans(np.array([0, 1]), "FromMask(mask)")
    array([False,  True])
    >>> booleans(np.array([0.0, -np.inf]), "FromMask(mask)")
    Traceback (most recent call last):
    ...
    erlangen.errors.ParameterError: FromMask(mask) takes booleans or 0/1 integers, 1 = may be read, got
    float64; for an additive mask pass mask == 0, for one of 1.0 and 0.0 pass mask != 0
    """
    if array.dtype == bool or not array.size:
        return array.astype(bool)
    if array.dtype.kind not in "iu":
        raise ParameterError(
            f"{what} takes booleans or 0/1 integers, 1 = may be read, got {array.dtype}; "
            "for an additive mask pass mask == 0, for one of 1.0 and 0.0 pass mask != 0"
        )
    read = array != 0
    if (array != read).any():
        raise ParameterError(
            f"{what} takes booleans or 0/1 integers, 1 = may be read, got {array[array != read][0]}"
        )
    return read


def permutation(values: Any, length: int, what: str) -> np.ndarray:
    """`values` as a permutation of 0 .. length - 1; `what` names it in the error.

    >>> permutation([1.0, 0.0], 2, "permute(keys=...)")
    Traceback (most recent call last):
    ...
    erlangen.errors.ParameterError: permute(keys=...) needs a permutation of 0..1 in integers, got [1.0, 0.0]
    """
    array = to_numpy(values)
    whole = array.size == 0 or array.dtype.kind in "iu"
    if array.shape != (length,) or not whole or not np.array_equal(np.sort(array), np.arange(length)):
        shown = array.tolist() if array.size <= 20 else f"an array of shape {array.shape}"
        raise ParameterError(f"{what} needs a permutation of 0..{length - 1} in integers, got {shown}")
    return array.astype(np.int64)


def edge_array(edges: Any) -> np.ndarray:
    """Pairs (query, key) as an int64 array of shape (edges, 2), with a clear error for anything else."""
    try:
        pairs = to_numpy(edges if hasattr(edges, "__array__") else list(edges))
    except (TypeError, ValueError, OverflowError):
        raise ParameterError(
            f"edges must be pairs (query, key) of integers, got {type(edges).__name__} of something else"
        ) from None
    if pairs.size == 0:
        return np.empty((0, 2), np.int64)
    if pairs.ndim != 2 or pairs.shape[1] != 2:
        raise ParameterError(
            f"edges must be pairs (query, key), shape (edges, 2); got an array of shape {pairs.shape}"
        )
    if not np.issubdtype(pairs.dtype, np.integer):
        raise ParameterError(f"edges must be integers, got {pairs.dtype}")
    if pairs.dtype == np.uint64 and pairs.max() > np.iinfo(np.int64).max:
        raise ParameterError(f"edge index {pairs.max()} does not fit into 64 bits")
    return pairs.astype(np.int64, copy=False)


def integer_columns(maker: str, **given: Any) -> tuple[np.ndarray, ...]:
    """Equally long lists of integers as int64 arrays."""
    found = [to_numpy(values) for values in given.values()]
    for name, array in zip(given, found, strict=True):
        if array.ndim != 1 or array.shape != found[0].shape:
            shapes = ", ".join(f"{n} of shape {a.shape}" for n, a in zip(given, found, strict=True))
            raise ParameterError(f"{maker} takes lists of integers, all equally long; got {shapes}")
        if array.size and array.dtype.kind not in "iu":
            raise ParameterError(f"{maker}({name}=...) takes integers, got numbers of type {array.dtype}")
    return tuple(array if array.dtype == np.int64 else indices(array)[0] for array in found)


def outside(values: np.ndarray, bound: int) -> int:
    """The first of the values that is none of 0 .. bound - 1."""
    return int(values[(values < 0) | (values >= bound)][0])


def index_array(values: Any, bound: int, what: str) -> np.ndarray:
    """Indices below `bound` in any order, or a slice, as int64."""
    if isinstance(values, slice):
        values = np.arange(*values.indices(bound))
    array = to_numpy(values)
    if array.size == 0:
        return np.empty(0, np.int64)
    if array.dtype == bool or not np.issubdtype(array.dtype, np.integer) or array.ndim != 1:
        raise ParameterError(f"restrict({what}=...) takes a list of indices, got {values!r}")
    array = array.astype(np.int64)
    if array.min() < 0 or array.max() >= bound:
        raise SizeError(f"restrict({what}=...) names index {outside(array, bound)} of {bound} {what}")
    return array


def _unwrapped(tensor: Any) -> Any:
    """A tensor without the transforms of `torch.func` around it."""
    functorch = sys.modules["torch"]._C._functorch
    while functorch.is_functorch_wrapped_tensor(tensor):
        if functorch.is_batchedtensor(tensor):
            raise ParameterError(
                "these numbers differ between the items of a vmap, and a relation cannot depend on them: "
                "call without vmap, item by item"
            )
        if functorch.is_functionaltensor(tensor):
            sys.modules["torch"]._sync(tensor)
        tensor = functorch.get_unwrapped(tensor)
    return tensor

"""The numbers of a weighted relation: exact where they were given exactly, tensors where they are learned."""

from __future__ import annotations

from fractions import Fraction
from numbers import Rational, Real
from typing import Any

import numpy as np

from erlangen.errors import ParameterError
from erlangen.relations.lookup import is_torch, readable, to_numpy

PRINTED = 64
"""Tables of up to this many numbers print in full."""


def table(value: Any, what: str, dimensions: tuple[int, ...]) -> Any:
    """Numbers as an array with one of the allowed numbers of dimensions; a torch tensor stays one.

    Integers stay int64 and fractions stay fractions (an object array), so that questions about equality can
    be answered exactly; everything else becomes a float array. Numbers must be finite.

    >>> from fractions import Fraction
    >>> table([1, 2], "slopes", (1,)).dtype, table([0.5, 1], "slopes", (1,)).dtype
    (dtype('int64'), dtype('float64'))
    >>> table([Fraction(1, 3), 0.5], "slopes", (1,))
    array([Fraction(1, 3), Fraction(1, 2)], dtype=object)
    """
    shape = "a number" if dimensions == (0,) else "numbers in " + " or ".join(
        f"{d} dimension{'s' if d != 1 else ''}" for d in dimensions
    )  # fmt: skip
    learned = is_torch(value)
    if learned and not value.is_floating_point():
        raise ParameterError(f"{what} takes {shape}; a tensor must be floating-point, got {value.dtype}")
    given = value if learned else _array(value, what, shape)
    if given.ndim not in dimensions:
        raise ParameterError(f"{what} takes {shape}, got shape {tuple(given.shape)}")
    # Inside a transform or a trace of PyTorch there may be no numbers to look at.
    array = to_numpy(value) if learned and readable(value) else None if learned else given
    if array is not None and array.dtype != object and not np.isfinite(array).all():
        raise ParameterError(f"{what} takes finite numbers; what is not read belongs outside the relation")
    return given


def _array(value: Any, what: str, shape: str) -> np.ndarray:
    if isinstance(value, np.ndarray) and value.dtype.kind in "iuf":
        array = _integers(value) if value.dtype.kind in "iu" else np.array(to_numpy(value))
    else:
        try:
            array = np.array(value, dtype=object)
        except ValueError:
            raise ParameterError(f"{what} takes {shape}, all rows equally long; got {value!r}") from None
        numbers = array.ravel().tolist()
        if not all(isinstance(n, Real) and not isinstance(n, bool) for n in numbers):
            raise ParameterError(f"{what} takes {shape}, got {value!r}")
        if all(isinstance(n, (int, np.integer)) for n in numbers):
            array = _integers(array)
        elif any(isinstance(n, Rational) and not isinstance(n, (int, np.integer)) for n in numbers):
            if not all(np.isfinite(float(n)) for n in numbers):
                raise ParameterError(f"{what} takes finite numbers, got {value!r}")
            exact = np.empty(array.shape, object)
            exact.ravel()[:] = [Fraction(n if isinstance(n, Rational) else float(n)) for n in numbers]
            array = exact
        else:
            array = array.astype(np.float64)
    array.flags.writeable = False
    return array


def _integers(array: np.ndarray) -> np.ndarray:
    """Integers as int64; as Python's own where differences or doubles of them would not be exact."""
    if not array.size or max(abs(int(array.min())), abs(int(array.max()))) < 2**53:
        return array.astype(np.int64)
    whole = np.empty(array.shape, object)
    whole.ravel()[:] = [int(number) for number in array.ravel().tolist()]
    return whole


def with_heads(values: Any, dimensions: int) -> Any:
    """The table with a dimension of heads in front, where it was given without one.

    Tensors are kept as they were given and take it on at use: a stored view would not be a parameter.

    >>> with_heads(np.array([1.0, 2.0]), 2).shape, with_heads(np.array(3.0), 1).shape
    ((1, 2), (1,))
    """
    return values if len(values.shape) == dimensions else values[None]


def floats(values: Any) -> Any:
    """The numbers to compute with: float64, or the tensor as it is.

    >>> floats(np.array([1, 2]))
    array([1., 2.])
    """
    return values if is_torch(values) else values.astype(np.float64)


def exact(values: Any) -> np.ndarray:
    """The numbers to compare: integers, fractions or floats, in NumPy."""
    return to_numpy(values)


def _is_table(value: Any) -> bool:
    return isinstance(value, np.ndarray) or is_torch(value)


def same(a: Any, b: Any) -> bool:
    """Whether two tables hold equal numbers in equal shapes, or two other arguments are equal.

    >>> same(np.array([1, 2]), np.array([1.0, 2.0])), same(np.array([1]), np.array([1, 1]))
    (True, False)
    """
    if not (_is_table(a) or _is_table(b)):
        return a == b
    a, b = exact(a), exact(b)
    return a.shape == b.shape and bool((a == b).all())


def written(values: Any) -> str:
    """A table as one writes it, long or learned ones by their size; any other argument as it is.

    >>> written(np.array([[1, 2], [3, 4]])), written(np.zeros((8, 32)))
    ('[[1, 2], [3, 4]]', '<8 x 32 numbers>')
    """
    if not _is_table(values):
        return repr(values)
    if is_torch(values) or values.size > PRINTED:
        kind = "learned numbers" if is_torch(values) and values.requires_grad else "numbers"
        return f"<{' x '.join(map(str, values.shape)) or 1} {kind}>"
    return repr(values.tolist())


def beside(array: np.ndarray, values: Any) -> Any:
    """`array` in the library, on the device and in the type of `values`: integers stay integers.

    >>> beside(np.array([1, 2]), np.array([0.5]))
    array([1., 2.])
    """
    if not is_torch(values):
        return array.astype(np.float64)
    return values.new_tensor(array)


def take(values: Any, columns: np.ndarray) -> Any:
    """values[:, columns]; gradients flow through the look-up.

    >>> take(np.array([[5.0, 7.0]]), np.array([1, 1, 0]))
    array([[7., 7., 5.]])
    """
    if not is_torch(values):
        return values[:, columns]
    import torch

    return values[:, torch.from_numpy(columns).to(values.device)]

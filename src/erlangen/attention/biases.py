"""The weights of a weighted relation, as numbers added to the logits of one call."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from erlangen.attention.binding import Bound
from erlangen.errors import ParameterError, ShapeError


class LogitBias(NamedTuple):
    """`values` (1 or heads, entries) added to logits, in one of two orders.

    Toeplitz: queries + keys - 1 entries, pair (i, j) adds values[h, j - i + queries - 1]. Per edge: one
    entry for each related pair, in the order of `Neighborhoods.edges()`.
    """

    values: Tensor
    per_edge: bool = False

    def matrix(self, queries: int, keys: int, indices: Tensor | None) -> Tensor:
        """The bias of all pairs, (1 or heads, queries, keys); zero where none is given.

        `indices` are those of the related pairs, i * keys + j.

        >>> LogitBias(torch.tensor([[1.0, 2.0, 3.0]])).matrix(2, 2, None)
        tensor([[[2., 3.],
                 [1., 2.]]])
        """
        values = self.values
        if self.per_edge:
            assert indices is not None
            dense = values.new_zeros((values.shape[0], queries * keys)).index_copy(1, indices, values)
            return dense.unflatten(1, (queries, keys))
        rows, columns = (torch.arange(n, device=values.device) for n in (queries, keys))
        return values[:, columns - rows[:, None] + queries - 1]


def pair_indices(bound: Bound, device: str) -> Tensor | None:
    """The indices i * keys + j of the related pairs, in order, where all heads and items have the same."""
    if len(bound.distinct) > 1:
        return None

    def make() -> Tensor:
        edges = bound.distinct[0].edges()
        return torch.from_numpy(edges[:, 0] * bound.keys + edges[:, 1]).to(device)

    return bound.derived(("pair indices", device), make)


def bias_of(weighted: Any, bound: Bound | None, queries: int, keys: int, q: Tensor) -> LogitBias:
    """The bias of a weighted relation for one call; formed anew at each call, so that gradients reach it."""
    if torch.compiler.is_compiling():
        values = (_learned if _has_tensors(weighted) else _constant)(weighted, queries, keys)
        entries = values.shape[1]
    elif weighted.structured:
        values, entries = weighted.toeplitz(queries, keys), max(0, queries + keys - 1)
    else:
        if bound is None or len(bound.distinct) != 1:
            raise ParameterError(
                f"{weighted!r} has a bias for each edge: its support must be the same in all heads and items"
            )
        values, entries = weighted.per_edge(bound.distinct[0]), bound.distinct[0].num_edges
    if isinstance(values, np.ndarray):
        values = torch.from_numpy(values)
    if values.dim() != 2 or values.shape[0] not in (1, q.shape[1]) or values.shape[1] != entries:
        raise ShapeError(
            f"the bias of {weighted!r} has shape {tuple(values.shape)}; this call has {q.shape[1]} heads and "
            f"needs {entries} entries for each, or for all of them"
        )
    wide = torch.float64 if q.dtype == torch.float64 else torch.float32
    return LogitBias(values.to(q.device, wide), not weighted.structured)


def _values(weighted: Any, queries: int, keys: int) -> Tensor:
    with _disable_current_modes():
        return _values_now(weighted, queries, keys)


def _values_now(weighted: Any, queries: int, keys: int) -> Tensor:
    if weighted.structured:
        values = weighted.toeplitz(queries, keys)
    else:
        values = weighted.per_edge(weighted.support.on(queries, keys))
    return torch.from_numpy(values) if isinstance(values, np.ndarray) else values


# Weighted relations index their tables by NumPy, which a compiler cannot follow. Numbers are constants of the
# graph; a tensor may change, learned or not, and is read outside of it.
_constant: Any = torch.compiler.assume_constant_result(_values)
_learned: Any = torch.compiler.disable(_values_now)


@torch.compiler.assume_constant_result
def _has_tensors(weighted: Any) -> bool:
    whole = getattr(weighted, "whole", weighted)  # rows of decoding have the weights of the whole
    return any(isinstance(value, Tensor) for value in whole._arguments().values())

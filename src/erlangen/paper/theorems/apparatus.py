"""What the checks use: float64 layers, permutations of rows, all relations, the probe of T1, plain sums."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
import torch
from torch import Tensor

from erlangen import nn
from erlangen.attention.binding import clear_cache

WIDTH = 4
"""Dimension of the vectors in every check; scores stay of order 1, so that no softmax hides an edge."""


def layer(kind: str, *arguments: Any, seed: int = 0) -> Any:
    """A layer of `erlangen.nn` by name, in float64, with weights from a seed.

    >>> layer("SelfAttention").Q.weight.dtype
    torch.float64
    """
    clear_cache()  # a check must not pass on a relation that an earlier call left bound
    made = getattr(nn, kind)(WIDTH, *arguments).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) / 1.5)
    return made


def rows(n: int, seed: int = 1) -> Any:
    """n random vectors.

    >>> rows(3).shape
    torch.Size([3, 4])
    """
    return torch.randn(n, WIDTH, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def output(made: Any, *inputs: Any) -> Any:
    """The representations h, without the weights."""
    with torch.no_grad():
        return made(*inputs)[0]


def weights(made: Any, *inputs: Any) -> Any:
    """The attention weights alpha."""
    with torch.no_grad():
        return made(*inputs)[1]


def every_mask(n: int) -> np.ndarray:
    """Every relation on n positions, as masks of shape (2^(n^2), n, n).

    >>> every_mask(1).tolist()
    [[[False]], [[True]]]
    """
    codes = np.arange(2 ** (n * n))
    return (codes[:, None] >> np.arange(n * n) & 1).astype(bool).reshape(-1, n, n)


def act(permutation: Any, x: Any) -> Any:
    """(pi x)_{pi(i)} = x_i.

    >>> act([1, 2, 0], torch.tensor([[0.], [1.], [2.]])).ravel()
    tensor([2., 0., 1.])
    """
    moved = torch.empty_like(x)
    moved[torch.as_tensor(np.asarray(permutation))] = x
    return moved


def probe(made: Any, n: int, *more: Any) -> np.ndarray:
    """The relation of a black box, read off its Jacobian at zero (theorem T1), as an n x n mask.

    >>> probe(layer("MaskedAttention"), 3).astype(int).tolist()
    [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    """
    zero = torch.zeros(n, WIDTH, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(lambda x: made(x, *more)[0], zero)
    assert isinstance(jacobian, Tensor)
    return (jacobian.abs().amax(dim=(1, 3)) > 1e-9).numpy()


def equation(
    made: Any, x: Tensor, allowed: np.ndarray, context: Tensor | None = None, *, fill: float | None = None
) -> tuple[Tensor, Tensor]:
    """(h, alpha) by the defining sums, one pair at a time: exp of scaled inner products, divided by row sums.

    Pairs outside `allowed` are left out; with `fill` they get that score instead, as appendix B does.
    """
    source = x if context is None else context
    with torch.no_grad():
        q, k, v = made.Q(x), made.K(source), made.V(source)
    alpha = torch.zeros(len(x), len(source), dtype=torch.float64)
    for i in range(len(x)):
        scores = {
            j: float(q[i] @ k[j]) / sqrt(WIDTH) if allowed[i, j] else fill
            for j in range(len(source))
            if allowed[i, j] or fill is not None
        }
        top = max((s for s in scores.values() if s is not None), default=0.0)
        powers = {j: np.exp(s - top) for j, s in scores.items() if s is not None}
        for j, power in powers.items():
            alpha[i, j] = power / sum(powers.values())
    return alpha @ v, alpha

"""Kernels of the distance and of the angle between query and key."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

import torch
from torch import Tensor
from torch.nn.functional import normalize

from erlangen.attention.kernels.form import Form
from erlangen.attention.kernels.kernel import Kernel
from erlangen.errors import ParameterError


@dataclass(frozen=True, eq=False)
class Gaussian(Kernel):
    """k(q, k) = exp(-|q - k|^2 / (2 h^2)) with bandwidth h: attention is the Nadaraya-Watson estimate.

    Since |q|^2 is constant in a row, the weights are a softmax of (<q, k> - |k|^2 / 2) / h^2. The bandwidth
    may be a parameter, and is then learned. Positive; symmetric.

    >>> x = torch.tensor([[[0.0], [1.0]]])
    >>> from erlangen.attention import attend
    >>> attend(x, x, x, kernel=Gaussian(1.0))  # 1 : e^(-1/2)
    tensor([[[0.3775],
             [0.6225]]])
    """

    bandwidth: float | Tensor = 1.0
    symmetric = True
    full_precision = True

    def __post_init__(self) -> None:
        _positive(self.bandwidth, "Gaussian(bandwidth)")

    def score(self, q: Tensor, k: Tensor) -> Tensor:
        return (q - k).square().sum(-1) / (-2 * self.bandwidth**2)

    def form(self, dim: int) -> Form:
        return Form(1.0)

    def vectors(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        # |q - k|^2 as a difference of products loses the digits that |q| and |k| have before the point, so
        # that vectors far from the origin would get wrong weights in float32.
        q, k = q.double() / self.bandwidth, k.double() / self.bandwidth
        queries = torch.cat([q, torch.ones_like(q[..., :1])], -1)
        keys = torch.cat([k, k.square().sum(-1, keepdim=True) / -2], -1)
        return queries, keys, q.square().sum(-1) / -2


@dataclass(frozen=True, eq=False)
class Cosine(Kernel):
    """k(q, k) = exp(cos(q, k) / t) with temperature t; a zero vector has cosine 0. Positive; symmetric.

    The temperature may be a parameter, and is then learned.

    >>> q, k, v = torch.tensor([[[2.0, 0.0]]]), torch.tensor([[[5.0, 0.0], [0.0, 3.0]]]), torch.eye(2)[None]
    >>> from erlangen.attention import attend
    >>> attend(q, k, v, kernel=Cosine(1.0))  # e^1 : e^0
    tensor([[[0.7311, 0.2689]]])
    """

    temperature: float | Tensor = 1.0
    symmetric = True
    full_precision = True

    def __post_init__(self) -> None:
        _positive(self.temperature, "Cosine(temperature)")

    def score(self, q: Tensor, k: Tensor) -> Tensor:
        return (_direction(q) * _direction(k)).sum(-1) / self.temperature

    def matrix(self, q: Tensor, k: Tensor) -> Tensor:
        return _direction(q) @ _direction(k).mT / self.temperature

    def form(self, dim: int) -> Form:
        return Form(1.0)

    def vectors(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor, None]:
        # Rounded to half precision, directions would be off by more than a small temperature allows.
        q, k = (x if x.dtype == torch.float64 else x.float() for x in (q, k))
        return _direction(q) / self.temperature, _direction(k), None


def _direction(x: Tensor) -> Tensor:
    """x / |x|, zero for the zero vector. The largest entry is divided out first: squares of large or small
    ones leave the range of numbers."""
    if x.shape[-1] == 0:
        return x
    top = x.detach().abs().amax(-1, keepdim=True)
    return normalize(x / top.masked_fill(top == 0, 1.0), dim=-1)


def _positive(value: float | Tensor, what: str) -> None:
    value = value.detach() if isinstance(value, Tensor) else value
    if not (isfinite(value) and value > 0):
        raise ParameterError(f"{what} must be a positive number, got {value}")

"""Kernels of the distance and of the angle between query and key."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

import torch
from torch import Tensor
from torch.nn.functional import normalize

from erlangen.attention.kernels.base import Kernel
from erlangen.attention.kernels.form import Form
from erlangen.errors import ParameterError


@dataclass(frozen=True, eq=False)
class Gaussian(Kernel):
    """k(q, k) = exp(-|q - k|^2 / (2 h^2)) with bandwidth h: attention is the Nadaraya-Watson estimate.

    Since |q|^2 is constant in a row, the weights are a softmax of (<q, k> - |k|^2 / 2) / h^2. Positive;
    symmetric.

    >>> x = torch.tensor([[[0.0], [1.0]]])
    >>> from erlangen.attention import attend
    >>> attend(x, x, x, kernel=Gaussian(1.0))  # 1 : e^(-1/2)
    tensor([[[0.3775],
             [0.6225]]])
    """

    bandwidth: float = 1.0
    symmetric = True
    full_precision = True

    def __post_init__(self) -> None:
        _positive(self.bandwidth, "Gaussian(bandwidth)")

    def score(self, q: Tensor, k: Tensor) -> Tensor:
        return (q - k).square().sum(-1) / (-2 * self.bandwidth**2)

    def form(self, dim: int) -> Form:
        return Form(1 / self.bandwidth**2)

    def vectors(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k = (x if x.dtype == torch.float64 else x.float() for x in (q, k))  # squares need the digits
        queries = torch.cat([q, torch.ones_like(q[..., :1])], -1)
        keys = torch.cat([k, k.square().sum(-1, keepdim=True) / -2], -1)
        return queries, keys, q.square().sum(-1) / (-2 * self.bandwidth**2)


@dataclass(frozen=True, eq=False)
class Cosine(Kernel):
    """k(q, k) = exp(cos(q, k) / t) with temperature t; a zero vector has cosine 0. Positive; symmetric.

    >>> q, k, v = torch.tensor([[[2.0, 0.0]]]), torch.tensor([[[5.0, 0.0], [0.0, 3.0]]]), torch.eye(2)[None]
    >>> from erlangen.attention import attend
    >>> attend(q, k, v, kernel=Cosine(1.0))  # e^1 : e^0
    tensor([[[0.7311, 0.2689]]])
    """

    temperature: float = 1.0
    symmetric = True

    def __post_init__(self) -> None:
        _positive(self.temperature, "Cosine(temperature)")

    def score(self, q: Tensor, k: Tensor) -> Tensor:
        return (normalize(q, dim=-1) * normalize(k, dim=-1)).sum(-1) / self.temperature

    def matrix(self, q: Tensor, k: Tensor) -> Tensor:
        return normalize(q, dim=-1) @ normalize(k, dim=-1).mT / self.temperature

    def form(self, dim: int) -> Form:
        return Form(1 / self.temperature)

    def vectors(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor, None]:
        return normalize(q, dim=-1), normalize(k, dim=-1), None


def _positive(value: float, what: str) -> None:
    if not (isfinite(value) and value > 0):
        raise ParameterError(f"{what} must be a positive number, got {value}")

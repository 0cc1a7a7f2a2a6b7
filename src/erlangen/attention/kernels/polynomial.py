"""Polynomial kernels; those of odd degree are signed."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite, sqrt

from torch import Tensor

from erlangen.attention.kernels.form import Form, Map, number
from erlangen.attention.kernels.kernel import Kernel
from erlangen.errors import ParameterError


@dataclass(frozen=True, eq=False)
class Polynomial(Kernel):
    """k(q, k) = (scale <q, k> + offset)^degree; scale is 1 / sqrt(dim) by default.

    Symmetric. Positive if the degree is even: then weights are a distribution, zero where
    scale <q, k> = -offset. An odd degree is signed: weights still sum to 1, but may be negative or, where the
    sum is near zero, large.

    >>> Polynomial(2).positive, Polynomial(3).positive
    (True, False)
    >>> import torch
    >>> q, k, v = torch.tensor([[[1.0]]]), torch.tensor([[[1.0], [-3.0]]]), torch.eye(2)[None]
    >>> from erlangen.attention import attend
    >>> attend(q, k, v, kernel=Polynomial(2)), attend(q, k, v, kernel=Polynomial(1))  # 1 : 9, 1 : -3
    (tensor([[[0.1000, 0.9000]]]), tensor([[[-0.5000,  1.5000]]]))
    """

    degree: int
    offset: float = 0.0
    scale: float | None = None
    symmetric = True

    def __post_init__(self) -> None:
        if not isinstance(self.degree, int) or isinstance(self.degree, bool) or self.degree < 1:
            raise ParameterError(f"Polynomial(degree) must be an integer of at least 1, got {self.degree!r}")
        for name, value in (("offset", self.offset), ("scale", self.scale)):
            if value is not None and not isfinite(number(value, f"Polynomial({name})")):
                raise ParameterError(f"Polynomial({name}) must be a finite number, got {value}")

    @property
    def positive(self) -> bool:
        return self.degree % 2 == 0

    def _scale(self, dim: int) -> float:
        return 1 / sqrt(max(dim, 1)) if self.scale is None else float(self.scale)

    def weight(self, q: Tensor, k: Tensor) -> Tensor:
        return ((q * k).sum(-1) * self._scale(q.shape[-1]) + self.offset) ** self.degree

    def matrix(self, q: Tensor, k: Tensor) -> Tensor:
        return (q @ k.mT * self._scale(q.shape[-1]) + self.offset) ** self.degree

    def form(self, dim: int) -> Form | None:
        power = Map("log", float(self.degree), float(self.offset))
        return Form(self._scale(dim), power) if self.positive else None

"""Random features whose products are, on average, the kernel of softmax attention."""

from __future__ import annotations

from math import log, sqrt

import torch
from torch import Tensor

from erlangen.errors import ParameterError, ShapeError


class RandomFeatures:
    """Positive random features of the softmax kernel: E <phi(q), phi(k)> = exp(scale <q, k>).

        phi(x) = exp(W x' - |x'|^2 / 2) / sqrt(m),   x' = sqrt(scale) x,

    with m rows W ~ N(0, I), orthogonal in blocks of `dim` (which lowers the variance). The rows are drawn
    once, from `seed`, and do not change. scale is 1 / sqrt(dim) by default.

    >>> features = RandomFeatures(2, 4096, seed=0)
    >>> q, k = torch.tensor([1.0, 0.5]), torch.tensor([0.5, -1.0])
    >>> abs(float(features(q) @ features(k)) - 1.0) < 0.1  # <q, k> = 0
    True
    """

    positive = True

    def __init__(self, dim: int, count: int = 256, *, scale: float | None = None, seed: int = 0) -> None:
        if dim < 1 or count < 1:
            raise ParameterError(f"RandomFeatures needs a dim and a count of at least 1, got {dim}, {count}")
        if scale is not None and scale < 0:
            raise ParameterError(f"RandomFeatures(scale) must not be negative, got {scale}")
        self.dim, self.count, self.seed = dim, count, seed
        self.scale = 1 / sqrt(dim) if scale is None else float(scale)
        generator = torch.Generator().manual_seed(seed)
        normal = torch.randn(2, -(-count // dim), dim, dim, generator=generator, dtype=torch.float64)
        q, r = torch.linalg.qr(normal[0])
        # With these signs the directions are uniform among orthogonal matrices.
        directions = (q * r.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)).mT
        lengths = normal[1].norm(dim=-1, keepdim=True)
        self.rows = (directions * lengths).flatten(0, 1)[:count]

    def __repr__(self) -> str:
        return f"RandomFeatures({self.dim}, {self.count}, scale={self.scale}, seed={self.seed})"

    def log(self, x: Tensor) -> Tensor:
        """The logarithms of the features, (..., count)."""
        if x.shape[-1] != self.dim:
            raise ShapeError(f"{self} was given vectors of {x.shape[-1]} features")
        x = x * sqrt(self.scale)
        rows = self.rows.to(x.device, x.dtype)
        return x @ rows.mT - x.square().sum(-1, keepdim=True) / 2 - log(self.count) / 2

    def __call__(self, x: Tensor) -> Tensor:
        return self.log(x).exp()

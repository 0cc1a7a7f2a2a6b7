"""Linear attention: the kernel is a product of features, so sums over keys can be shared by all queries.

Shared sums and the map elu + 1: Katharopoulos et al., arXiv 2006.16236. Random features: Performers, arXiv
2009.14794."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import log, sqrt
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import elu

from erlangen.attention.kernels.form import Form, Map
from erlangen.attention.kernels.kernel import Kernel
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


def elu_plus_one(x: Tensor) -> Tensor:
    """elu(x) + 1: e^x below zero, 1 + x above; positive."""
    return elu(x) + 1


@dataclass(frozen=True, eq=False)
class Linear(Kernel):
    """k(q, k) = <phi(q), phi(k)>, so that sum_j k(q_i, k_j) v_j = phi(q_i)^T (sum_j phi(k_j) v_j^T).

    Over the full and the causal relation these sums are shared or grow by one term: O(n dim^2) instead of
    O(n^2 dim), exactly. Over other relations the same weights are computed edge by edge.

    `feature_map`: "elu" (elu + 1), a `RandomFeatures` (then the kernel approximates the softmax's), or a
    function (..., dim) -> (..., features). Symmetric. "elu" and `RandomFeatures` are positive; a function of
    one's own is if `positive_features=True` says so, and otherwise signed.

    >>> from erlangen.attention import attend, plan
    >>> from erlangen.relations import Causal
    >>> x = torch.randn(1, 2, 64, 8, generator=torch.Generator().manual_seed(0))
    >>> fast, exact = (attend(x, x, x, Causal(), kernel=Linear(), backend=b) for b in ("linear", "reference"))
    >>> bool((fast - exact).abs().max() < 1e-5), plan(x, x, x, Causal(), kernel=Linear()).backend
    (True, 'linear')
    """

    feature_map: str | RandomFeatures | Callable[[Tensor], Tensor] = "elu"
    positive_features: bool | None = None
    symmetric = True
    full_precision = True

    def __post_init__(self) -> None:
        known: Any = self.feature_map
        if not callable(known) and known != "elu":
            raise ParameterError(
                f"Linear(feature_map={known!r}) must be 'elu', RandomFeatures(...) or a function of a tensor"
            )
        if self.positive_features is not None and (known == "elu" or isinstance(known, RandomFeatures)):
            raise ParameterError("positive_features is for a function of one's own")

    @property
    def positive(self) -> bool:
        return (
            bool(self.positive_features)
            or not callable(self.feature_map)
            or isinstance(self.feature_map, RandomFeatures)
        )

    def features(self, x: Tensor) -> Tensor:
        """phi(x)."""
        return self.feature_map(x) if callable(self.feature_map) else elu_plus_one(x)

    def weight(self, q: Tensor, k: Tensor) -> Tensor:
        return (self.features(q) * self.features(k)).sum(-1)

    def matrix(self, q: Tensor, k: Tensor) -> Tensor:
        return self.features(q) @ self.features(k).mT

    def vectors(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """phi(q) and phi(k) up to factors constant in a row of queries, and the logarithm of these factors.

        Random features are exponentials: they are divided by their largest, which changes no weight.
        """
        q, k = (x if x.dtype == torch.float64 else x.float() for x in (q, k))
        if not isinstance(self.feature_map, RandomFeatures) or k.shape[2] == 0:
            return self.features(q), self.features(k), None
        queries, keys = self.feature_map.log(q), self.feature_map.log(k)
        most = queries.detach().amax(-1, keepdim=True)
        most_k = keys.detach().amax((-2, -1), keepdim=True)
        group = q.shape[1] // k.shape[1]
        shift = most.squeeze(-1) + most_k.squeeze(-1).repeat_interleave(group, 1)
        return (queries - most).exp(), (keys - most_k).exp(), shift

    def form(self, dim: int) -> Form | None:
        return Form(1.0, Map("log", 1.0)) if self.positive else None

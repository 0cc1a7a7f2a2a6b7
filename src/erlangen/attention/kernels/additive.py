"""Additive kernels: GAT, GATv2 and Bahdanau's."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

import torch
from torch import Tensor

from erlangen.attention.kernels.form import Form, Map, number
from erlangen.attention.kernels.kernel import Kernel, per_head
from erlangen.errors import ParameterError, ShapeError

_ACTIVATIONS = ("leaky_relu", "tanh")


@dataclass(frozen=True, eq=False)
class Additive(Kernel):
    """The kernel of a sum instead of a product of the query and the key, in two forms.

    - without a vector, k(q, k) = exp(leaky_relu(sum over d of q_d + k_d)). With dim = 1, q = <a, W x_i> and
      k = <a', W x_j> this is GAT.
    - with a vector a (dim,) or (heads, dim), k(q, k) = exp(sum over d of a_d act(q_d + k_d)): GATv2 with
      the leaky ReLU, Bahdanau's attention with `activation="tanh"`.

    `slope` is that of the leaky ReLU below zero. Positive; symmetric as a function of the two vectors (the
    projections that make q and k are what tells them apart).

    >>> q, k, v = torch.tensor([[[-1.0]]]), torch.tensor([[[0.0], [2.0]]]), torch.eye(2)[None]
    >>> from erlangen.attention import attend
    >>> attend(q, k, v, kernel=Additive(slope=0.0))  # e^0 : e^1
    tensor([[[0.2689, 0.7311]]])
    """

    vector: Tensor | None = None
    activation: str = "leaky_relu"
    slope: float = 0.2
    symmetric = True

    def __post_init__(self) -> None:
        if self.activation not in _ACTIVATIONS:
            raise ParameterError(
                f"Additive(activation={self.activation!r}) is not one of {', '.join(_ACTIVATIONS)}"
            )
        if not isfinite(number(self.slope, "Additive(slope)")):
            raise ParameterError(f"Additive(slope) must be a finite number, got {self.slope}")
        if self.vector is None and self.activation != "leaky_relu":
            raise ParameterError(f"Additive(activation={self.activation!r}) needs a vector")
        if self.vector is not None and self.vector.dim() not in (1, 2):
            raise ShapeError(
                f"Additive(vector) must have shape (dim,) or (heads, dim), got {tuple(self.vector.shape)}"
            )

    def check(self, heads: int, dim: int) -> None:
        if self.vector is not None and tuple(self.vector.shape) not in ((dim,), (heads, dim)):
            raise ShapeError(
                f"the vector of Additive has shape {tuple(self.vector.shape)}; q has {heads} heads of {dim}"
            )

    @property
    def full_precision(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.vector is None

    @property
    def _map(self) -> Map:
        return Map("cap", 1.0) if self.activation == "tanh" else Map("leaky", float(self.slope))

    def score(self, q: Tensor, k: Tensor) -> Tensor:
        if self.vector is None:
            return self._map(q.sum(-1) + k.sum(-1))
        total = q + k
        return (self._map(total) * per_head(self.vector.to(total.dtype), total)).sum(-1)

    def form(self, dim: int) -> Form:
        return Form(1.0, self._map, self.vector)

    def vectors(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor, None]:
        if self.vector is not None:
            return q, k, None
        q, k = (x if x.dtype == torch.float64 else x.float() for x in (q, k))  # sums need the digits
        q, k = q.sum(-1, keepdim=True), k.sum(-1, keepdim=True)
        return torch.cat([q, torch.ones_like(q)], -1), torch.cat([torch.ones_like(k), k], -1), None

    def of_head(self, head: int) -> Additive:
        if self.vector is None or self.vector.dim() == 1:
            return self
        return Additive(self.vector[head], self.activation, self.slope)

"""What the native kernels over tiles and edges take, and the same by differentiable PyTorch operations: for
derivatives that they do not have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from erlangen.attention.backends import gather, reference
from erlangen.attention.biases import LogitBias, pair_indices
from erlangen.attention.binding import Bound
from erlangen.attention.dropout import Drop
from erlangen.attention.kernels.form import KINDS, Map
from erlangen.attention.kernels.kernel import Kernel, per_head
from erlangen.attention.packing import PackedNeighborhoods


class PairInputs(NamedTuple):
    """The tensors: q (B, H, L, D), k and v (B, Hkv, S, D or Dv), and the parameters of their scores."""

    q: Tensor
    k: Tensor
    v: Tensor
    bias: Tensor | None = None
    vector: Tensor | None = None


class PairOptions(NamedTuple):
    """The numbers; `map`, `a` and `b` say how scores are mapped."""

    scale: float
    dropout: float = 0.0
    per_edge: bool = False
    map: int = 0
    a: float = 0.0
    b: float = 0.0


@dataclass(frozen=True, eq=False)
class Formula(Kernel):
    """The score of the native kernels: map(scale <q, k>), or sum over d of vector_d map(q_d + k_d)."""

    scale: float
    map: Map
    vector: Tensor | None

    def score(self, q: Tensor, k: Tensor) -> Tensor:
        if self.vector is None:
            return self.map((q * k).sum(-1) * self.scale)
        return (per_head(self.vector, q) * self.map(q + k)).sum(-1)

    def matrix(self, q: Tensor, k: Tensor) -> Tensor:
        return self.map(q @ k.mT * self.scale) if self.vector is None else super().matrix(q, k)

    def of_head(self, head: int) -> Formula:
        if self.vector is None or self.vector.shape[0] == 1:
            return self
        return Formula(self.scale, self.map, self.vector[head : head + 1])


def attend(
    packed: PackedNeighborhoods, inputs: PairInputs, options: PairOptions, seed: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Output and log-sum-exp: dense where that holds fewer numbers than the edges."""
    (q, k, v, bias, vector), (scale, dropout, per_edge, code, a, b) = inputs, options
    bound = Bound(packed.distinct, packed.which, q.shape[2], k.shape[2])
    settings: dict[str, Any] = {
        "kernel": Formula(scale, Map(KINDS[code], a, b), vector),
        "bias": None if bias is None else LogitBias(bias, per_edge),
    }
    if dropout:
        settings["dropout"] = Drop(dropout, seed, q.shape[1])
    device = str(q.device)
    if vector is None and q.shape[2] * k.shape[2] <= packed.pairs * q.shape[3]:
        prepared = reference.DenseMask(bound.mask(device), pair_indices(bound, device))
        out, lse, _ = reference.attend(q, k, v, prepared, **settings)
    else:
        out, lse = gather.attend(q, k, v, gather.prepare(bound, device), **settings)
    return out, lse.to(torch.float64 if q.dtype == torch.float64 else torch.float32)

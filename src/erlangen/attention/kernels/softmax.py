"""The kernel of the transformer, e^(scale <q, k>), with soft-capped logits and a sink."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite, sqrt

import torch
from torch import Tensor

from erlangen.attention.kernels.form import IDENTITY, Form, Map, number
from erlangen.attention.kernels.kernel import Kernel
from erlangen.errors import ParameterError, ShapeError


@dataclass(frozen=True, eq=False)
class SoftmaxDot(Kernel):
    """k(q, k) = exp(f(scale <q, k>)), the kernel of softmax attention; f is the identity by default.

    - `scale`: 1 / sqrt(dim) by default.
    - `softcap` c: f(s) = c tanh(s / c), so that no logit exceeds c (Gemma 2).
    - `sink` (heads,): one more logit per head in the denominator, with no value: the weights of row i sum to
      1 - e^sink / (e^sink + sum over N_i of k), and the log-sum-exp contains the sink. A row that reads
      nothing still gives zero.

    Positive; symmetric.

    >>> import torch
    >>> from erlangen.attention import attend
    >>> x, v = torch.zeros(1, 3, 1), torch.ones(1, 3, 1)
    >>> attend(x, x, v, kernel=SoftmaxDot(sink=torch.zeros(1))).flatten()
    tensor([0.7500, 0.7500, 0.7500])
    """

    scale: float | None = None
    softcap: float | None = None
    sink: Tensor | None = None
    symmetric = True

    def __post_init__(self) -> None:
        for name in ("scale", "softcap"):
            if getattr(self, name) is not None:
                number(getattr(self, name), f"SoftmaxDot({name})")
        if self.scale is not None and not isfinite(self.scale):
            raise ParameterError(f"SoftmaxDot(scale) must be a finite number, got {self.scale}")
        if self.softcap is not None and not (isfinite(self.softcap) and self.softcap > 0):
            raise ParameterError(f"SoftmaxDot(softcap) must be positive, got {self.softcap}")
        if self.sink is not None and self.sink.dim() != 1:
            raise ShapeError(f"SoftmaxDot(sink) must have shape (heads,), got {tuple(self.sink.shape)}")

    def check(self, heads: int, dim: int) -> None:
        if self.sink is not None and self.sink.shape[0] != heads:
            raise ShapeError(f"the sink has {self.sink.shape[0]} logits, but q has {heads} heads")

    def form(self, dim: int) -> Form:
        scale = 1 / sqrt(max(dim, 1)) if self.scale is None else float(self.scale)
        return Form(scale, IDENTITY if self.softcap is None else Map("cap", float(self.softcap)))

    def score(self, q: Tensor, k: Tensor) -> Tensor:
        form = self.form(q.shape[-1])
        return form.map((q * k).sum(-1) * form.scale)

    def matrix(self, q: Tensor, k: Tensor) -> Tensor:
        form = self.form(q.shape[-1])
        return form.map(q @ k.mT * form.scale)


def absorb(
    sink: Tensor, out: Tensor, weights: Tensor | None, lse: Tensor
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Attention with one more logit in the denominator, from attention without it and its log-sum-exp.

    The share of the sink is e^sink / (e^sink + e^lse), so everything else is multiplied by
    e^lse / (e^sink + e^lse) = sigmoid(lse - sink).
    """
    sink = sink.to(lse.device, lse.dtype)[:, None]
    # A row that reads nothing is zero whatever the sink is; -inf - -inf would make it NaN.
    share = torch.sigmoid(lse.masked_fill(lse == -torch.inf, 0.0) - sink).unsqueeze(-1)
    total = torch.logaddexp(lse, sink.expand_as(lse))
    return out * share.to(out.dtype), None if weights is None else weights * share.to(weights.dtype), total

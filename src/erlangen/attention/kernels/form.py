"""What the native kernels know of a kernel: a scalar map of a product, or of sums feature by feature."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from erlangen.errors import ParameterError


def number(value: Any, what: str) -> float:
    """A number of a kernel as a float. A tensor that is learned would get no gradient, and is refused.

    >>> number(torch.tensor(2.0), "scale")
    2.0
    >>> number(torch.tensor(2.0, requires_grad=True), "scale")
    Traceback (most recent call last):
    ...
    erlangen.errors.ParameterError: scale is a number, and no gradient would reach this tensor: multiply the
    queries by what is learned instead, or write a Kernel of your own
    """
    if isinstance(value, Tensor) and value.requires_grad:
        raise ParameterError(
            f"{what} is a number, and no gradient would reach this tensor: multiply the queries by what is "
            "learned instead, or write a Kernel of your own"
        )
    return float(value)


KINDS = ("identity", "cap", "leaky", "log")


class Map(NamedTuple):
    """A scalar function of a score, known to the native kernels together with its derivative.

    "identity": x; "cap": a tanh(x / a); "leaky": x for x > 0, else a x; "log": a log |x + b|.

    >>> Map("cap", 2.0)(torch.tensor([0.0, 100.0]))
    tensor([0., 2.])
    """

    kind: str = "identity"
    a: float = 0.0
    b: float = 0.0

    @property
    def code(self) -> int:
        """The number of the kind in the native kernels."""
        return KINDS.index(self.kind)

    def __call__(self, x: Tensor) -> Tensor:
        if self.kind == "cap":
            return self.a * torch.tanh(x / self.a)
        if self.kind == "leaky":
            return torch.nn.functional.leaky_relu(x, self.a)
        if self.kind == "log":
            return self.a * (x + self.b).abs().log()
        return x


IDENTITY = Map()


class Form(NamedTuple):
    """The logit of a pair: map(scale <q, k>), or sum over d of vector_d map(q_d + k_d) where one is given.

    `vector` has shape (dim,) or (heads, dim).
    """

    scale: float = 1.0
    map: Map = IDENTITY
    vector: Tensor | None = None

"""What a kernel is: a function of a query and a key whose values, normalised over N_i, are the weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from erlangen.attention.kernels.form import Form


class Kernel:
    """A function k(q, k) of a query and a key; attention weights are its values, normalised over N_i:

        alpha_ij = k(q_i, k_j) / sum over l in N_i of k(q_i, k_l)

    A kernel of one's own defines `score(q, k)` = log k(q, k), or `weight(q, k)` = k(q, k) itself; either
    takes tensors (batch, heads, ..., dim) that broadcast, and gives (batch, heads, ...). It runs through
    PyTorch at a cost proportional to the related pairs. `positive` says whether k >= 0, and > 0 for almost
    all pairs (then Proposition 1 holds: the weights are a distribution with support N_i); `symmetric`
    whether k(x, y) = k(y, x). Where all weights of a row are zero the output is zero.

    >>> import torch
    >>> class Laplace(Kernel):
    ...     symmetric = True
    ...     def score(self, q, k):
    ...         return -(q - k).abs().sum(-1)
    >>> Laplace().positive
    True
    >>> x = torch.tensor([[[0.0], [1.0]]])
    >>> from erlangen.attention import attend
    >>> attend(x, x, x, kernel=Laplace())
    tensor([[[0.2689],
             [0.7311]]])
    """

    sink: Tensor | None = None
    full_precision: bool = False
    """Whether `vectors` are at least float32, also for half-precision inputs and under autocast."""
    symmetric: bool = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.score is Kernel.score and cls.weight is Kernel.weight:
            raise TypeError(f"kernel {cls.__name__} must define score(q, k) = log k(q, k), or weight(q, k)")

    def score(self, q: Tensor, k: Tensor) -> Tensor:
        """log k(q, k), feature dimension last."""
        return self.weight(q, k).log()

    def weight(self, q: Tensor, k: Tensor) -> Tensor:
        """k(q, k), feature dimension last."""
        return self.score(q, k).exp()

    @property
    def exponential(self) -> bool:
        """Whether the kernel is given by its logarithm, so that weights are a softmax."""
        return type(self).score is not Kernel.score

    @property
    def positive(self) -> bool:
        """Whether k >= 0, and > 0 for almost all pairs: an exponential is."""
        return self.exponential

    def matrix(self, q: Tensor, k: Tensor) -> Tensor:
        """All pairs: the scores (of an exponential kernel) or weights, (batch, heads, queries, keys)."""
        return self.pairs(q.unsqueeze(-2), k.unsqueeze(-3))

    def pairs(self, q: Tensor, k: Tensor) -> Tensor:
        """The scores of an exponential kernel, the weights of another."""
        return self.score(q, k) if self.exponential else self.weight(q, k)

    def form(self, dim: int) -> Form | None:
        """How the native backends compute log k from `vectors`; None where they cannot."""
        return None

    def vectors(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """What `form` is applied to, and what is missing in log k then: (batch, heads, queries) or None.

        The missing part is constant in a row, so it moves the log-sum-exp alone.
        """
        return q, k, None

    def of_head(self, head: int) -> Kernel:
        """The kernel of one head, where heads have parameters of their own."""
        return self

    def check(self, heads: int, dim: int) -> None:
        """Raise `ShapeError` unless the kernel's parameters fit so many heads and features."""


def per_head(parameter: Tensor, like: Tensor) -> Tensor:
    """A parameter (dim,) or (heads, dim) shaped to broadcast with (batch, heads, ..., dim)."""
    if parameter.dim() == 1:
        return parameter
    heads, dim = parameter.shape
    return parameter.reshape(heads, *[1] * (like.dim() - 3), dim)


def violation(kernel: Kernel, dim: int, *, heads: int = 1, trials: int = 256, seed: int = 0) -> str | None:
    """What random vectors show against `kernel.positive` or `kernel.symmetric`; None if nothing does.

    A numeric check, in float64: it can refute a statement, never prove it. A kernel that does not call
    itself positive or symmetric states nothing and is not refuted.

    >>> from erlangen.attention.kernels import Gaussian, Kernel
    >>> violation(Gaussian(1.0), dim=3)
    >>> class Wrong(Kernel):
    ...     positive = True
    ...     def weight(self, q, k):
    ...         return (q * k).sum(-1)
    >>> violation(Wrong(), dim=3)
    'Wrong is not positive: k(q, k) = -4.9 for a pair of random vectors'
    """
    generator = torch.Generator().manual_seed(seed)
    x, y = torch.randn(2, 1, heads, trials, dim, dtype=torch.float64, generator=generator)
    values, name = kernel.weight(x, y), type(kernel).__name__
    if kernel.positive and values.min() < 0:
        return f"{name} is not positive: k(q, k) = {values.min():.2g} for a pair of random vectors"
    if kernel.symmetric:
        other = kernel.weight(y, x)
        worst = (values - other).abs().argmax()
        if not torch.allclose(values, other, rtol=1e-9, atol=1e-12):
            a, b = float(values.flatten()[worst]), float(other.flatten()[worst])
            return f"{name} is not symmetric: k(x, y) = {a:.2g}, k(y, x) = {b:.2g} for random vectors"
    return None

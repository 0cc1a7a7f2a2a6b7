"""What a kernel says of itself, checked on random vectors."""

from __future__ import annotations

import torch

from erlangen.attention.kernels.base import Kernel


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

"""What a kernel and a weighted relation ask of a backend, and which backend can."""

from __future__ import annotations

from typing import Any, NamedTuple

from erlangen.attention.kernels import Kernel, Linear


class Needs(NamedTuple):
    """What the logits are: scale <q, k> and nothing else, unless said otherwise."""

    kernel: str = "SoftmaxDot"
    map: str | None = "identity"
    """The map of the product (see `Map`); None where the kernel is no function of a product of vectors."""
    vector: bool = False
    bias: str | None = None
    """"toeplitz", "per edge" or None."""
    linear: bool = False
    """Whether sums over keys can be shared: the kernel `Linear`, without bias and dropout."""

    @property
    def plain(self) -> bool:
        """Whether logits are scaled products, with or without a bias."""
        return self.map == "identity" and not self.vector


PLAIN = Needs()


def needs_of(kernel: Kernel, dim: int, weighted: Any, dropout: float = 0.0) -> Needs:
    """What a kernel and a weighted relation (or None) ask for."""
    bias = None if weighted is None else bias_kind(weighted)
    name, form = type(kernel).__name__, kernel.form(dim)
    linear = isinstance(kernel, Linear) and bias is None and not dropout
    if form is None:
        return Needs(name, None, False, bias, linear)
    return Needs(name, form.map.kind, form.vector is not None, bias, linear)


def bias_kind(weighted: Any) -> str:
    """The order in which a weighted relation gives its bias."""
    return "toeplitz" if weighted.structured else "per edge"


def unable(backend: str, needs: Needs) -> str | None:
    """Why a backend cannot compute this, or None if it can.

    >>> unable("sdpa", Needs(map="cap"))
    "backend 'sdpa' does not have the kernel SoftmaxDot with a map (cap) of scores"
    """
    if backend in ("reference", "gather"):
        return None
    if backend == "linear":
        return (
            None if needs.linear else "backend 'linear' computes the kernel Linear, without bias and dropout"
        )
    if needs.map is None or (needs.vector and backend != "edges"):
        return f"backend {backend!r} does not have the kernel {needs.kernel}"
    if needs.map != "identity" and backend == "sdpa":
        return (
            f"backend {backend!r} does not have the kernel {needs.kernel} with a map ({needs.map}) of scores"
        )
    if needs.bias == "per edge" and backend not in ("sdpa", "edges"):
        return f"backend {backend!r} takes no bias for each edge"
    return None

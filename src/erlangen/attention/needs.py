"""What a kernel and a weighted relation ask of a backend, and which backend can."""

from __future__ import annotations

from typing import Any, NamedTuple

from erlangen.attention.kernels import Kernel
from erlangen.attention.kernels.form import Product


class Needs(NamedTuple):
    """What the logits are: scale <q, k> and nothing else, unless said otherwise."""

    kernel: str = "SoftmaxDot"
    map: str | None = "identity"
    """The map of the product (see `Map`); None where the kernel is no function of a product of vectors."""
    vector: bool = False
    bias: str | None = None
    """"toeplitz", "per edge" or None."""

    @property
    def plain(self) -> bool:
        """Whether logits are scaled products, with or without a bias."""
        return self.map == "identity" and not self.vector


PLAIN = Needs()


def needs_of(kernel: Kernel, product: Product | None, weighted: Any) -> Needs:
    """What a kernel (with its native form) and a weighted relation (or None) ask for."""
    bias = None if weighted is None else bias_kind(weighted)
    name = type(kernel).__name__
    if product is None:
        return Needs(name, None, False, bias)
    return Needs(name, product.form.map.kind, product.form.vector is not None, bias)


def bias_kind(weighted: Any) -> str:
    """The order in which a weighted relation gives its bias."""
    return "toeplitz" if weighted.structured else "per edge"


def unable(backend: str, needs: Needs) -> str | None:
    """Why a backend cannot compute this, or None if it can.

    >>> unable("sdpa", Needs(map="cap"))
    "backend 'sdpa' cannot compute the kernel SoftmaxDot: a map 'cap' of scores"
    """
    if backend in ("reference", "gather"):
        return None
    if needs.map is None or (needs.vector and backend != "edges"):
        return f"backend {backend!r} cannot compute the kernel {needs.kernel}: it is no function of a product"
    if needs.map != "identity" and backend not in ("tiles", "edges"):
        return f"backend {backend!r} cannot compute the kernel {needs.kernel}: a map {needs.map!r} of scores"
    if needs.bias == "per edge" and backend not in ("sdpa", "edges"):
        return f"backend {backend!r} takes no bias for each edge"
    if needs.bias is not None and backend == "flex":
        return f"backend {backend!r} takes no bias"
    return None

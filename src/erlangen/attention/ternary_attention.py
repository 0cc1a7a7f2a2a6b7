"""Attention over a ternary relation: a query reads pairs of keys, weighted by trilinear logits."""

from __future__ import annotations

from math import sqrt
from operator import index
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from erlangen.attention import ternary_kernel
from erlangen.attention.binding import made_plain
from erlangen.attention.call import fold
from erlangen.attention.ternary_kernel import PackedTriples
from erlangen.caches import cached
from erlangen.errors import BackendError, ParameterError, ShapeError
from erlangen.packages import renamed
from erlangen.relations.protocol import AnyRelation, expect

BACKENDS = ("native", "reference")


@renamed(hyperrelation="relation")
def attend_triples(
    q: Tensor,
    k1: Tensor,
    k2: Tensor,
    v1: Tensor,
    v2: Tensor,
    relation: AnyRelation,
    *,
    scale: float | None = None,
    backend: str | None = None,
) -> Tensor:
    """Attention in which query i reads exactly the pairs T_i of a ternary relation.

        h_i = sum over (j, l) in T_i of alpha_ijl (v1_j * v2_l),
        alpha_i = softmax over T_i of scale sum_d q_id k1_jd k2_ld

    with `*` elementwise. **A query that reads no pair gives zero, with zero gradient.** The cost is that of
    the triples. q, k1 and k2 have shape (..., heads, n, dim), v1 and v2 (..., heads, n, value dim).

    `scale` is 1 / sqrt(dim) by default: for independent entries of variance 1 the logits then have variance
    1, as those of pairwise attention. `backend` is "native" (C++, on CPU; by default where it can run) or
    "reference" (PyTorch: gathers a vector per triple).

    The map is equivariant to the permutations in Aut(T), and for generic weights to no others: near zero it
    is the bilinear form sum over T_i of v1_j * v2_l / |T_i|, from which T can be read off as soon as some
    feature of v1 and the same feature of v2 are linearly independent functions of the input.

    >>> from erlangen.relations import Triples
    >>> zero, x = torch.zeros(1, 3, 1), torch.tensor([[[2.], [3.], [5.]]])
    >>> attend_triples(zero, zero, zero, x, x, Triples(3, [(0, 1, 2), (2, 0, 0), (2, 0, 1)])).flatten()
    tensor([15.,  0.,  5.])
    """
    _check(q, k1, k2, v1, v2, relation)
    if backend is not None and backend not in BACKENDS:
        raise ParameterError(f"backend must be one of {', '.join(BACKENDS)}, got {backend!r}")
    scale = 1 / sqrt(max(q.shape[-1], 1)) if scale is None else float(scale)
    lead = q.shape[:-3]
    folded = [fold(x) for x in (q, k1, k2, v1, v2)]
    n = index(q.shape[-2])
    native = ternary_kernel.refuses(q) is None if backend is None else backend == "native"
    if native:
        if (reason := ternary_kernel.refuses(q)) is not None:
            raise BackendError(f"the native backend cannot compute this: {reason}")
        prepared = _index_once if torch.compiler.is_compiling() else packed
        out = ternary_kernel.attend(folded, prepared(relation, n), scale)
    else:
        row, first, second = (x.to(q.device) for x in packed(relation, n).edges)
        out = ternary_kernel.reference(folded, row, first, second, scale)[0]
    return out.reshape(*lead, *out.shape[1:])


@cached(64)
def packed(relation: AnyRelation, n: int) -> PackedTriples:
    """The triples on n positions, kept: binding and packing happen once for each relation and size.

    >>> from erlangen.relations import WindowSquared
    >>> packed(WindowSquared(2), 5) is packed(WindowSquared(2), 5)
    True
    """
    return PackedTriples(relation.on(n))


@torch.compiler.assume_constant_result
def _index_once(relation: AnyRelation, n: int) -> Tensor:
    with _disable_current_modes():
        return made_plain(lambda: packed(relation, n).index)


def _check(q: Tensor, k1: Tensor, k2: Tensor, v1: Tensor, v2: Tensor, relation: Any) -> None:
    taken = "attend_triples takes a ternary relation such as Fano() (attend takes those of pairs)"
    expect(relation, taken, arity=3, bound=True)
    named = {"q": q, "k1": k1, "k2": k2, "v1": v1, "v2": v2}
    told = ", ".join(f"{name} {tuple(x.shape)}" for name, x in named.items())
    if q.dim() < 3 or not q.shape == k1.shape == k2.shape:
        raise ShapeError(f"q, k1 and k2 need one shape (..., heads, n, dim): {told}")
    if v1.shape != v2.shape or v1.shape[:-1] != q.shape[:-1]:
        raise ShapeError(
            f"v1 and v2 need one shape (..., heads, n, value dim), as q but for the last: {told}"
        )
    types, devices = ([str(getattr(x, name)) for x in named.values()] for name in ("dtype", "device"))
    if len(set(types)) > 1 or not q.is_floating_point():
        raise ShapeError(f"all inputs need one floating-point type, got {', '.join(types)}")
    if len(set(devices)) > 1:
        raise ShapeError(f"the inputs lie on different devices: {', '.join(devices)}")

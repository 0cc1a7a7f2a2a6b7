"""Which backend computes an attention, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from erlangen.attention.binding import Bound, bind
from erlangen.attention.shapes import check, fold
from erlangen.errors import BackendError
from erlangen.relations import Bindable, Neighborhoods

BACKENDS = ("reference", "sdpa", "tiles", "edges", "flex")


@dataclass(frozen=True)
class Plan:
    """The chosen backend, the reason in words, and the estimated cost of a forward pass in multiply-adds."""

    backend: str
    reason: str
    cost: int


def plan(
    relation: Bindable | Neighborhoods,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    backend: str | None = None,
    weights: bool = False,
    lse: bool = False,
    dropout: float = 0.0,
) -> Plan:
    """What `attend` will do with these tensors, without doing it.

    =====================================================  =============
    the call                                               backend
    =====================================================  =============
    asks for the weights                                   `reference`
    relation is full or square causal                      `sdpa`
    anything else                                          `sdpa`, with a dense mask
    asks for the log-sum-exp                               `reference`
    =====================================================  =============

    >>> import torch
    >>> from erlangen.relations import Causal
    >>> x = torch.ones(1, 2, 8, 4)
    >>> plan(Causal(), x, x, x, weights=True).backend
    'reference'
    """
    check(q, k, v, relation)
    q, k, v = (fold(x) for x in (q, k, v))
    bound = bind(
        relation, batch=q.shape[0], heads=q.shape[1], queries=q.shape[2], keys=k.shape[2], vectors=(q, k)
    )
    return choose(bound, q, k, v, backend=backend, weights=weights, lse=lse, dropout=dropout)


def choose(
    bound: Bound,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    backend: str | None,
    weights: bool,
    lse: bool,
    dropout: float,
) -> Plan:
    """The decision of `plan` on 4-D tensors and a bound relation."""
    dense = q.shape[0] * q.shape[1] * q.shape[2] * k.shape[2] * (q.shape[3] + v.shape[3])
    if backend is not None:
        if backend not in BACKENDS:
            raise BackendError(f"backend {backend!r} is not one of {', '.join(BACKENDS)}")
        if backend == "sdpa" and (weights or lse):
            raise BackendError("backend 'sdpa' returns neither weights nor log-sum-exp; use 'reference'")
        return Plan(backend, "asked for by name", dense)
    if weights:
        return Plan("reference", "the weights were asked for, and only the dense oracle forms them", dense)
    if lse:
        return Plan("reference", "the log-sum-exp was asked for", dense)
    return Plan("sdpa", "dense mask", dense)


def run(
    backend: str, q: Tensor, k: Tensor, v: Tensor, bound: Bound, *, scale: float, dropout: float
) -> tuple[Tensor, Any, Any]:
    """Run one backend; gives (output, weights or None, log-sum-exp or None)."""
    if backend == "reference":
        from erlangen.attention.backends import reference

        out, lse, weights = reference.attend(q, k, v, bound, scale=scale, dropout=dropout)
        return out, weights, lse
    if backend == "sdpa":
        from erlangen.attention.backends import sdpa

        return sdpa.attend(q, k, v, bound, scale=scale, dropout=dropout), None, None
    raise BackendError(f"backend {backend!r} is not available")

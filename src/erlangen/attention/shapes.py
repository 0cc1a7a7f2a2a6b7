"""The shapes of one attention call: checked, and folded to four dimensions."""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch import Tensor

from erlangen.attention.foreign import WORDS
from erlangen.errors import ParameterError, ShapeError
from erlangen.relations import Batch, Neighborhoods, PerHead, Relation


def fold(x: Tensor) -> Tensor:
    """(..., heads, length, dim) as (batch, heads, length, dim)."""
    return x if x.dim() == 4 else x.reshape(prod(x.shape[:-3]), *x.shape[-3:])


def check(q: Tensor, k: Tensor, v: Tensor, relation: Any, *also: type) -> None:
    """Raise `ShapeError` unless the tensors fit one another and the relation is one, or one of the types
    `also`."""
    if not isinstance(relation, (Relation, PerHead, Batch, Neighborhoods, *also)):
        hint, got = "", type(relation).__name__
        if isinstance(relation, Tensor):
            hint = f"; for a mask, {WORDS['mask']}"
        elif isinstance(relation, str):
            hint, got = "; write it without quotation marks, as er.Causal()", repr(relation)
        elif isinstance(relation, type):
            hint, got = f"; write {relation.__name__}(...)", f"the class {relation.__name__}"
        raise ParameterError(f"relation must be a Relation, PerHead, Batch or Neighborhoods, got {got}{hint}")
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not isinstance(x, Tensor):
            raise ShapeError(f"{name} must be a torch tensor, got {type(x).__name__}")
        if x.is_nested:
            raise ShapeError(
                f"{name} must be a dense tensor, got a nested one: put sequences of several lengths behind "
                "one another, with the relation Documents(lengths)"
            )
        if x.layout != torch.strided:
            raise ShapeError(f"{name} must be a dense tensor, got one of layout {x.layout}")
    wrong = _mismatch(q, k, v)
    if wrong:
        raise ShapeError(
            f"{wrong}: q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)} over {relation!r}"
        )
    if not q.dtype == k.dtype == v.dtype or not q.is_floating_point():
        raise ShapeError(f"q, k, v need one floating-point type, got {q.dtype}, {k.dtype}, {v.dtype}")
    if not q.device == k.device == v.device:
        raise ShapeError(f"q, k, v lie on different devices: {q.device}, {k.device}, {v.device}")


def _mismatch(q: Tensor, k: Tensor, v: Tensor) -> str | None:
    if min(q.dim(), k.dim(), v.dim()) < 3:
        return "q, k and v need shape (..., heads, length, dim)"
    if q.shape[:-3] != k.shape[:-3] or k.shape[:-1] != v.shape[:-1]:
        return "leading dimensions, kv heads or lengths do not fit"
    if q.shape[-1] != k.shape[-1]:
        return "queries and keys have different dimensions"
    if k.shape[-3] == 0 or q.shape[-3] % k.shape[-3]:
        return "the heads of q are not a multiple of those of k"
    return None

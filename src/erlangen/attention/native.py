"""The native kernels as torch operators: `erlangen::tiles` and `erlangen::edges`, with their gradients.

Both compute, for query i and head h with N_i the keys it reads,

    lse_i = log sum_{j in N_i} exp(s_ij),   out_i = sum_{j in N_i} exp(s_ij - lse_i) m_ij v_j,
    s_ij = map(scale q_i . k_j) + bias[j - i + queries - 1],

map being one of `Map`'s. `edges` also takes a bias with an entry for each edge, in order (`per_edge`), and a
vector a, (1 or heads, dim), with which s_ij = sum_d a_d map(q_id + k_jd) + bias;

m_ij being 0 or 1 / (1 - dropout), decided by (seed, batch item, head, i, j) alone, alike in both operators.
An empty N_i gives out_i = 0, lse_i = -inf and no gradient.
"""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from erlangen.attention import formula, packing
from erlangen.attention.operators import _PLAIN, Kernel, Tensors, define
from erlangen.errors import BackendError, ShapeError

_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def available() -> bool:
    """Whether the native extension was built for this Python.

    >>> available() == (packing.missing is None)
    True
    """
    return packing.native is not None


def missing() -> str | None:
    """Why the extension could not be imported, or None."""
    return packing.missing


def _accumulator(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def _like(x: Tensor, dim: int) -> Tensor:
    """An empty tensor of x's first three sizes, its heads inside its positions in memory where x's are."""
    batch, heads, length, _ = x.shape
    if x.stride(1) < x.stride(2):
        return _empty(x, (batch, length, heads, dim)).transpose(1, 2)
    return _empty(x, (batch, heads, length, dim))


def _empty(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """An empty tensor of x's type, in memory of an earlier result that has been freed where it is large."""
    if packing.native is None or type(x) not in _PLAIN or not x.is_cpu:
        return x.new_empty(shape)
    size = prod(shape) * x.element_size()
    if size < packing.native.LARGE:
        return x.new_empty(shape)
    return from_dlpack(packing.native.large_memory(size)).view(x.dtype).view(shape)


def _rows(x: Tensor) -> Tensor:
    """x without its graph, its last dimension contiguous, its signs in memory (not so in `z.conj().imag`)."""
    if x.requires_grad:
        x = x.detach()
    if x.is_neg():
        x = x.resolve_neg()
    if x.stride(-1) == 1 or x.size(-1) <= 1:
        return x
    # An empty tensor counts as contiguous whatever its strides are.
    return x.contiguous() if x.numel() else x.new_empty(x.shape)


LITTLE = 1 << 20
"""Multiply-adds below which waking a second thread costs more than it saves."""


def _threads(q: Tensor, packed: packing.Packed) -> int:
    work = packed.pairs * q.size(0) * q.size(1) * q.size(3)
    return 1 if work < LITTLE else torch.get_num_threads()


def _number(seed: Tensor | None) -> int:
    """The seed of the dropout; a tensor, so that drawing one is part of a compiled graph."""
    return 0 if seed is None else int(seed)


def _outputs(tensors: Tensors) -> tuple[Tensor, Tensor, Tensor]:
    q, v = tensors[0], tensors[2]
    return (*_results(q, v), _statistics(q))


def _results(q: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    return _like(q, v.size(-1)), q.new_empty(q.shape[:3], dtype=_accumulator(q.dtype))


def _statistics(q: Tensor) -> Tensor:
    return q.new_empty((*q.shape[:3], 2), dtype=_accumulator(q.dtype))


def _gradients(tensors: Tensors) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    q, k, v, bias, vector = tensors
    dbias, dvector = (q.new_empty((0,)) if x is None else x.new_zeros(x.shape) for x in (bias, vector))
    return _like(q, q.size(-1)), _like(k, k.size(-1)), _like(v, v.size(-1)), dbias, dvector


def _whole(x: Tensor | None) -> Tensor | None:
    return None if x is None else x.detach().contiguous()


def _kernel(name: str) -> Kernel:
    run_forward: Any = getattr(packing.native, f"{name}_forward", None)
    run_backward: Any = getattr(packing.native, f"{name}_backward", None)

    def scores(vector, per_edge, map, a, b, *backward):
        """What both passes say of scores, after everything else."""
        if name == "edges":
            return map, a, b, per_edge, *backward[:1], vector, *backward[1:]
        if vector is not None or per_edge:
            raise BackendError(f"erlangen::{name} takes neither a vector nor a bias of edges")
        return map, a, b

    def forward(packed, tensors, seed, numbers, with_statistics):
        if run_forward is None:
            raise BackendError(f"erlangen::{name} needs the native extension: {packing.missing}")
        (q, k, v, bias, vector), (scale, dropout, per_edge, map, a, b) = tensors, numbers
        out, lse = _results(q, v)
        statistics = _statistics(q) if with_statistics else None
        run_forward(
            packed.tiles if name == "tiles" else packed.runs,
            *(_rows(q), _rows(k), _rows(v), _whole(bias), out, lse, statistics),
            *(scale, dropout, _number(seed), _threads(q, packed)),
            *(scores(_whole(vector), per_edge, map, a, b) if vector is not None or per_edge or map else ()),
        )
        return out, lse, statistics

    def backward(packed, tensors, seed, numbers, grad, grad_lse, out, statistics):
        if run_backward is None:
            raise BackendError(f"erlangen::{name} needs the native extension: {packing.missing}")
        (q, k, v, bias, vector), (scale, dropout, per_edge, map, a, b) = tensors, numbers
        dq, dk, dv, dbias, dvector = _gradients(tensors)
        q, grad, k, v = (_rows(x) for x in (q, grad, k, v))
        bias, vector = _whole(bias), _whole(vector)
        transposed = bias.index_select(1, packed.order) if per_edge and bias is not None else None
        run_backward(
            *((packed.tiles,) if name == "tiles" else (packed.runs, packed.transposed)),
            *(q, k, v, bias, grad, _whole(grad_lse), _rows(out), _whole(statistics)),
            *(dq, dk, dv, None if bias is None else dbias),
            *(scale, dropout, _number(seed), _threads(q, packed)),
            *scores(vector, per_edge, map, a, b, transposed, None if vector is None else dvector),
        )
        return dq, dk, dv, dbias, dvector

    return Kernel(
        forward,
        backward,
        formula.attend,
        _outputs,
        _gradients,
        packing.packed,
        dropout=lambda numbers: numbers[1],
    )


_TENSORS = "Tensor q, Tensor k, Tensor v, Tensor? bias, Tensor? vector"
_NUMBERS = "float scale, float dropout, bool per_edge, int map, float a, float b"

tiles, _call_tiles = define("tiles", _TENSORS, _NUMBERS, _kernel("tiles"))
edges, _call_edges = define("edges", _TENSORS, _NUMBERS, _kernel("edges"))


def call_tiles(q, k, v, bias, relation, scale, dropout, seed, map=0, a=0.0, b=0.0):
    """Output and log-sum-exp by tiles; `relation` is packed, or the index of one."""
    return _call_tiles(q, k, v, bias, None, relation, seed, scale, dropout, False, map, a, b)


def call_edges(
    q, k, v, bias, relation, scale, dropout, seed, vector=None, per_edge=False, map=0, a=0.0, b=0.0
):
    """Output and log-sum-exp by edges; `relation` is packed, or the index of one."""
    return _call_edges(q, k, v, bias, vector, relation, seed, scale, dropout, per_edge, map, a, b)


def cast(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, per_edge: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """The inputs as autocast asks, and the bias in the type scores are accumulated in; checked.

    >>> x = torch.zeros(1, 2, 4, 8)
    >>> cast(x, x, x, torch.zeros(2, 3))
    Traceback (most recent call last):
    ...
    erlangen.errors.ShapeError: bias must have shape (1 or 2, queries + keys - 1 = 7), got (2, 3)
    """
    if torch.is_autocast_enabled("cpu"):
        low = torch.get_autocast_dtype("cpu")
        q, k, v = (x if x.dtype == torch.float64 else x.to(low) for x in (q, k, v))
    if q.dtype not in _DTYPES:
        raise BackendError(f"the native kernels take float32, float64, bfloat16 and float16, not {q.dtype}")
    if bias is not None:
        places = max(0, q.size(2) + k.size(2) - 1)
        if per_edge:
            places = bias.size(-1)  # compared with the index by the kernel
        if bias.ndim != 2 or bias.size(0) not in (1, q.size(1)) or bias.size(1) != places:
            raise ShapeError(
                f"bias must have shape (1 or {q.size(1)}, queries + keys - 1 = {places}), "
                f"got {tuple(bias.shape)}"
            )
        bias = bias.to(_accumulator(q.dtype))
    return q, k, v, bias

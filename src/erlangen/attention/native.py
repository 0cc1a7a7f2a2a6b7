"""The native kernels as torch operators: `erlangen::tiles` and `erlangen::edges`, with their gradients.

Both compute, for query i and head h with N_i the keys it reads,

    lse_i = log sum_{j in N_i} exp(s_ij),   out_i = sum_{j in N_i} exp(s_ij - lse_i) m_ij v_j,
    s_ij = map(scale q_i . k_j) + bias[j - i + queries - 1],

map being one of `Map`'s. `edges` also takes a bias with an entry for each edge, in order (`per_edge`), and a
vector a, (1 or heads, dim), with which s_ij = sum_d a_d map(q_id + k_jd) + bias;

m_ij being 0 or 1 / (1 - dropout), decided by (seed, batch item, head, i, j) alone, alike in both operators.
An empty N_i gives out_i = 0, lse_i = -inf and no gradient. No weight is stored: softmax is computed online
(arXiv 1805.02867), and the backward pass computes weights again from two statistics of each row, as
FlashAttention does (arXiv 2205.14135).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from erlangen.attention import formula, packing
from erlangen.attention.formula import PairInputs, PairOptions
from erlangen.attention.kernels.form import IDENTITY, Map
from erlangen.attention.operators import _PLAIN, NativeKernel, Upstream, define
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
    """An empty tensor of x's type; a large one takes its memory from the buffer pool."""
    if packing.native is None or type(x) not in _PLAIN or not x.is_cpu:
        return x.new_empty(shape)
    size = prod(shape) * x.element_size()
    if size < packing.native.LARGE:
        return x.new_empty(shape)
    return from_dlpack(packing.native.pooled_buffer(size)).view(x.dtype).view(shape)


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


def threads(q: Tensor, pairs: float) -> int:
    """How many threads a kernel over so many related pairs, or triples, of one head and item is given.

    A step of decoding alone decides inside its kernel: counting here would take as long as the step."""
    work = pairs * q.size(0) * q.size(1) * q.size(3)
    return 1 if work < LITTLE else torch.get_num_threads()


def results(q: Tensor, v: Tensor, with_statistics: bool) -> tuple[Tensor, Tensor, Tensor | None]:
    """Empty tensors for the output, the log-sum-exp, and what the gradient needs of each row."""
    wide = _accumulator(q.dtype)
    statistics = q.new_empty((*q.shape[:3], 2), dtype=wide) if with_statistics else None
    return _like(q, v.size(-1)), q.new_empty(q.shape[:3], dtype=wide), statistics


def _gradient(x: Tensor) -> Tensor:
    return _like(x, x.size(-1)) if x.dim() == 4 else x.new_zeros(x.shape)


def gradients(inputs: Sequence[Any]) -> tuple[Tensor, ...]:
    """Empty tensors for the gradients of the inputs, zeros for those of parameters."""
    return tuple(inputs[0].new_empty(0) if x is None else _gradient(x) for x in inputs)


def as_read(inputs: Sequence[Tensor | None]) -> tuple[Tensor | None, ...]:
    """The inputs as the kernels read them: features contiguous, parameters contiguous as a whole."""
    return tuple(None if x is None else _rows(x) if x.dim() == 4 else x.detach().contiguous() for x in inputs)


def upstream_as_read(upstream: Upstream) -> tuple[Tensor | None, ...]:
    """What came from above and from the forward pass, as the kernels read it."""
    return *as_read(upstream[:3]), upstream.statistics.detach().contiguous()


def _kernel(name: str) -> NativeKernel:
    run_forward: Any = getattr(packing.native, f"{name}_forward", None)
    run_backward: Any = getattr(packing.native, f"{name}_backward", None)

    def arguments(packed, inputs, options, seed):
        """What the entry points take after the index. The seed is a tensor, so that drawing one is part of a
        compiled graph."""
        if packing.native is None:
            raise BackendError(f"erlangen::{name} needs the native extension: {packing.missing}")
        if name == "tiles" and (inputs.vector is not None or options.per_edge):
            raise BackendError("erlangen::tiles takes neither a vector nor a bias of edges")
        return as_read(inputs), options, 0 if seed is None else int(seed), threads(inputs.q, packed.pairs)

    def forward(packed, inputs, options, seed, made):
        given = arguments(packed, inputs, options, seed)
        run_forward(packed.tiles if name == "tiles" else packed.runs, *given, made)

    def backward(packed, inputs, options, seed, upstream, made):
        given = *arguments(packed, inputs, options, seed), upstream_as_read(upstream), made
        if name == "tiles":
            return run_backward(packed.tiles, *given)
        by_key = inputs.bias.detach().index_select(1, packed.order) if options.per_edge else None
        run_backward(packed.runs, packed.transposed, by_key, *given)

    def empty(inputs, with_statistics):
        return results(inputs.q, inputs.v, with_statistics)

    return NativeKernel(
        PairInputs, PairOptions, forward, backward, formula.attend, empty, gradients, packing.packed
    )


tiles, by_tiles = define("tiles", _kernel("tiles"))
edges, by_edges = define("edges", _kernel("edges"))


def attend(
    operator: Any,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    relation: packing.PackedNeighborhoods | Tensor,
    *,
    scale: float,
    dropout: float = 0.0,
    seed: Tensor | None = None,
    bias: Tensor | None = None,
    map: Map = IDENTITY,
    vector: Tensor | None = None,
    per_edge: bool = False,
) -> tuple[Tensor, Tensor]:
    """Attention of q (B, H, L, D) to k (B, Hkv, S, D) and v (B, Hkv, S, Dv): the output and the log-sum-exp.

    `operator` is `by_tiles` or `by_edges`, `relation` packed, or the index of one. Query head h reads key
    head h // (H / Hkv). `seed` decides what dropout drops. `bias` (1 or H, L + S - 1) adds
    bias[h, j - i + L - 1] to the score of query i and key j; entry S - 1 is the diagonal j = i + S - L. `map`
    is applied to scaled products before the bias is added. By edges, with `per_edge` the bias has shape
    (1 or H, edges), in the order of the edges; with a `vector` (1 or H, D) the score is
    sum over d of vector_d map(q_d + k_d) instead.

    >>> from erlangen.attention.binding import bind
    >>> from erlangen.relations import Causal
    >>> packed = bind(Causal(), batch=1, heads=1, queries=3, keys=3).packed
    >>> v = torch.eye(3).view(1, 1, 3, 3)
    >>> for operator in (by_tiles, by_edges) if available() else ():
    ...     out, lse = attend(operator, torch.zeros(1, 1, 3, 3), v, v, packed, scale=1.0)
    ...     assert torch.allclose(out[0, 0], torch.tensor([[1, 0, 0], [1 / 2, 1 / 2, 0], [1 / 3] * 3]))
    """
    q, k, v, bias = cast(q, k, v, bias, per_edge)
    if vector is not None:
        vector = vector.to(_accumulator(q.dtype))
    mapped: Any = () if map is IDENTITY else (map.code, map.a, map.b)
    return operator(
        PairInputs(q, k, v, bias, vector), relation, seed, PairOptions(scale, dropout, per_edge, *mapped)
    )


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
        entries = max(0, q.size(2) + k.size(2) - 1)
        if per_edge:
            entries = bias.size(-1)  # compared with the index by the kernel
        if bias.ndim != 2 or bias.size(0) not in (1, q.size(1)) or bias.size(1) != entries:
            raise ShapeError(
                f"bias must have shape (1 or {q.size(1)}, queries + keys - 1 = {entries}), "
                f"got {tuple(bias.shape)}"
            )
        bias = bias.to(_accumulator(q.dtype))
    return q, k, v, bias

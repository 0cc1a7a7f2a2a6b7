"""The native kernel over triples as a torch operator, `erlangen::triples`, with its gradient.

For query i and head h, with T_i the pairs it reads,

    lse_i = log sum_{(j, l) in T_i} exp(s_ijl),   out_i = sum_{(j, l) in T_i} exp(s_ijl - lse_i) v1_j * v2_l,
    s_ijl = scale sum_d q_id k1_jd k2_ld.

An empty T_i gives out_i = 0, lse_i = -inf and no gradient. The gradient is three passes: by query, by first
key and by second key. Each row sums alone what it writes, so that nothing is stored per triple and the result
does not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple
from weakref import ref

import numpy as np
import torch
from torch import Tensor

from erlangen.attention import packing
from erlangen.attention.binding import made_plain
from erlangen.attention.native import as_read, gradients, results, threads, upstream_as_read
from erlangen.attention.operators import NativeKernel, define
from erlangen.errors import BackendError, ErlangenError
from erlangen.relations import Triples

_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)

_run_forward: Any = getattr(packing.native, "triples_forward", None)
_run_backward: Any = getattr(packing.native, "triples_backward", None)


class TripleInputs(NamedTuple):
    """The tensors, of shape (batch, heads, n, dim)."""

    q: Tensor
    k1: Tensor
    k2: Tensor
    v1: Tensor
    v2: Tensor


class TripleOptions(NamedTuple):
    """The number."""

    scale: float


class PackedTriples:
    """Triples in the extension's memory, by query, by first key and by second key; and as a tensor, the
    index."""

    def __init__(self, bound: Triples) -> None:
        self.bound = bound

    @cached_property
    def native(self) -> Any:
        """What the kernels read."""
        return packing.native.Triples(self.bound.n, self.bound.indptr, self.bound.first, self.bound.second)

    @cached_property
    def index(self) -> Tensor:
        """The triples as a tensor of integers: a header, then (query, key, key) one after the other."""
        numbers = np.concatenate([[packing.TRIPLES, self.bound.n], self.bound.triples().ravel()])
        made = made_plain(lambda: torch.from_numpy(numbers.astype(np.int64)))
        return packing._remember(made, ref(self))

    @cached_property
    def edges(self) -> tuple[Tensor, Tensor, Tensor]:
        """Query, first key and second key of each triple."""
        return made_plain(lambda: tuple(torch.from_numpy(self.bound.triples()).unbind(1)))


def _decode(index: Tensor) -> PackedTriples:
    numbers = index.detach().cpu().numpy()
    try:
        if len(numbers) % 3 != 2 or numbers[0] != packing.TRIPLES:
            raise ValueError("it does not begin like them")
        return PackedTriples(Triples(int(numbers[1]), numbers[2:].reshape(-1, 3)))
    except (ValueError, ErlangenError) as error:
        raise BackendError(f"a tensor of {index.numel()} integers are no packed triples: {error}") from error


def _packed(index: Tensor) -> PackedTriples:
    return packing.packed(index, _decode)


def refuses(q: Tensor) -> str | None:
    """Why the native kernel cannot take these tensors, or None.

    >>> refuses(torch.zeros(1, dtype=torch.complex64))
    'it takes float32, float64, bfloat16 and float16, not torch.complex64'
    """
    if _run_forward is None:
        return f"the native extension is missing ({packing.missing or 'it was built before it had triples'})"
    if q.device.type not in ("cpu", "meta"):
        return f"it runs on CPU, not on {q.device}"
    if q.dtype not in _DTYPES:
        return f"it takes float32, float64, bfloat16 and float16, not {q.dtype}"
    return None


def reference(inputs: Sequence[Tensor], row: Tensor, first: Tensor, second: Tensor, scale: float) -> Any:
    """Output and log-sum-exp by the formulas as written, triple by triple, on gathered rows.

    Half precision is computed in float32.

    >>> ones, index = torch.ones(1, 1, 2, 1), torch.tensor([0])
    >>> reference([ones, ones, ones, ones, 3 * ones], index, index + 1, index, 1.0)[0].flatten()
    tensor([3., 0.])
    """
    given = inputs[0].dtype
    wide = torch.float32 if given in (torch.float16, torch.bfloat16) else given
    q, k1, k2, v1, v2 = (x.to(wide) for x in inputs)
    logits = scale * (q[:, :, row] * k1[:, :, first] * k2[:, :, second]).sum(-1)
    where = row.expand(logits.shape)
    top = logits.detach().new_full(q.shape[:3], -torch.inf)
    top = top.scatter_reduce(-1, where, logits.detach(), "amax")
    top = top.masked_fill(top == -torch.inf, 0.0)
    powers = (logits - top.gather(-1, where)).exp()
    total = powers.new_zeros(q.shape[:3]).scatter_add(-1, where, powers)
    none = total == 0
    total = total.masked_fill(none, 1.0)
    weights = powers / total.gather(-1, where)
    products = weights[..., None] * v1[:, :, first] * v2[:, :, second]
    out = products.new_zeros((*q.shape[:3], v1.shape[-1])).index_add(2, row, products)
    return out.to(given), (total.log() + top).masked_fill(none, -torch.inf)


def attend(inputs: Sequence[Tensor], triples: PackedTriples | Tensor, scale: float) -> Tensor:
    """The output for q, k1, k2, v1, v2 of shape (batch, heads, n, dim) and packed triples, or their index."""
    return _call(TripleInputs._make(inputs), triples, None, TripleOptions(scale))[0]


def _forward(packed, inputs, options, seed, made):
    if _run_forward is None:
        raise BackendError(
            f"erlangen::triples needs the native extension: {packing.missing or 'it is outdated'}"
        )
    _run_forward(
        packed.native, as_read(inputs), options.scale, threads(inputs.q, packed.bound.num_triples), made
    )


def _backward(packed, inputs, options, seed, upstream, made):
    upstream = upstream_as_read(upstream._replace(grad_lse=None))  # only the output is differentiated
    count = threads(inputs.q, packed.bound.num_triples)
    _run_backward(packed.native, as_read(inputs), options.scale, count, upstream, made)


def _formula(packed, inputs, options, seed):
    row, first, second = packed.edges
    return reference(inputs, row, first, second, options.scale)


def _results(inputs, with_statistics):
    return results(inputs.q, inputs.v1, with_statistics)


operator, _call = define(
    "triples",
    NativeKernel(TripleInputs, TripleOptions, _forward, _backward, _formula, _results, gradients, _packed),
)

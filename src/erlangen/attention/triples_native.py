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
from typing import Any

import torch
from torch import Tensor

from erlangen.attention import packing
from erlangen.attention.native import LITTLE, _accumulator, _like, _rows
from erlangen.errors import BackendError
from erlangen.relations import Triples

_ARGUMENTS = "Tensor q, Tensor k1, Tensor k2, Tensor v1, Tensor v2, int index, float scale"
_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)

_run_forward: Any = getattr(packing.native, "triples_forward", None)
_run_backward: Any = getattr(packing.native, "triples_backward", None)

_library = torch.library.Library("erlangen", "FRAGMENT")
_library.define(f"triples({_ARGUMENTS}) -> (Tensor, Tensor)")
_library.define(
    f"triples_backward(Tensor grad, Tensor out, Tensor lse, {_ARGUMENTS}) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor)"
)
operator = torch.ops.erlangen.triples.default
_gradient = torch.ops.erlangen.triples_backward.default


class PackedTriples:
    """Triples in the extension's memory, by query, by first key and by second key."""

    def __init__(self, bound: Triples) -> None:
        self.triples = bound.num_triples
        self.native = packing.native.Triples(bound.n, bound.indptr, bound.first, bound.second)


def number_of(bound: Triples) -> int:
    """The number under which the packed triples are known to the operator; they live as long as `bound`.

    >>> number_of(kept := Triples(1, [])) == number_of(kept) if _run_forward is not None else True
    True
    """
    own: Any = bound
    kind: Any = PackedTriples
    return packing.number_of(own, kind)


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


def attend(inputs: Sequence[Tensor], number: int, scale: float) -> Tensor:
    """The output for q, k1, k2, v1, v2 of shape (batch, heads, n, dim) and the triples of this number."""
    return operator(*inputs, number, scale)[0]


def _threads(q: Tensor, packed: PackedTriples) -> int:
    work = packed.triples * q.size(0) * q.size(1) * q.size(3)
    return 1 if work < LITTLE else torch.get_num_threads()


def _forward(q, k1, k2, v1, v2, number, scale):
    packed: Any = packing.packed(number)
    out, lse = _fake_forward(q, k1, k2, v1, v2, number, scale)
    inputs = [_rows(x) for x in (q, k1, k2, v1, v2)]
    _run_forward(packed.native, *inputs, out, lse, scale, _threads(q, packed))
    return out, lse


def _fake_forward(q, k1, k2, v1, v2, number, scale):
    return _like(q, v1.size(-1)), q.new_empty(q.shape[:3], dtype=_accumulator(q.dtype))


def _backward(grad, out, lse, q, k1, k2, v1, v2, number, scale):
    packed: Any = packing.packed(number)
    gradients = _fake_backward(grad, out, lse, q, k1, k2, v1, v2, number, scale)
    inputs = [_rows(x) for x in (q, k1, k2, v1, v2, grad, out)]
    _run_backward(packed.native, *inputs, lse.detach().contiguous(), *gradients, scale, _threads(q, packed))
    return gradients


def _fake_backward(grad, out, lse, q, k1, k2, v1, v2, number, scale):
    return tuple(_like(x, x.size(-1)) for x in (q, k1, k2, v1, v2))


def _setup(ctx, inputs, output):
    *tensors, ctx.number, ctx.scale = inputs
    # The packed triples must outlive their binding for as long as this graph may be differentiated.
    ctx.packed = packing._alive.get(ctx.number)
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*tensors, *output)


def _differentiate(ctx, grad, _):
    if grad is None:
        return (None,) * 7
    *tensors, out, lse = ctx.saved_tensors
    return *_gradient(grad, out, lse, *tensors, ctx.number, ctx.scale), None, None


def _missing(*_: Any) -> Any:
    raise BackendError(f"erlangen::triples needs the native extension: {packing.missing or 'it is outdated'}")


_library.impl("triples", _missing if _run_forward is None else _forward, "CPU")
_library.impl("triples_backward", _missing if _run_backward is None else _backward, "CPU")
torch.library.register_fake(operator, _fake_forward, lib=_library)
torch.library.register_fake(_gradient, _fake_backward, lib=_library)
torch.library.register_autograd(operator, _differentiate, setup_context=_setup, lib=_library)

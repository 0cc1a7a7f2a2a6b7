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

import typing
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.compiler import is_compiling
from torch.utils.dlpack import from_dlpack

from erlangen.attention import packing
from erlangen.errors import BackendError, ShapeError

_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
_ARGUMENTS = (
    "Tensor q, Tensor k, Tensor v, Tensor? bias, int index, float scale, float dropout, Tensor? seed, "
    "Tensor? vector=None, bool per_edge=False, int map=0, float a=0.0, float b=0.0"
)

_PLAIN = {Tensor, torch.nn.Parameter}
_dispatch_modes = torch._C._len_torch_dispatch_stack
_function_modes = torch._C._len_torch_function_stack
_transform: Any = torch._C._functorch.peek_interpreter_stack  # pyright: ignore[reportAttributeAccessIssue]

_library = torch.library.Library("erlangen", "DEF")


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
    return x if x.stride(-1) == 1 or x.size(-1) <= 1 else x.contiguous()


LITTLE = 1 << 20
"""Multiply-adds below which waking a second thread costs more than it saves."""


def _threads(q: Tensor, index: packing.PackedTiles | packing.PackedRuns) -> int:
    work = index.pairs * q.size(0) * q.size(1) * q.size(3)
    return 1 if work < LITTLE else torch.get_num_threads()


def _number(seed: Tensor | None) -> int:
    """The seed of the dropout; a tensor, so that drawing one is part of a compiled graph."""
    return 0 if seed is None else int(seed)


def _outputs(q: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    return _like(q, v.size(-1)), q.new_empty(q.shape[:3], dtype=_accumulator(q.dtype))


def _gradients(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, vector: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    dbias, dvector = (q.new_empty((0,)) if x is None else x.new_zeros(x.shape) for x in (bias, vector))
    return _like(q, q.size(-1)), _like(k, k.size(-1)), _like(v, v.size(-1)), dbias, dvector


def _whole(x: Tensor | None) -> Tensor | None:
    return None if x is None else x.detach().contiguous()


def _unwatched(*tensors: Tensor) -> bool:
    """Whether no compiler, transform or mode is watching operators, so that a kernel may be called directly.

    An operator written in Python costs tens of microseconds per call, as much as a whole decoding step.
    """
    return (
        not is_compiling()
        and _dispatch_modes() == 0
        and _function_modes() == 0
        and _transform() is None
        and _PLAIN.issuperset(map(type, tensors))
    )


def _define(name: str) -> tuple[Any, Any]:
    """Defines `erlangen::<name>` and its backward operator; returns the former, and a function that calls it.

    The function computes the same without the dispatcher where nobody is watching.
    """
    _library.define(f"{name}({_ARGUMENTS}) -> (Tensor, Tensor)")
    _library.define(
        f"{name}_backward(Tensor? grad, Tensor? grad_lse, Tensor out, Tensor lse, {_ARGUMENTS})"
        " -> (Tensor, Tensor, Tensor, Tensor, Tensor)"
    )
    operator = getattr(torch.ops.erlangen, name).default
    gradient = getattr(torch.ops.erlangen, f"{name}_backward").default
    run_forward = getattr(packing.native, f"{name}_forward", None)
    run_backward = getattr(packing.native, f"{name}_backward", None)

    def scores(vector, per_edge, map, a, b, *backward):
        """What both passes say of scores, after everything else."""
        if name == "edges":
            return map, a, b, per_edge, *backward[:1], vector, *backward[1:]
        if vector is not None or per_edge:
            raise BackendError(f"erlangen::{name} takes neither a vector nor a bias of edges")
        return map, a, b

    def forward(q, k, v, bias, index, scale, dropout, seed, vector=None, per_edge=False, map=0, a=0.0, b=0.0):
        if run_forward is None:
            raise BackendError(f"erlangen::{name} needs the native extension: {packing.missing}")
        index = packing.packed(index)
        out, lse = _outputs(q, v)
        run_forward(
            index.forward,
            *(_rows(q), _rows(k), _rows(v), _whole(bias), out, lse),
            *(scale, dropout, _number(seed), _threads(q, index)),
            *(scores(_whole(vector), per_edge, map, a, b) if vector is not None or per_edge or map else ()),
        )
        return out, lse

    def fake_forward(q, k, v, *others):
        return _outputs(q, v)

    def backward(
        grad, grad_lse, out, lse, q, k, v, bias, index, scale, dropout, seed,
        vector=None, per_edge=False, map=0, a=0.0, b=0.0
    ):  # fmt: skip
        if run_backward is None:
            raise BackendError(f"erlangen::{name} needs the native extension: {packing.missing}")
        index = packing.packed(index)
        dq, dk, dv, dbias, dvector = _gradients(q, k, v, bias, vector)
        grad = torch.zeros_like(out) if grad is None else grad
        q, grad, k, v = (_rows(x) for x in (q, grad, k, v))
        bias, vector = _whole(bias), _whole(vector)
        transposed = None
        if per_edge and bias is not None:
            transposed = bias.index_select(1, typing.cast(packing.PackedRuns, index).order())
        run_backward(
            *index.backward(),
            *(q, k, v, bias, grad, _whole(grad_lse), _rows(out), _whole(lse)),
            *(dq, dk, dv, None if bias is None else dbias),
            *(scale, dropout, _number(seed), _threads(q, index)),
            *scores(vector, per_edge, map, a, b, transposed, None if vector is None else dvector),
        )
        return dq, dk, dv, dbias, dvector

    def fake_backward(grad, grad_lse, out, lse, q, k, v, bias, index, scale, dropout, seed, vector=None, *_):
        return _gradients(q, k, v, bias, vector)

    def setup_context(ctx, inputs, output):
        q, k, v, bias, index, scale, dropout, seed, vector, *ctx.map = inputs
        ctx.numbers = (index, scale, dropout, seed)
        # The index must outlive its binding for as long as this graph may be differentiated.
        ctx.packed = packing._alive.get(ctx.numbers[0])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(q, k, v, bias, vector, *output)

    def differentiate(ctx, grad, grad_lse, gradient=gradient):
        if grad is None and grad_lse is None:
            return (None,) * 13
        q, k, v, bias, vector, out, lse = ctx.saved_tensors
        dq, dk, dv, dbias, dvector = gradient(
            grad, grad_lse, out, lse, q, k, v, bias, *ctx.numbers, vector, *ctx.map
        )
        dbias, dvector = None if bias is None else dbias, None if vector is None else dvector
        return dq, dk, dv, dbias, None, None, None, None, dvector, None, None, None, None

    def vmapped(info, dims, q, k, v, bias, index, scale, dropout, seed, vector=None, *map):
        if any(dim is not None for dim in (dims[3], *dims[8:9])):
            raise BackendError(
                f"erlangen::{name}: vmap over the bias or vector is not supported; loop over it"
            )
        folded = []
        for x, dim in zip((q, k, v), dims[:3], strict=True):
            batched = x.unsqueeze(0).expand(info.batch_size, *x.shape) if dim is None else x.movedim(dim, 0)
            folded.append(batched.flatten(0, 1))
        out, lse = operator(*folded, bias, index, scale, dropout, seed, vector, *map)
        size = (info.batch_size, -1)
        return (out.unflatten(0, size), lse.unflatten(0, size)), (0, 0)

    class Direct(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *inputs):
            output = forward(*inputs)
            setup_context(ctx, inputs, output)
            return output

        @staticmethod
        @once_differentiable
        def backward(ctx, *grads):  # pyright: ignore[reportIncompatibleMethodOverride]
            return differentiate(ctx, *grads, gradient=backward)

    def call(q, k, v, bias, index, scale, dropout, seed, vector=None, per_edge=False, map=0, a=0.0, b=0.0):
        inputs = (q, k, v, bias, index, scale, dropout, seed, vector, per_edge, map, a, b)
        if not _unwatched(q, k, v) or q.device.type != "cpu":
            return operator(*inputs)
        if torch.is_grad_enabled() and any(
            x is not None and x.requires_grad for x in (q, k, v, bias, vector)
        ):
            return Direct.apply(*inputs)
        return forward(*inputs)

    _library.impl(name, forward, "CPU")
    _library.impl(f"{name}_backward", backward, "CPU")
    torch.library.register_fake(operator, fake_forward, lib=_library)
    torch.library.register_fake(gradient, fake_backward, lib=_library)
    torch.library.register_autograd(operator, differentiate, setup_context=setup_context, lib=_library)
    torch.library.register_vmap(operator, vmapped, lib=_library)
    return operator, call


tiles, call_tiles = _define("tiles")
edges, call_edges = _define("edges")


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

"""Torch operators around native kernels: autograd of any order, `torch.func`, fake tensors, compile and
export.

An operator takes five tensors (any of which may be None where its schema says so), the index of a relation,
the seed of its dropout, and numbers. It returns the output, the log-sum-exp, and the statistics that its
gradient needs. Its `formula` computes output and log-sum-exp by differentiable PyTorch operations; it serves
whatever the kernels cannot: gradients of gradients, and forward-mode derivatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.compiler import is_compiling

from erlangen.attention.binding import made_plain

TENSORS = 5

_PLAIN = {Tensor, torch.nn.Parameter}
_dispatch_modes = torch._C._len_torch_dispatch_stack
_function_modes = torch._C._len_torch_function_stack
_functorch: Any = torch._C._functorch  # pyright: ignore[reportAttributeAccessIssue]
_transform = _functorch.peek_interpreter_stack

_library = torch.library.Library("erlangen", "DEF")

Tensors = Sequence[Any]
"""Five tensors, or None."""


def unwatched(*tensors: Tensor) -> bool:
    """Whether no compiler, transform or mode is watching operators, so that a kernel may be called directly.

    An operator written in Python costs tens of microseconds per call, as much as a whole decoding step.
    """
    return (
        not is_compiling()
        and not torch._C._is_tracing()
        and _dispatch_modes() == 0
        and _function_modes() == 0
        and _transform() is None
        and forward_ad._current_level < 0
        and _PLAIN.issuperset(map(type, tensors))
    )


class Kernel(NamedTuple):
    """What an operator is made of."""

    forward: Callable[..., tuple[Any, ...]]
    """forward(packed, tensors, seed, numbers, with_statistics): output, log-sum-exp, statistics or None."""
    backward: Callable[..., tuple[Tensor, ...]]
    """backward(packed, tensors, seed, numbers, grad, grad_lse, out, statistics): the gradients of the
    tensors, an empty tensor for None."""
    formula: Callable[..., tuple[Tensor, Tensor]]
    """formula(packed, tensors, seed, numbers): output and log-sum-exp, differentiable."""
    outputs: Callable[[Tensors], tuple[Tensor, ...]]
    """Empty tensors for output, log-sum-exp and statistics."""
    gradients: Callable[[Tensors], tuple[Tensor, ...]]
    """Empty tensors for the gradients of the tensors."""
    packed: Callable[[Tensor], Any]
    """What was packed as an index."""
    dropout: Callable[[Sequence[Any]], float]
    """The dropout among the numbers."""


def define(name: str, tensors: str, numbers: str, kernel: Kernel) -> tuple[Any, Callable[..., Any]]:
    """Defines `erlangen::<name>` and its gradient; returns the operator and a function that calls it.

    `tensors` and `numbers` are the parts of its schema. The function takes the packed relation (or its index)
    where the operator takes the index, and leaves out the dispatcher where nobody is watching."""
    # Where a graph breaks inside a transform, Dynamo would look into what binds a relation, and stumble.
    kernel = kernel._replace(formula=torch.compiler.disable(kernel.formula))
    arguments = f"{tensors}, Tensor index, Tensor? seed, {numbers}"
    _library.define(f"{name}({arguments}) -> (Tensor, Tensor, Tensor)")
    _library.define(
        f"{name}_backward(Tensor? grad, Tensor? grad_lse, Tensor out, Tensor statistics, {arguments})"
        " -> (Tensor, Tensor, Tensor, Tensor, Tensor)"
    )
    operator = getattr(torch.ops.erlangen, name).default
    gradient = getattr(torch.ops.erlangen, f"{name}_backward").default

    def forward(*inputs):
        given, index, seed, *rest = _split(inputs)
        return kernel.forward(kernel.packed(index), given, seed, rest, True)

    def backward(grad, grad_lse, out, statistics, *inputs):
        given, index, seed, *rest = _split(inputs)
        grad = torch.zeros_like(out) if grad is None else grad
        return kernel.backward(kernel.packed(index), given, seed, rest, grad, grad_lse, out, statistics)

    def setup_context(ctx, inputs, output):
        given, ctx.relation, seed, *ctx.rest = _split(inputs)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(output[2])
        ctx.save_for_backward(*given, seed, output[0], output[2])

    def differentiate(ctx, grad, grad_lse, _):
        *given, seed, out, statistics = ctx.saved_tensors
        nothing = (None,) * (len(ctx.rest) + 2)
        if grad is None and grad_lse is None:
            return *given_none(), *nothing
        watched = [x for x in (*given, grad, grad_lse) if x is not None]
        if torch.is_grad_enabled() and any(x.requires_grad for x in watched) and _readable(ctx.relation):
            # A gradient that will be differentiated itself: the kernels have no second pass.
            return *by_formula(given, ctx.relation, seed, ctx.rest, grad, grad_lse), *nothing
        if isinstance(ctx.relation, Tensor) or not unwatched(*watched):
            found = gradient(grad, grad_lse, out, statistics, *given, _index(ctx.relation), seed, *ctx.rest)
        else:
            grad = torch.zeros_like(out) if grad is None else grad
            found = kernel.backward(ctx.relation, given, seed, ctx.rest, grad, grad_lse, out, statistics)
        return *(None if x is None else d for x, d in zip(given, found, strict=True)), *nothing

    def unpacked(relation):
        if not isinstance(relation, Tensor):
            return relation
        index = _unwrapped(relation)
        if not _readable(index):
            raise NotImplementedError(
                f"this derivative of erlangen::{name} (forward mode, or of a gradient) is taken by a formula "
                "that reads the relation, and its index has no numbers here: take the derivative outside of "
                "torch.compile and of vmap over the index"
            )
        return made_plain(lambda: kernel.packed(index))

    def given_none():
        return (None,) * TENSORS

    def by_formula(given, relation, seed, rest, grad, grad_lse):
        relation = unpacked(relation)
        there = [n for n, x in enumerate(given) if x is not None]

        def run(*tensors):
            full: list[Any] = [None] * TENSORS
            for n, x in zip(there, tensors, strict=True):
                full[n] = x
            return kernel.formula(relation, full, seed, rest)

        (out, lse), pull, *_ = torch.func.vjp(run, *(given[n] for n in there))
        grad = torch.zeros_like(out) if grad is None else grad
        found = pull((grad.to(out.dtype), torch.zeros_like(lse) if grad_lse is None else grad_lse))
        by_place = dict(zip(there, found, strict=True))
        return [by_place.get(n) for n in range(TENSORS)]

    class Direct(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *inputs):
            given, relation, seed, *rest = _split(inputs)
            output = kernel.forward(relation, given, seed, rest, True)
            setup_context(ctx, inputs, output)
            return output

        @staticmethod
        def backward(ctx, *grads):  # pyright: ignore[reportIncompatibleMethodOverride]
            return differentiate(ctx, *grads)

    class Transformed(torch.autograd.Function):
        """The same for `torch.func`, whose form of a function takes tens of microseconds more."""

        @staticmethod
        def forward(*inputs):  # pyright: ignore[reportIncompatibleMethodOverride]
            given, relation, seed, *rest = _split(inputs)
            if isinstance(relation, Tensor) or not unwatched(*(x for x in given if x is not None)):
                return operator(*given, _index(relation), seed, *rest)
            return kernel.forward(relation, given, seed, rest, True)

        @staticmethod
        def backward(ctx, *grads):  # pyright: ignore[reportIncompatibleMethodOverride]
            return differentiate(ctx, *grads)

        @staticmethod
        def vmap(info, dims, *inputs):  # pyright: ignore[reportIncompatibleMethodOverride]
            return batched(Transformed.apply, info.batch_size, dims, inputs, 0)

    Transformed.setup_context = staticmethod(setup_context)  # pyright: ignore[reportAttributeAccessIssue]

    class Again(torch.autograd.Function):
        """The gradient, with derivatives of its own: those of the formula."""

        @staticmethod
        def forward(*inputs):  # pyright: ignore[reportIncompatibleMethodOverride]
            return gradient(*inputs)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs[: 5 + TENSORS], inputs[5 + TENSORS])
            ctx.rest = inputs[6 + TENSORS :]

        @staticmethod
        def backward(ctx, *grads):  # pyright: ignore[reportIncompatibleMethodOverride]
            inputs = [*ctx.saved_tensors, *ctx.rest]
            places = [n for n, x in enumerate(inputs) if _real(x) and n not in (2, 3, 4 + TENSORS)]

            def run(*tensors):
                full = list(inputs)
                for n, x in zip(places, tensors, strict=True):
                    full[n] = x
                return gradient_by_formula(*full)

            out, pull, *_ = torch.func.vjp(run, *(inputs[n] for n in places))
            found = dict(
                zip(places, pull(tuple(g.to(x.dtype) for g, x in zip(grads, out, strict=True))), strict=True)
            )
            return tuple(found.get(n) for n in range(len(inputs)))

        @staticmethod
        def vmap(info, dims, *inputs):  # pyright: ignore[reportIncompatibleMethodOverride]
            return batched(Again.apply, info.batch_size, dims, inputs, 4)

    def output_by_formula(*inputs):
        given, index, seed, *rest = _split(inputs)
        out, lse = kernel.formula(unpacked(index), given, seed, rest)
        return out, lse, out.new_zeros(kernel.outputs(given)[2].shape, dtype=lse.dtype)

    def gradient_by_formula(grad, grad_lse, out, statistics, *inputs):
        given, index, seed, *rest = _split(inputs)
        found = by_formula(given, index, seed, rest, grad, grad_lse)
        return tuple(out.new_empty((0,)) if x is None else x for x in found)

    def batched(run, size, dims, inputs, leading):
        """One call over a larger batch; item by item where parameters or dropout would mix the items.

        The first `leading` inputs belong to the backward pass. It sums the gradients of parameters over the
        batch."""
        given = inputs[leading : leading + TENSORS]
        parameters = [
            n for n, x in enumerate(given, leading) if x is not None and x.dim() - (dims[n] is not None) != 4
        ]
        seed, rest = inputs[leading + TENSORS + 1], inputs[leading + TENSORS + 2 :]
        mixed = any(leading or dims[n] is not None for n in parameters)
        if mixed or kernel.dropout(rest) or (seed is not None and dims[leading + TENSORS + 1] is not None):
            each = [
                run(
                    *(
                        x if dim is None or not isinstance(x, Tensor) else x.select(dim, n)
                        for x, dim in zip(inputs, dims, strict=True)
                    )
                )
                for n in range(size)
            ]
            return tuple(map(torch.stack, zip(*each, strict=True))), (0,) * len(each[0])

        def fold(n, x):
            if not isinstance(x, Tensor) or n >= leading + TENSORS or n in parameters:
                return x
            dim = dims[n]
            x = x.unsqueeze(0).expand(size, *x.shape) if dim is None else x.movedim(dim, 0)
            return x.flatten(0, 1)

        found = run(*(fold(n, x) for n, x in enumerate(inputs)))
        whole = tuple(x.unflatten(0, (size, -1)) if x.dim() > 1 else x for x in found)
        return whole, tuple(0 if x.dim() > 1 else None for x in found)

    def call(*inputs):
        given, relation, seed, rest = (
            inputs[:TENSORS],
            inputs[TENSORS],
            inputs[TENSORS + 1],
            inputs[TENSORS + 2 :],
        )
        watched = [x for x in given if x is not None]
        if unwatched(*watched) and watched[0].is_cpu:
            relation = kernel.packed(relation) if isinstance(relation, Tensor) else relation
            if torch.is_grad_enabled() and any(x.requires_grad for x in watched):
                return Direct.apply(*given, relation, seed, *rest)[:2]  # pyright: ignore[reportOptionalSubscript]
            return kernel.forward(relation, given, seed, rest, False)[:2]
        if not is_compiling() and forward_ad._current_level >= 0:
            return kernel.formula(unpacked(relation), given, seed, rest)
        if not is_compiling() and _transform() is not None:
            return Transformed.apply(*inputs)[:2]  # pyright: ignore[reportOptionalSubscript]
        return operator(*given, _index(relation), seed, *rest)[:2]

    _library.impl(name, forward, "CPU")
    _library.impl(f"{name}_backward", backward, "CPU")
    torch.library.register_fake(operator, lambda *inputs: kernel.outputs(inputs[:TENSORS]), lib=_library)
    torch.library.register_fake(
        gradient, lambda *inputs: kernel.gradients(inputs[4 : 4 + TENSORS]), lib=_library
    )
    _differentiable(operator, name, Transformed.apply, output_by_formula)
    _differentiable(gradient, f"{name}_backward", Again.apply, gradient_by_formula)
    return operator, call


def _differentiable(operator: Any, name: str, apply: Any, by_formula: Callable[..., Any]) -> None:
    """Derivatives of an operator, whoever calls it: a program that was exported or traced, compiled code.

    `apply` is that of an `autograd.Function` around it. `torch.library.register_autograd` has no forward mode
    (tangents would be dropped without a word) and does not take the transforms of `torch.func`."""

    def autograd(keys, *inputs):
        if forward_ad._current_level >= 0 and any(map(_has_tangent, inputs)):
            return by_formula(*inputs)
        if torch.is_grad_enabled() and any(isinstance(x, Tensor) and x.requires_grad for x in inputs):
            return apply(*inputs)
        with torch._C._AutoDispatchBelowAutograd():
            return operator.redispatch(keys & torch._C._after_autograd_keyset, *inputs)

    def transformed(*inputs):
        return by_formula(*inputs) if forward_ad._current_level >= 0 else apply(*inputs)

    _library.impl(name, autograd, "Autograd", with_keyset=True)
    _library.impl(name, transformed, "FuncTorchDynamicLayerFrontMode")


def _real(x: Any) -> bool:
    return isinstance(x, Tensor) and x.is_floating_point()


def _has_tangent(x: Any) -> bool:
    return _real(x) and forward_ad.unpack_dual(x).tangent is not None


def _unwrapped(index: Tensor) -> Tensor:
    """The index under the levels of `torch.func.grad` and `jvp`, which are of no concern to integers."""
    while _functorch.is_gradtrackingtensor(index):
        index = _functorch.get_unwrapped(index)
    return index


def _readable(relation: Any) -> bool:
    """Whether the numbers of an index are there: not so while a compiler traces, or where vmap runs over
    it."""
    if not isinstance(relation, Tensor):
        return True
    relation = _unwrapped(relation)
    return type(relation) in _PLAIN and not _functorch.is_batchedtensor(relation)


def _split(inputs: Sequence[Any]) -> list[Any]:
    return [inputs[:TENSORS], *inputs[TENSORS:]]


def _index(relation: Any) -> Tensor:
    return relation if isinstance(relation, Tensor) else relation.index

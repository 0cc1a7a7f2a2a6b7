"""Torch operators around native kernels: autograd of any order, `torch.func`, fake tensors, compile and
export.

An operator takes its inputs (tensors), the index of a relation, the seed of its dropout, and its options
(numbers). Inputs and options are named tuples, of which the schema and the extension's argument structs are
made. It returns the output, the log-sum-exp, and the statistics that its gradient needs. Its `formula`
computes output and log-sum-exp by differentiable PyTorch operations: the fallback for whatever the kernels
cannot, gradients of gradients and forward-mode derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, get_type_hints

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.compiler import is_compiling

from erlangen.attention.binding import made_plain

_PLAIN = {Tensor, torch.nn.Parameter}
_dispatch_modes = torch._C._len_torch_dispatch_stack
_function_modes = torch._C._len_torch_function_stack
_functorch: Any = torch._C._functorch  # pyright: ignore[reportAttributeAccessIssue]
_transform = _functorch.peek_interpreter_stack

_library = torch.library.Library("erlangen", "DEF")

_SCHEMA = {Tensor: "Tensor", Tensor | None: "Tensor?", float: "float", bool: "bool", int: "int"}


def _schema(fields: type) -> str:
    return ", ".join(f"{_SCHEMA[kind]} {name}" for name, kind in get_type_hints(fields).items())


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


class NativeKernel(NamedTuple):
    """What an operator is made of."""

    inputs: Any
    """The named tuple of its tensors; where one is None, so is the gradient."""
    options: Any
    """The named tuple of its numbers, `dropout` among them if it has any."""
    forward: Callable[..., None]
    """forward(packed, inputs, options, seed, results): fills the results."""
    backward: Callable[..., None]
    """backward(packed, inputs, options, seed, upstream, gradients): fills the gradients."""
    formula: Callable[..., tuple[Tensor, Tensor]]
    """formula(packed, inputs, options, seed): output and log-sum-exp, differentiable."""
    results: Callable[..., tuple[Any, ...]]
    """results(inputs, with_statistics): empty tensors for output, log-sum-exp and statistics, or None."""
    gradients: Callable[..., tuple[Tensor, ...]]
    """gradients(inputs): tensors to be filled with the gradients, and any tensor for None."""
    packed: Callable[[Tensor], Any]
    """What was packed as an index."""


class Upstream(NamedTuple):
    """What the backward pass gets: the gradients of the results, and the results."""

    grad: Tensor
    grad_lse: Tensor | None
    out: Tensor
    statistics: Tensor


def define(name: str, kernel: NativeKernel) -> tuple[Any, Callable[..., Any]]:
    """Defines `erlangen::<name>` and its gradient; returns the operator and a function that calls it.

    The operator takes the fields of the inputs, the index, the seed, and the fields of the options. The
    function takes the packed relation where the operator takes the index, and leaves out the dispatcher where
    nobody is watching."""
    # Where a graph breaks inside a transform, Dynamo would look into what binds a relation, and stumble.
    kernel = kernel._replace(formula=torch.compiler.disable(kernel.formula))
    arguments = f"{_schema(kernel.inputs)}, Tensor index, Tensor? seed, {_schema(kernel.options)}"
    count = len(kernel.inputs._fields)
    _library.define(f"{name}({arguments}) -> (Tensor, Tensor, Tensor)")
    _library.define(
        f"{name}_backward(Tensor? grad, Tensor? grad_lse, Tensor out, Tensor statistics, {arguments})"
        f" -> ({', '.join(['Tensor'] * count)})"
    )
    operator = getattr(torch.ops.erlangen, name).default
    gradient = getattr(torch.ops.erlangen, f"{name}_backward").default

    def split(flat):
        return kernel.inputs(*flat[:count]), flat[count], flat[count + 1], kernel.options(*flat[count + 2 :])

    def run_forward(relation, inputs, options, seed, with_statistics=True):
        made = kernel.results(inputs, with_statistics)
        kernel.forward(relation, inputs, options, seed, made)
        return made

    def run_backward(relation, inputs, options, seed, grad, grad_lse, out, statistics):
        upstream = Upstream(torch.zeros_like(out) if grad is None else grad, grad_lse, out, statistics)
        made = kernel.gradients(inputs)
        filled = tuple(None if x is None else d for x, d in zip(inputs, made, strict=True))
        kernel.backward(relation, inputs, options, seed, upstream, filled)
        return made

    def forward(*flat):
        inputs, index, seed, options = split(flat)
        return run_forward(kernel.packed(index), inputs, options, seed)

    def backward(grad, grad_lse, out, statistics, *flat):
        inputs, index, seed, options = split(flat)
        return run_backward(kernel.packed(index), inputs, options, seed, grad, grad_lse, out, statistics)

    def setup_context(ctx, inputs, output):
        given, ctx.relation, seed, ctx.options = split(inputs)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(output[2])
        ctx.save_for_backward(*given, seed, output[0], output[2])

    def differentiate(ctx, grad, grad_lse, _):
        *given, seed, out, statistics = ctx.saved_tensors
        inputs, relation, options = kernel.inputs(*given), ctx.relation, ctx.options
        nothing = (None,) * (len(options) + 2)
        if grad is None and grad_lse is None:
            return *(None for _ in inputs), *nothing
        watched = [x for x in (*inputs, grad, grad_lse) if x is not None]
        if torch.is_grad_enabled() and any(x.requires_grad for x in watched) and _readable(relation):
            # A gradient that will be differentiated itself: the kernels have no second pass.
            return *by_formula(inputs, relation, options, seed, grad, grad_lse), *nothing
        if isinstance(relation, Tensor) or not unwatched(*watched):
            found = gradient(grad, grad_lse, out, statistics, *inputs, _index(relation), seed, *options)
        else:
            found = run_backward(relation, inputs, options, seed, grad, grad_lse, out, statistics)
        return *(None if x is None else d for x, d in zip(inputs, found, strict=True)), *nothing

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

    def by_formula(inputs, relation, options, seed, grad, grad_lse):
        relation = unpacked(relation)
        given = {name: x for name, x in inputs._asdict().items() if x is not None}

        def run(*tensors):
            tracked = inputs._replace(**dict(zip(given, tensors, strict=True)))
            return kernel.formula(relation, tracked, options, seed)

        (out, lse), pull, *_ = torch.func.vjp(run, *given.values())
        grad = torch.zeros_like(out) if grad is None else grad
        found = pull((grad.to(out.dtype), torch.zeros_like(lse) if grad_lse is None else grad_lse))
        by_name = dict(zip(given, found, strict=True))
        return [by_name.get(name) for name in inputs._fields]

    class Direct(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *flat):
            inputs, relation, seed, options = split(flat)
            output = run_forward(relation, inputs, options, seed)
            setup_context(ctx, flat, output)
            return output

        @staticmethod
        def backward(ctx, *grads):  # pyright: ignore[reportIncompatibleMethodOverride]
            return differentiate(ctx, *grads)

    class Transformed(torch.autograd.Function):
        """The same for `torch.func`, whose form of a function takes tens of microseconds more."""

        @staticmethod
        def forward(*flat):  # pyright: ignore[reportIncompatibleMethodOverride]
            inputs, relation, seed, options = split(flat)
            if isinstance(relation, Tensor) or not unwatched(*(x for x in inputs if x is not None)):
                return operator(*inputs, _index(relation), seed, *options)
            return run_forward(relation, inputs, options, seed)

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
        def forward(*flat):  # pyright: ignore[reportIncompatibleMethodOverride]
            return gradient(*flat)

        @staticmethod
        def setup_context(ctx, inputs, output):
            tensors = 6 + count  # four of the backward pass, the inputs, the index and the seed
            ctx.save_for_backward(*inputs[:tensors])
            ctx.options = inputs[tensors:]

        @staticmethod
        def backward(ctx, *grads):  # pyright: ignore[reportIncompatibleMethodOverride]
            flat = [*ctx.saved_tensors, *ctx.options]
            # The gradient depends on what comes from above and on the inputs; results follow from these.
            positions = [n for n, x in enumerate(flat) if _real(x) and n in (0, 1, *range(4, 4 + count))]

            def run(*tensors):
                full = list(flat)
                for n, x in zip(positions, tensors, strict=True):
                    full[n] = x
                return gradient_by_formula(*full)

            out, pull, *_ = torch.func.vjp(run, *(flat[n] for n in positions))
            found = pull(tuple(g.to(x.dtype) for g, x in zip(grads, out, strict=True)))
            by_position = dict(zip(positions, found, strict=True))
            return tuple(by_position.get(n) for n in range(len(flat)))

        @staticmethod
        def vmap(info, dims, *inputs):  # pyright: ignore[reportIncompatibleMethodOverride]
            return batched(Again.apply, info.batch_size, dims, inputs, 4)

    def output_by_formula(*flat):
        inputs, index, seed, options = split(flat)
        out, lse = kernel.formula(unpacked(index), inputs, options, seed)
        return out, lse, out.new_zeros(kernel.results(inputs, True)[2].shape, dtype=lse.dtype)

    def gradient_by_formula(grad, grad_lse, out, statistics, *flat):
        inputs, index, seed, options = split(flat)
        found = by_formula(inputs, index, options, seed, grad, grad_lse)
        return tuple(out.new_empty((0,)) if x is None else x for x in found)

    def batched(run, size, dims, inputs, leading):
        """One call over a larger batch; item by item where parameters or dropout would mix the items.

        The first `leading` inputs belong to the backward pass. It sums the gradients of parameters over the
        batch."""
        given, _, seed, options = split(inputs[leading:])
        parameters = [
            n for n, x in enumerate(given, leading) if x is not None and x.dim() - (dims[n] is not None) != 4
        ]
        mixed = any(leading or dims[n] is not None for n in parameters)
        seeds = seed is not None and dims[leading + count + 1] is not None
        if mixed or seeds or getattr(options, "dropout", 0.0):
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
            if not isinstance(x, Tensor) or n >= leading + count or n in parameters:
                return x
            dim = dims[n]
            x = x.unsqueeze(0).expand(size, *x.shape) if dim is None else x.movedim(dim, 0)
            return x.flatten(0, 1)

        found = run(*(fold(n, x) for n, x in enumerate(inputs)))
        whole = tuple(x.unflatten(0, (size, -1)) if x.dim() > 1 else x for x in found)
        return whole, tuple(0 if x.dim() > 1 else None for x in found)

    def call(inputs, relation, seed, options):
        watched = [x for x in inputs if x is not None]
        if unwatched(*watched) and watched[0].is_cpu:
            relation = kernel.packed(relation) if isinstance(relation, Tensor) else relation
            if torch.is_grad_enabled() and any(x.requires_grad for x in watched):
                return Direct.apply(*inputs, relation, seed, *options)[:2]  # pyright: ignore[reportOptionalSubscript]
            return run_forward(relation, inputs, options, seed, with_statistics=False)[:2]
        if not is_compiling() and forward_ad._current_level >= 0:
            return kernel.formula(unpacked(relation), inputs, options, seed)
        if not is_compiling() and _transform() is not None:
            return Transformed.apply(*inputs, relation, seed, *options)[:2]  # pyright: ignore[reportOptionalSubscript]
        return operator(*inputs, _index(relation), seed, *options)[:2]

    _library.impl(name, forward, "CPU")
    _library.impl(f"{name}_backward", backward, "CPU")
    torch.library.register_fake(operator, lambda *flat: kernel.results(split(flat)[0], True), lib=_library)
    torch.library.register_fake(gradient, lambda *flat: kernel.gradients(split(flat[4:])[0]), lib=_library)
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


def _index(relation: Any) -> Tensor:
    return relation if isinstance(relation, Tensor) else relation.index

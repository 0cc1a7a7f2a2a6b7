"""Mask functions of transformers as expressions of the query's and the key's position.

A mask function f(batch, head, query, key) -> bool is traced: called once, with symbols for its indices, and
what it computes with them is written down. Nothing is evaluated and no closure is opened, so that the
compiler follows it as well."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

MaskFunction = Callable[[Any, Any, Any, Any], Any]

Shape = Any
"""An expression as nested tuples ("le", "K", "Q"), ("at", ("#", 0), "B", "K"), ...; its leaves are the
symbols "B", "H", "Q", "K", numbers, and ("#", n) for the n-th tensor."""


class Written(NamedTuple):
    """What a mask function computes: an expression, and the tensors that it reads."""

    shape: Shape
    tensors: tuple[Tensor, ...] = ()


def _written_as(word: str) -> Any:
    return lambda *terms: Term(word, *terms)


class Term:
    """An index, or what a mask function computes from it."""

    device = None
    __hash__: Any = None

    def __init__(self, *parts: Any) -> None:
        self.parts = parts

    __add__, __sub__, __mul__, __mod__, __floordiv__ = map(
        _written_as, ("add", "sub", "mul", "mod", "floordiv")
    )
    __lt__, __le__, __gt__, __ge__ = map(_written_as, ("lt", "le", "gt", "ge"))
    __eq__, __ne__ = _written_as("eq"), _written_as("ne")
    __and__, __or__, __invert__, __abs__ = map(_written_as, ("and", "or", "not", "abs"))

    def __bool__(self) -> bool:
        return _no_expression()

    def to(self, device: None) -> Term:
        """The same: a term has no device, and no type to be changed."""
        return self if device is None else _no_expression()

    def new_ones(self, size: tuple[()], dtype: torch.dtype) -> Term:
        """True."""
        return Term("true") if size == () and dtype == torch.bool else _no_expression()

    def new_zeros(self, size: tuple[()], dtype: torch.dtype) -> Term:
        """False."""
        return Term("false") if size == () and dtype == torch.bool else _no_expression()


def _no_expression() -> Any:
    raise TypeError("this mask function does what has no expression")


class _Reading(TorchFunctionMode):
    """While a mask function is called, indexing a tensor by terms gives a term."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is Tensor.__getitem__:
            tensor, at = args
            indices = at if isinstance(at, tuple) else (at,)
            if any(isinstance(one, Term) for one in indices):
                return Term("at", tensor, *indices)
        return func(*args, **(kwargs or {}))


def written(function: MaskFunction) -> Written | None:
    """The expression of a mask function; None where it does something that has none.

    >>> from transformers import masking_utils
    >>> written(masking_utils.sliding_window_causal_mask_function(4)).shape
    ('and', ('and', ('true',), ('gt', 'K', ('sub', 'Q', 4))), ('le', 'K', 'Q'))
    >>> written(masking_utils.padding_mask_function(torch.ones(2, 3)))
    Written(shape=('at', ('#', 0), 'B', 'K'), tensors=(tensor([[1., 1., 1.],
            [1., 1., 1.]]),))
    >>> written(lambda b, h, i, j: torch.sin(i)) is None
    True
    """
    if torch.compiler.is_compiling():
        return _written(function)
    try:
        return _written(function)
    except Exception:  # a function of the user's own may raise anything when it is given symbols
        return None


def _written(function: MaskFunction) -> Written:
    with _Reading():
        said = function(Term("B"), Term("H"), Term("Q"), Term("K"))
    tensors: list[Tensor] = []
    shape = _shape(said, tensors)
    return Written(shape, tuple(tensors))


def _shape(said: Any, tensors: list[Tensor]) -> Shape:
    if isinstance(said, Term):
        if len(said.parts) == 1 and said.parts[0] in ("B", "H", "Q", "K"):
            return said.parts[0]
        return (said.parts[0], *[_shape(part, tensors) for part in said.parts[1:]])
    if isinstance(said, Tensor):
        for n, known in enumerate(tensors):
            if known is said:
                return ("#", n)
        tensors.append(said)
        return ("#", len(tensors) - 1)
    return said

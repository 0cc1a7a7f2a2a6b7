"""Replacing a function wherever it was imported by name, and putting it back."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from erlangen.audit.capture.session import Session


Rule = tuple[Callable[[Any], bool], Callable[[Any], Any]]
"""Which functions to replace, and by what."""

# These never hold references to attention functions of others; looking through them would cost the most.
_PASSED_OVER = {
    *sys.stdlib_module_names,
    "numpy",
    "scipy",
    "sympy",
    "matplotlib",
    "hypothesis",
    "_pytest",
    "torch",
}
_LOOKED_INTO = {"torch.nn.attention.flex_attention"}


@contextmanager
def replaced(model: nn.Module, rules: list[Rule]) -> Iterator[None]:
    """Replace every function that a rule matches by its wrapped value, for the time of a block.

    `from library import function` copies the reference, so patching the library alone would miss callers: all
    names of imported modules are looked through, and the attributes of the model's own modules.
    """
    undo: list[tuple[dict[str, Any], str, Any]] = []
    wrapped: dict[int, Any] = {}
    try:
        for names in _namespaces(model) if rules else ():
            for name, value in list(names.items()):
                if type(value) is not FunctionType:
                    continue
                for matches, wrap in rules:
                    if matches(value):
                        replacement = wrapped.setdefault(id(value), wrap(value))
                        undo.append((names, name, value))
                        names[name] = replacement
                        break
        yield
    finally:
        for names, name, value in undo:
            names[name] = value


def _namespaces(model: nn.Module) -> Iterator[dict[str, Any]]:
    for key, module in list(sys.modules.items()):
        if key.partition(".")[0] in _PASSED_OVER and key not in _LOOKED_INTO:
            continue
        names = getattr(module, "__dict__", None)
        if isinstance(names, dict):
            yield names
    for module in model.modules():
        yield vars(module)


def watched(session: Session, function: Any, record: Callable[..., Any]) -> Any:
    """An attention function that hands each of its calls to the session, run as if nobody watched.

    Its body must not see the active function mode: compiled code cannot be traced through one, other code
    takes another path under one.
    """

    @wraps(function)
    def watching(
        query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *args: Any, **kwargs: Any
    ) -> Any:
        if session.frames.paused:
            return function(query, key, value, *args, **kwargs)
        session.frames.paused = True
        try:
            with torch._C.DisableTorchFunction():
                out = function(query, key, value, *args, **kwargs)
        finally:
            session.frames.paused = False
        session.emit(lambda: record(session, function, query, key, value, args, kwargs))
        return out

    return watching

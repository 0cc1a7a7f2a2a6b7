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


@contextmanager
def replaced(model: nn.Module, matches: Callable[[Any], bool], wrap: Callable[[Any], Any]) -> Iterator[None]:
    """Replace every function that matches by its wrapped value, for the time of a block.

    `from library import function` copies the reference, so patching the library alone would miss callers: all
    names of imported modules are looked through, and the attributes of the model's own modules.
    """
    undo: list[tuple[dict[str, Any], str, Any]] = []
    wrapped: dict[int, Any] = {}
    try:
        for module in (*sys.modules.values(), *model.modules()):
            names = getattr(module, "__dict__", None)
            if not isinstance(names, dict):
                continue
            for name, value in list(names.items()):
                if type(value) is FunctionType and matches(value):
                    replacement = wrapped.setdefault(id(value), wrap(value))
                    undo.append((names, name, value))
                    names[name] = replacement
        yield
    finally:
        for names, name, value in undo:
            names[name] = value


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

"""Which module's code is running: a stack kept by forward hooks that are removed afterwards."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from erlangen.audit.capture.tape import tensors


@dataclass(eq=False)
class Frame:
    """One running call of a module."""

    module: nn.Module
    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    opaque: bool = False
    """Whether the softmax seen inside does not run over the keys of one product: then only the module as a
    whole can be measured."""
    source: str | None = None
    """The line whose step made it opaque."""
    calls: int = 0
    """How many calls its own code has made so far."""

    @property
    def hidden_states(self) -> torch.Tensor | None:
        """The first floating tensor of shape (batch, length, dim) among the arguments."""
        given = tensors((self.args, self.kwargs))
        return next((t for t in given if t.is_floating_point() and t.dim() == 3), None)


class Frames:
    """The stack of running module calls, innermost last."""

    def __init__(self, model: nn.Module, leaving: Callable[[Frame], None]) -> None:
        self._names = {id(module): name for name, module in model.named_modules()}
        self._model = model
        self._leaving = leaving
        self.stack: list[Frame] = []
        self.paused = False
        self._thread = 0

    def watch(self, at_end: Callable[[Callable[[], None]], None]) -> None:
        """Follow the module calls of this thread; `at_end` is told how that ends."""
        self._thread = threading.get_ident()
        at_end(self.stack.clear)
        for module in self._model.modules():
            if not isinstance(module, torch.jit.ScriptModule):
                at_end(module.register_forward_pre_hook(self._enter, with_kwargs=True).remove)
                at_end(module.register_forward_hook(self._leave, always_call=True).remove)

    def name(self) -> str:
        """The name of the innermost running module that has parts or parameters of its own."""
        frame = self.owner()
        return "" if frame is None else frame.name

    def owner(self) -> Frame | None:
        """The innermost running module call, passing over wrappers such as `nn.Softmax` and `nn.Dropout`."""
        for frame in reversed(self.stack):
            if not isinstance(frame.module, nn.Softmax | nn.Dropout):
                return frame
        return None

    def _enter(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        if not self.paused and threading.get_ident() == self._thread:
            self.stack.append(Frame(module, self._names.get(id(module), ""), args, kwargs))

    def _leave(self, module: nn.Module, args: Any, output: Any) -> None:
        if self.paused or threading.get_ident() != self._thread:
            return
        while self.stack:
            frame = self.stack.pop()
            if frame.module is module:
                if frame.opaque:
                    self._leaving(frame)
                return

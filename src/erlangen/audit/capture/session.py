"""One observed forward pass: every attention call is handed to an observer the moment it is made."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from types import FunctionType
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from erlangen.audit.capture import eager, flex, mha, own, sdpa
from erlangen.audit.capture.calls import Call, Unexplained
from erlangen.audit.capture.frames import Frame, Frames
from erlangen.audit.capture.module import module_call
from erlangen.audit.capture.pyg import EdgeSoftmax, edge_softmax
from erlangen.audit.capture.source import source_line
from erlangen.audit.capture.tape import PRODUCTS, Node, Tape, name_of
from erlangen.audit.capture.watching import ObservingMode, Record, Watcher, unobserved
from erlangen.errors import DataError

# Held here, so that a library that replaces them by name is still seen to call them.
_SDPA, _MHA = F.scaled_dot_product_attention, F.multi_head_attention_forward

Observer = Callable[[Call], None]


class Session:
    """Watches a model while it runs inside `with`; afterwards no hook and no exchanged function is left.

    It watches the thread that entered it. Sessions of other threads, and one inside it, see their own calls.
    `observe` is called with each attention call, in order, while the tensors that reached it still exist.
    `batch` is the number of sequences in the input: it tells batch items from heads in folded shapes.
    """

    def __init__(self, model: nn.Module, observe: Observer, batch: int = 1) -> None:
        self._model = model
        self._observe = observe
        self.batch = batch
        self.frames = Frames(model, self._probe_module)
        self.tape = Tape()
        self.unexplained: list[Unexplained] = []
        self.softmaxes: list[Node] = []
        self.seen = 0
        self._mode = _Mode(self)
        self._edges = EdgeSoftmax(self, model)
        self._stack = ExitStack()

    def __enter__(self) -> Session:
        with ExitStack() as stack:
            stack.enter_context(self.frames)
            stack.enter_context(self._edges)
            stack.enter_context(Watcher(self._functions(), lambda: self.frames.paused))
            stack.enter_context(self._mode)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def _functions(self) -> dict[FunctionType, Record]:
        """The functions that no function mode sees, and what is done with a call of each."""
        watched = [
            (flex.flex_attention(), partial(flex.record, self)),
            (own.attend(), partial(own.record, self)),
            (edge_softmax(), self._edges.record),
        ]
        return {function: partial(self._called, record, function) for function, record in watched if function}

    @property
    def other_softmaxes(self) -> int:
        """Softmax calls that were not attention: no product made the scores, their weights weigh nothing."""
        return sum(1 for node in self.softmaxes if not node.consumed and node.opaque)

    def unfinished(self) -> list[Unexplained]:
        """Softmax calls over a product of activations whose weights never met values."""
        return [
            Unexplained(node.module, "a softmax over products whose weights were not seen to weigh values")
            for node in self.softmaxes
            if not node.consumed and not node.opaque
        ]

    def emit(self, make: Callable[[], Call], name: str | None = None) -> None:
        """Build and hand on one call; what cannot be built or measured is unexplained, never an error."""
        self.seen += 1
        owner = self.frames.owner()
        if owner is not None:
            owner.calls += 1
        was_paused, self.frames.paused = self.frames.paused, True
        try:
            with torch.no_grad(), unobserved():
                call = make()
                call.source = call.source or source_line()
                self._observe(call)
        except Exception as error:
            reason = str(error).splitlines()[0] if str(error) else ""
            if not isinstance(error, DataError):
                reason = f"{type(error).__name__}: {reason}"
            failed = isinstance(error, AttributeError | TypeError | LookupError | NameError)
            owner_name = self.frames.name() if name is None else name
            self.unexplained.append(Unexplained(owner_name, reason, failed))
        finally:
            self.frames.paused = was_paused

    def _called(
        self, record: Any, function: FunctionType, run: Any, again: Any, args: Any, kwargs: Any
    ) -> Any:
        """Run a watched function as if nobody watched, then hand on the call; what it calls is not a call."""
        self.frames.paused = True
        try:
            with unobserved():
                out = run(*args, **kwargs)
        finally:
            self.frames.paused = False
        self.emit(lambda: record(function, again, args, kwargs))
        return out

    def dispatch(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Run one torch function and note what it means for attention."""
        out = function(*args, **kwargs)
        if self.frames.paused:
            return out
        if function is _SDPA:
            self.emit(lambda: sdpa.record(self, function, args, kwargs))
            return out
        if function is _MHA:
            self.emit(lambda: mha.record(self, function, args, kwargs))
            return out
        name = name_of(function)
        if name == "softmax" and isinstance(out, torch.Tensor):
            eager.softmax(self, function, args, kwargs, out)
        elif name in PRODUCTS and isinstance(out, torch.Tensor):
            eager.product(self, function, args, kwargs, out)
        else:
            nodes = self.tape.tracked((args, kwargs))
            if nodes:
                self.tape.step(function, args, kwargs, out, nodes)
        return out

    def _probe_module(self, frame: Frame) -> None:
        self.seen -= 1 + frame.calls  # counted when its parts were seen
        self.emit(lambda: module_call(self, frame), frame.name)


class _Mode(ObservingMode):
    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._session.dispatch(func, args, kwargs or {})

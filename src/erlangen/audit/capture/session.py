"""One observed forward pass: every attention call is handed to an observer the moment it is made."""

from __future__ import annotations

from collections.abc import Callable, Container
from contextlib import ExitStack
from functools import partial
from importlib import import_module
from pkgutil import iter_modules
from types import FunctionType
from typing import Any

import torch
from torch import nn

from erlangen.audit import apis
from erlangen.audit.apis.attention_call import APIS, Call
from erlangen.audit.capture.frames import Frame, Frames
from erlangen.audit.capture.source import source_line
from erlangen.audit.capture.tape import Tape
from erlangen.audit.capture.unexplained import Unexplained
from erlangen.audit.capture.watching import ObservingMode, Record, Watcher, arguments_of, unobserved, watching
from erlangen.errors import DataError, ParameterError

Observer = Callable[[Call], None]

for _file in iter_modules(apis.__path__):
    import_module(f"{apis.__name__}.{_file.name}")


class Session:
    """Watches a model while it runs inside `with`; afterwards no hook and no exchanged function is left.

    It watches the thread that entered it. Sessions of other threads, and one inside it, see their own calls.
    `observe` is called with each attention call, in order, while the tensors that reached it still exist.
    `batch` is the number of sequences in the input: it tells batch items from heads in folded shapes.

    What is watched is up to the attention APIs: each is asked once, by `watch`, and says it by the methods
    `watch_torch`, `watch_function`, `watch_steps`, `watch_modules` and `at_end`.
    """

    def __init__(self, model: nn.Module, observe: Observer, batch: int = 1) -> None:
        self.model = model
        self._observe = observe
        self.batch = batch
        self.frames = Frames(model, self._leave_module)
        self.tape = Tape()
        self.unexplained: list[Unexplained] = []
        self.seen = 0
        self._torch: dict[Any, Callable[..., Call]] = {}
        self._functions: dict[FunctionType, Record] = {}
        self._steps: list[Callable[[Any, Any, Any, Any], None]] = []
        self._modules: Callable[[Frame], Call] | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Session:
        with ExitStack() as self._stack:
            self.frames.watch(self.at_end)
            for api in APIS.values():
                api.watch(self)
            self._stack.enter_context(watching(Watcher(self._functions, lambda: self.frames.paused)))
            self._stack.enter_context(_Mode(self))
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def watch_torch(self, function: Any, record: Callable[..., Call]) -> None:
        """A function that function modes see; `record` gets the arguments of a call, as they were given."""
        self._not_watched_yet(function, self._torch)
        self._torch[function] = record

    def watch_function(self, function: FunctionType | None, record: Callable[..., Call]) -> None:
        """A Python function, unless it is None; `record` gets the plain function, to run it again, and the
        arguments of a call by name. What the function itself calls is not seen."""
        if function is None:
            return
        if not isinstance(function, FunctionType) or function.__code__.co_freevars:
            raise ParameterError(
                f"an attention API watches {function!r}, which is no plain Python function, so its code "
                "cannot be exchanged: watch the function inside it, the modules that call it (watch_modules),"
                " or a torch function (watch_torch)"
            )
        self._not_watched_yet(function, self._functions)
        self._functions[function] = partial(self._called, record, function)

    def watch_steps(self, step: Callable[[Any, Any, Any, Any], None]) -> None:
        """Every other torch function; `step` gets the function, its args and kwargs, and what it returned."""
        self._steps.append(step)

    def watch_modules(self, record: Callable[[Frame], Call]) -> None:
        """Modules that a step marked as opaque; `record` gets the call of the module when it is left."""
        self._not_watched_yet("modules", () if self._modules is None else ("modules",))
        self._modules = record

    def _not_watched_yet(self, what: Any, watched: Container[Any]) -> None:
        if what in watched:
            raise ParameterError(
                f"two attention APIs watch {getattr(what, '__name__', what)}: only one of them would be asked"
            )

    def at_end(self, undo: Callable[[], Any]) -> None:
        """What the end of the session undoes, such as hooks."""
        self._stack.callback(undo)

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
        self.emit(lambda: record(again, **arguments_of(function, args, kwargs)))
        return out

    def dispatch(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Run one torch function and note what it means for attention."""
        out = function(*args, **kwargs)
        if self.frames.paused:
            return out
        record = self._torch.get(function)
        if record is not None:
            self.emit(lambda: record(*args, **kwargs))
            return out
        for step in self._steps:
            step(function, args, kwargs, out)
        return out

    def _leave_module(self, frame: Frame) -> None:
        record = self._modules
        assert record is not None
        self.seen -= 1 + frame.calls  # counted when its parts were seen
        self.emit(lambda: record(frame), frame.name)


class _Mode(ObservingMode):
    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._session.dispatch(func, args, kwargs or {})

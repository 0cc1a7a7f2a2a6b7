"""Watching a Python function through its code, so that every reference to it is seen, and putting it back.

`from library import function`, a table of functions, `functools.partial`, a default argument, a closure and
`torch.compile(function)` all lead to one function object. Its `__code__` is exchanged for a stand-in while
anybody watches; replacing names would miss whoever holds the object in another way. The stand-in looks up the
sessions of the thread it runs in and is the plain function for everybody else.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import CodeType, FunctionType
from typing import Any

import torch
from torch._C._dynamo import eval_frame as _eval_frame
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack, _pop_mode, _push_mode

eval_frame: Any = _eval_frame  # the hook of `torch.compile`, there whether or not it was ever used

Record = Callable[[Callable[..., Any], Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]
"""What a session does for one call: it gets what to run now, the plain function to run it again, and the
arguments, and returns the value of the call."""


class ObservingMode(TorchFunctionMode):
    """A function mode of the audit, which the code of the watched functions must not see."""


@dataclass(eq=False)
class Watcher:
    """One who watches functions in one thread."""

    functions: dict[FunctionType, Record]
    paused: Callable[[], bool]
    """Whether calls are to be passed over: those of a probe, and those inside a watched function."""

    def record_of(self, function: FunctionType) -> Record | None:
        """What to do with a call of this function now; None: nothing."""
        return None if self.paused() else self.functions.get(function)


@contextmanager
def watching(watcher: Watcher) -> Iterator[None]:
    """A block in which a watcher sees the calls that its thread makes."""
    active = _thread.watchers
    try:
        for function in watcher.functions:
            _hold(function, watcher)
        active.append(watcher)
        yield
    finally:
        if watcher in active:
            active.remove(watcher)
        for function in watcher.functions:
            _release(function, watcher)


@dataclass(eq=False)
class _Watched:
    """A function with the code of its own and the code that stands in for it."""

    function: Any
    code: CodeType
    plain: Any
    """A copy of the function with its own code: what the stand-in runs."""
    stand_in: CodeType
    holders: set[Watcher] = field(default_factory=set)


_watched: dict[str, _Watched] = {}
_lock = threading.Lock()


class _Thread(threading.local):
    """What each thread has of its own."""

    def __init__(self) -> None:
        self.watchers: list[Watcher] = []
        """Outermost first."""


_thread = _Thread()


def _hold(function: FunctionType, holder: Watcher) -> None:
    key = _key(function)
    with _lock:
        known = _watched.get(key)
        if known is None or (not known.holders and known.code is not function.__code__):
            known = _watched[key] = _prepare(function, key)
        known.holders.add(holder)
        for code in (known.stand_in, called.__code__):
            _never_compile(code)
        function.__code__ = known.stand_in


def _release(function: FunctionType, holder: Watcher) -> None:
    """Give the function its own code back when nobody watches it any more; harmless if never held."""
    with _lock:
        known = _watched.get(_key(function))
        if known is None:
            return
        known.holders.discard(holder)
        if not known.holders:
            function.__code__ = known.code


def _key(function: FunctionType) -> str:
    return f"{function.__module__}.{function.__qualname__}:{id(function)}"


def _prepare(function: FunctionType, key: str) -> _Watched:
    code = function.__code__
    if code.co_freevars:
        raise TypeError(f"{function.__qualname__} is a closure: its code cannot be exchanged")
    plain = FunctionType(code, function.__globals__, function.__name__, function.__defaults__)
    plain.__kwdefaults__ = function.__kwdefaults__
    plain.__qualname__, plain.__doc__ = function.__qualname__, function.__doc__
    template = _stand_in.__code__
    consts = tuple(key if value == _KEY else value for value in template.co_consts)
    stand_in = template.replace(co_consts=consts, co_name=code.co_name)
    return _Watched(function, code, plain, stand_in)


def _never_compile(code: CodeType) -> None:
    """Let `torch.compile` run a code as it is, and compile what it calls as it would have been."""
    if hasattr(eval_frame, "set_code_exec_strategy"):
        action = eval_frame._FrameAction
        strategy = eval_frame._FrameExecStrategy(action.SKIP, action.DEFAULT)
        eval_frame.set_code_exec_strategy(code, strategy)
    else:  # torch 2.6
        eval_frame.skip_code(code)


_KEY = "the key of the function that this code stands in for"


def _stand_in(*args: Any, **kwargs: Any) -> Any:
    # It runs with the globals of another module, so it imports what it needs.
    from erlangen.audit.capture.watching import called

    return called("the key of the function that this code stands in for", args, kwargs)


def called(key: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a watched function and hand the call to the watchers of this thread."""
    watched = _watched[key]
    if torch.compiler.is_dynamo_compiling():
        return watched.plain(*args, **kwargs)  # part of a larger compiled function: nothing may be traced in
    # `torch.compile` acts through a callback for each frame: off while watching, and on for the function.
    compiler = eval_frame.set_eval_frame(None)
    try:
        run = plain = _as_compiled(watched.plain, compiler)
        for watcher in _thread.watchers:
            record = watcher.record_of(watched.function)
            if record is not None:
                run = partial(_through, record, run, plain)
        return run(*args, **kwargs)
    finally:
        eval_frame.set_eval_frame(compiler)


def loaded(module: str, name: str) -> FunctionType | None:
    """A function to watch; None if its module was never imported."""
    return getattr(sys.modules.get(module), name, None)


def _through(record: Record, run: Any, plain: Any, /, *args: Any, **kwargs: Any) -> Any:
    return record(run, plain, args, kwargs)


def _as_compiled(function: FunctionType, compiler: Any) -> Callable[..., Any]:
    """The function, compiled as the caller asked for; the function itself where nobody did."""
    if compiler is None:
        return function

    def run(*args: Any, **kwargs: Any) -> Any:
        before = eval_frame.set_eval_frame(compiler)
        try:
            return function(*args, **kwargs)
        finally:
            eval_frame.set_eval_frame(before)

    return run


def arguments_of(function: FunctionType, args: Any, kwargs: Any) -> dict[str, Any]:
    """The arguments that were given in a call of a watched function, by name."""
    known = _watched.get(_key(function))
    signature = inspect.signature(function if known is None else known.plain)
    return dict(signature.bind(*args, **kwargs).arguments)


@contextmanager
def unobserved() -> Iterator[None]:
    """A block that runs as if nobody watched: without the function modes of the audit, with all others.

    Code takes other paths under a mode, and compiled code cannot be traced through one. Switching off all
    function modes would switch off those that FlexAttention enters itself, without which a mask that looks
    up document ids fails.
    """
    stack = _get_current_function_mode_stack()
    others = [mode for mode in stack if not isinstance(mode, ObservingMode)]
    if len(others) == len(stack):
        yield
        return
    _exchange(stack, others)
    try:
        yield
    finally:
        _exchange(others, stack)


@contextmanager
def unwatched() -> Iterator[None]:
    """A block of which no session around it sees anything: an audit inside an audit is no part of a model."""
    watchers, _thread.watchers = _thread.watchers, []
    try:
        with unobserved():
            yield
    finally:
        _thread.watchers = watchers


def _exchange(old: list[Any], new: list[Any]) -> None:
    for _ in old:
        _pop_mode()
    for mode in new:
        _push_mode(mode)

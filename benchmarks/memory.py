"""Memory: how far the resident set of a fresh process rises in one step, beyond inputs and libraries.

Each measurement has a child process of its own, forked before the parent has computed anything. The child
runs the contender at a tiny size, so that libraries are loaded; makes the inputs; notes its resident set;
prepares and runs a step; gives free memory back; and reads the peak of the next step. What a method needs
beyond its inputs thus counts: masks, indices, workspaces, the output and the gradients. What it needs only
once, while preparing, does not.
"""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.cases import Case
from benchmarks.measure import step
from benchmarks.peers import CannotRun, Contender, load
from benchmarks.problems import Problem

SLOW = 3.0
"""Seconds of a first step beyond which a peer is not asked for a second."""
OURS = "erlangen"
COMPILED = ("flex",)
"""Modules whose first step leaves a compiler behind: they are measured from the second step on."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -3, -4  # of mallopt
_LARGE = 65_536


def supported() -> bool:
    """Whether the peak of the resident set can be reset and read here."""
    return sys.platform == "linux" and Path("/proc/self/clear_refs").exists()


def keep_freed() -> None:
    """Let this process use freed memory again, for every contender alike, instead of asking for new pages.

    The C library gives blocks beyond 32 MB back when they are freed, smaller ones not, and so a line of time
    against n has a step in it, which on a virtual machine that hands free pages to its host is a factor of
    two to four. A family of sizes is measured without that step, single cases as a process is by default.
    """
    if supported():
        _mallopt(_MMAP_MAX, 0)
        _mallopt(_TRIM_THRESHOLD, -1)


def peak_mb(case: Case, size: int, module: str, training: bool) -> float | None:
    """Megabytes of one step of a contender; None where it cannot run, or where the system does not tell."""
    return in_child(_measure, case, size, module, training) if supported() else None


def in_child(function: Callable[..., Any], *arguments: Any) -> Any:
    """Run a function in a forked child and give what it returns; None if the child died."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_answer, args=(sender, function, arguments))
    child.start()
    sender.close()
    try:
        return receiver.recv()
    except EOFError:
        return None
    finally:
        child.join()


def _answer(sender: Any, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    sender.send(function(*arguments))
    sender.close()


def _measure(case: Case, size: int, module: str, training: bool) -> float | None:
    _mallopt(_MMAP_THRESHOLD, _LARGE)  # large blocks go back to the system when freed
    contender = load(module)
    problem = case.make(size)
    problem.upstream(training)
    try:
        _step(contender, case.make(case.tiny), training)()
        before = _resident()
        run = _step(contender, problem, training)
    except CannotRun:
        return None
    _reset_peak()
    start = time.perf_counter()
    run()
    if module in COMPILED:
        before = _resident()
    elif module != OURS and time.perf_counter() - start > SLOW:
        return (_peak() - before) / 2**20
    _trim()
    _reset_peak()
    run()
    return (_peak() - before) / 2**20


def _step(contender: Contender, problem: Problem, training: bool) -> Callable[[], Any]:
    run = contender.prepare(problem, training)
    upstream = problem.upstream(training)
    return lambda: step(run, problem.inputs, upstream)


def _mallopt(parameter: int, value: int) -> None:
    if not ctypes.CDLL(None).mallopt(parameter, value):
        raise OSError(f"mallopt({parameter}, {value}) was refused")


def _trim() -> None:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {field}")


def _resident() -> int:
    _trim()
    return _status("VmRSS")


def _peak() -> int:
    return _status("VmHWM")


def _reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")

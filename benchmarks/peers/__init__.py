"""The contenders, one module each: `NAME`, and `prepare(problem, training)` giving what is timed.

What `prepare` gives takes the inputs of the problem and returns the output; masks, indices and compilation
belong into `prepare` or into the first call. A peer that cannot compute the problem
exactly raises `CannotRun`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol

Run = Callable[..., Any]


class CannotRun(Exception):
    """Why a peer does not take part in a case."""


class Contender(Protocol):
    """What a module of this package offers."""

    NAME: str

    def prepare(self, problem: Any, training: bool) -> Run: ...


def load(module: str) -> Contender:
    """The contender in `benchmarks.peers.<module>`; imports the library it stands for."""
    return import_module(f"benchmarks.peers.{module}")  # pyright: ignore[reportReturnType]

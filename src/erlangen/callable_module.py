"""A package that is called like the function it is named after: `erlangen.symmetry(...)` and the like."""

from __future__ import annotations

import sys
from inspect import Signature, signature
from types import ModuleType
from typing import Any


class _CallableModule(ModuleType):
    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self._function(*arguments, **keywords)

    @property
    def _function(self) -> Any:
        return getattr(self, self.__name__.rpartition(".")[2])

    @property
    def __signature__(self) -> Signature:
        """That of the function, for `help`, `inspect.signature` and editors."""
        return signature(self._function)


def make_callable(name: str) -> None:
    """Let the package `name` (its `__name__`) be called as its function of the same name.

    Whichever way it was imported, `erlangen.symmetry(...)` then works beside `erlangen.symmetry.Group`.

    >>> import erlangen as er
    >>> er.symmetry(er.Causal(), 5).order
    1
    >>> from inspect import signature
    >>> str(signature(er.symmetry)).startswith("(relation")
    True
    """
    sys.modules[name].__class__ = _CallableModule

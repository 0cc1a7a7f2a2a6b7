"""What packages do that Python does not by itself: import names when they are first used, and be called like
the function they are named after."""

from __future__ import annotations

import sys
import warnings
from ast import If, ImportFrom, parse, unparse
from collections.abc import Callable, Mapping
from functools import wraps
from importlib import import_module
from inspect import Signature, signature
from types import MappingProxyType, ModuleType
from typing import Any, TypeVar

from erlangen.errors import ParameterError

_Function = TypeVar("_Function", bound=Callable[..., Any])


def lazily(
    package: str, former: Mapping[str, str] = MappingProxyType({})
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` (PEP 562) of a package whose names are imported when they are first used.

    The names are those that its source imports for type checkers, below `if TYPE_CHECKING:`, so that they are
    written once. Where one stands for a module of the package, alone or by a function of the same name that
    the module can be called as, it is the module. `former` are names that have moved (see `moved`).

    >>> __getattr__, __dir__ = lazily("erlangen")
    >>> __getattr__("attend").__module__, __getattr__("symmetry").__name__
    ('erlangen.attention._attend', 'erlangen.symmetry')
    """
    loader: Any = sys.modules[package].__loader__
    source_text = loader.get_source(package)
    if source_text is None:
        raise ImportError(f"{package} finds its names in its source, which was not installed with it")
    blocks = [node for node in parse(source_text).body
              if isinstance(node, If) and unparse(node.test) == "TYPE_CHECKING"]  # fmt: skip
    imports = [node for block in blocks for node in block.body if isinstance(node, ImportFrom)]
    sources = {alias.name: node.module for node in imports for alias in node.names}
    elsewhere = moved(package, former)

    def get(name: str) -> Any:
        if name not in sources:
            return elsewhere(name)
        source, module = sources[name], f"{package}.{name}"
        found = source in (package, module)
        value = import_module(module) if found else getattr(import_module(source or ""), name)
        setattr(sys.modules[package], name, value)  # found directly from now on
        return value

    return get, lambda: sorted({*vars(sys.modules[package]), *sources})


def moved(package: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """`__getattr__` of a package that names have left: each still gives what it named, `names` saying what it
    is called now, and warns where it is used.

    >>> with warnings.catch_warnings(record=True) as said:
    ...     warnings.simplefilter("always")
    ...     moved("erlangen", {"choose": "erlangen.plan"})("choose").__name__, str(said[0].message)
    ('plan', 'erlangen.choose is now erlangen.plan; the old name goes with version 0.3')
    """

    def get(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        _warn(f"{package}.{name} is now {names[name]}; the old name goes with version 0.3")
        module, _, present = names[name].rpartition(".")
        return getattr(import_module(module), present)

    return get


def _warn(said: str) -> None:
    """Warn of an old name where it was written: not in code of ours, or of torch, that passed it on."""
    level = 1
    while sys._getframe(level).f_globals.get("__name__", "").partition(".")[0] in ("erlangen", "torch"):
        level += 1
    warnings.warn(said, DeprecationWarning, stacklevel=level + 1)


def renamed(**names: str) -> Callable[[_Function], _Function]:
    """Let a function take arguments by their former names, `renamed(former="present")`, with a warning.

    >>> @renamed(sequence="items")
    ... def count(items):
    ...     return len(items)
    >>> with warnings.catch_warnings(record=True) as said:
    ...     warnings.simplefilter("always")
    ...     count(sequence="ab"), str(said[0].message)
    (2, 'sequence= is now items=; the old name goes with version 0.3')
    """

    def decorate(function: Any) -> Any:
        @wraps(function)
        def taking(*arguments: Any, **named: Any) -> Any:
            for former, present in names.items():
                if former in named:
                    if present in named:
                        raise ParameterError(f"{former}= is now {present}=: give one of them, not both")
                    _warn(f"{former}= is now {present}=; the old name goes with version 0.3")
                    named[present] = named.pop(former)
            return function(*arguments, **named)

        return taking

    return decorate


class _CallableModule(ModuleType):
    """A package that can be called as its function of the same name.

    `erlangen.symmetry` has to be two things: the function, and the package in which `erlangen.symmetry.Group`
    lies. A function under this name would not stay there: the first `from erlangen.symmetry import Group`
    makes Python set `erlangen.symmetry` to the module. So the module itself is callable, in the way that the
    language reference gives for it (data model, "Customizing module attribute access").
    """

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self._function(*arguments, **keywords)

    @property
    def _function(self) -> Any:
        return getattr(self, self.__name__.rpartition(".")[2])

    @property
    def __signature__(self) -> Signature:
        """That of the function, for `help`, `inspect.signature` and editors."""
        return signature(self._function)

    def __reduce__(self) -> Any:
        """Pickled by its name, as functions are: another process calls what it has under it."""
        return import_module, (self.__name__,)


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

"""Assertions for your own tests. Each is imported when first used: importing this package is cheap."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from erlangen.testing.equivariance import assert_equivariant

_LAZY = {"assert_equivariant": "erlangen.testing.equivariance"}
"""name -> the module it is imported from."""

__all__ = ["assert_equivariant"]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'erlangen.testing' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})

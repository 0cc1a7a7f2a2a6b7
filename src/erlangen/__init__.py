"""Attention, characterised by its relations and symmetries.

Relations, symmetry and bias need NumPy alone. The parts that need torch (`attend`, `Attention`, `nn`, ...)
are imported when first used.

>>> import erlangen as er
>>> er.Causal() & er.Window(lookback=256) | er.Global(keys=[0])
Window(lookback=256) | Global(keys=range(0, 1))
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from erlangen import errors
from erlangen.relations import (
    Batch,
    Bipartite,
    Blocks,
    Causal,
    Dilated,
    Documents,
    Empty,
    FromMask,
    Full,
    Global,
    Graph,
    Grid,
    Identity,
    Nearest,
    Neighborhoods,
    Padding,
    PerHead,
    Prefix,
    Random,
    Relation,
    Ring,
    Tiles,
    Window,
)

if TYPE_CHECKING:
    from erlangen import attention, integrations, nn
    from erlangen.attention import Plan, attend, plan
    from erlangen.nn import Attention, GraphLayer, KVCache

# name -> module it is imported from when first used; None marks a submodule.
_LAZY = {
    "Attention": "erlangen.nn",
    "GraphLayer": "erlangen.nn",
    "KVCache": "erlangen.nn",
    "Plan": "erlangen.attention",
    "attend": "erlangen.attention",
    "plan": "erlangen.attention",
    "attention": None,
    "integrations": None,
    "nn": None,
}

__all__ = [
    "Attention",
    "Batch",
    "Bipartite",
    "Blocks",
    "Causal",
    "Dilated",
    "Documents",
    "Empty",
    "FromMask",
    "Full",
    "Global",
    "Graph",
    "GraphLayer",
    "Grid",
    "Identity",
    "KVCache",
    "Nearest",
    "Neighborhoods",
    "Padding",
    "PerHead",
    "Plan",
    "Prefix",
    "Random",
    "Relation",
    "Ring",
    "Tiles",
    "Window",
    "attend",
    "attention",
    "errors",
    "integrations",
    "nn",
    "plan",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version  # reads the installed metadata: only when asked

        return version("erlangen")
    if name not in _LAZY:
        raise AttributeError(f"module 'erlangen' has no attribute {name!r}")
    source = _LAZY[name]
    return import_module(f"erlangen.{name}") if source is None else getattr(import_module(source), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, "__version__"})

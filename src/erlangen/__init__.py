"""Attention, characterised by its relations and symmetries.

Relations, symmetry and taxonomy need NumPy alone. The parts that need torch (`attend`, `Attention`, ...) are
imported when first used.

>>> import erlangen as er
>>> er.Causal() & er.Window(lookback=256) | er.Global(keys=[0])
Window(lookback=256) | Global(keys=range(0, 1))
"""

from typing import TYPE_CHECKING, Any

from erlangen import errors, relations
from erlangen.packages import lazily
from erlangen.relations import *  # noqa: F403 (exactly what `relations.__all__` lists)

if TYPE_CHECKING:
    from erlangen import attention, equivariance, integrations, models, nn, taxonomy, testing, training
    from erlangen.attention import Plan, attend, attend_triples, kernels, pack, plan
    from erlangen.audit import audit, compare
    from erlangen.nn import Attention, GraphLayer, KVCache
    from erlangen.symmetry import Group, stack_symmetry, symmetry, translations
    from erlangen.taxonomy import Bias, classify, hierarchy

# name -> module it is imported from when first used; None marks a submodule.
_LAZY = {
    "Attention": "erlangen.nn",
    "Bias": "erlangen.taxonomy",
    "GraphLayer": "erlangen.nn",
    "Group": "erlangen.symmetry",
    "HyperRelation": "erlangen.relations",  # which says what it is called now
    "KVCache": "erlangen.nn",
    "Plan": "erlangen.attention",
    "attend": "erlangen.attention",
    "attend_triples": "erlangen.attention",
    "classify": "erlangen.taxonomy",
    "compare": "erlangen.audit",
    "hierarchy": "erlangen.taxonomy",
    "kernels": "erlangen.attention",
    "stack_symmetry": "erlangen.symmetry",
    "translations": "erlangen.symmetry",
    "pack": "erlangen.attention",
    "plan": "erlangen.attention",
    "attention": None,
    "audit": None,
    "bias": None,
    "equivariance": None,
    "integrations": None,
    "models": None,
    "nn": None,
    "symmetry": None,
    "taxonomy": None,
    "testing": None,
    "training": None,
}

__all__ = [
    "Attention",
    "Bias",
    "GraphLayer",
    "Group",
    "KVCache",
    "Plan",
    "attend",
    "attend_triples",
    "attention",
    "audit",
    "classify",
    "compare",
    "equivariance",
    "errors",
    "hierarchy",
    "integrations",
    "kernels",
    "models",
    "nn",
    "pack",
    "plan",
    "stack_symmetry",
    "symmetry",
    "taxonomy",
    "testing",
    "training",
    "translations",
]
__all__ += relations.__all__


_lazy, __dir__ = lazily(__name__, {**_LAZY, "__version__": None})


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version  # reads the installed metadata: only when asked

        return version("erlangen")
    return _lazy(name)

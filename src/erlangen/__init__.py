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
from erlangen.relations.shown import Shown

if TYPE_CHECKING:
    from erlangen import attention, equivariance, integrations, models, nn, taxonomy, testing, training
    from erlangen import bias as bias
    from erlangen.attention import Plan, attend, attend_triples, kernels, pack, plan
    from erlangen.audit import audit, compare
    from erlangen.nn import Attention, GraphLayer, KVCache
    from erlangen.symmetry import Group, stack_symmetry, symmetry, translations
    from erlangen.taxonomy import Bias, classify

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
if taken := set(__all__) & set(relations.__all__):
    raise errors.ParameterError(f"relations may not be called {', '.join(sorted(taken))}: erlangen has these")
__all__ += relations.__all__

_lazy, _names = lazily(
    __name__, {"hierarchy": "erlangen.paper.hierarchy", "HyperRelation": "erlangen.TernaryRelation"}
)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version  # reads the installed metadata: only when asked

        return version("erlangen")
    return _lazy(name)


def _drawing(*arguments: Any) -> Any:
    from erlangen.show.drawing import drawing

    return drawing(*arguments)


Shown.drawing = staticmethod(_drawing)


def __dir__() -> list[str]:
    return [*_names(), "__version__"]

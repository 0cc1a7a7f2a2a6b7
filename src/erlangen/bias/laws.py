"""What holds at every size, by law: properties of the families, and which operators keep them."""

from __future__ import annotations

from erlangen.relations import (
    Blocks,
    Causal,
    Dilated,
    Documents,
    Empty,
    Full,
    Grid,
    GridOffset,
    Identity,
    Offset,
    Prefix,
    Relation,
    Ring,
    Window,
)
from erlangen.relations.operators import (
    Closure,
    Complement,
    Composition,
    Intersection,
    Power,
    Transpose,
    Union,
)

_EQUIVALENCE = frozenset({"reflexive", "symmetric", "transitive"})
_ALWAYS: dict[type[Relation], frozenset[str]] = {
    Full: _EQUIVALENCE | {"total", "toeplitz"},
    Empty: frozenset({"symmetric", "antisymmetric", "transitive", "toeplitz"}),
    Identity: _EQUIVALENCE | {"antisymmetric", "toeplitz"},
    Causal: frozenset({"reflexive", "antisymmetric", "transitive", "total", "toeplitz"}),
    Prefix: frozenset({"reflexive", "transitive", "total"}),
    Dilated: _EQUIVALENCE | {"toeplitz"},
    Blocks: _EQUIVALENCE,
    Documents: _EQUIVALENCE,
    Grid: frozenset({"reflexive", "symmetric"}),
}


def always(relation: Relation) -> frozenset[str]:
    """Properties that the relation has on every n it can be bound to; others may hold too, or not.

    >>> sorted(always(Causal() & Dilated(2)))
    ['antisymmetric', 'reflexive', 'toeplitz', 'transitive']
    >>> sorted(always(~Window(lookback=1, lookahead=1)))
    ['symmetric', 'toeplitz']
    """
    parts = [always(part) for part in getattr(relation, "operands", ())]
    every = frozenset.intersection(*parts) if parts else frozenset()
    some = frozenset.union(*parts) if parts else frozenset()
    match relation:
        case Window() | Ring():
            found = {"reflexive", "toeplitz"}
            if relation.lookback == relation.lookahead:
                found.add("symmetric")
            if isinstance(relation, Window) and 0 in (relation.lookback, relation.lookahead):
                found.add("antisymmetric")
            return frozenset(found)
        case Offset():
            return _ALWAYS[Identity] if relation.by == 0 else frozenset({"antisymmetric", "toeplitz"})
        case GridOffset() if relation.queries == relation.shape:
            return frozenset({"antisymmetric"})
        case Transpose():
            return every
        case Intersection():
            # Not "total": j <= i and i <= j are total, and meet in the identity.
            return every & {"reflexive", "symmetric", "transitive", "toeplitz"} | some & {"antisymmetric"}
        case Union():
            return every & {"symmetric", "toeplitz"} | some & {"reflexive", "total"}
        case Complement():
            return every & {"symmetric", "toeplitz"}
        case Composition():
            return every & {"reflexive"}
        case Power():
            return every & {"reflexive", "symmetric"}
        case Closure():
            return every & {"reflexive", "symmetric", "total"} | {"transitive"}
        case _:
            return _ALWAYS.get(type(relation), frozenset())

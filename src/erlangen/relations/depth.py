"""What a stack of layers reads: the boolean product of their relations, residuals included."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

from erlangen.errors import ParameterError
from erlangen.relations.families import PerHead
from erlangen.relations.orders import Identity
from erlangen.relations.relation import Relation


def reach(layers: Iterable[Relation | PerHead]) -> Relation:
    """The receptive field of layers with residuals, the first layer given first.

        reach = (R_L | I) @ ... @ (R_1 | I),   R_l the union of the heads of layer l

    (i, j) is in it exactly when position i of the output can depend on position j of the input: with generic
    weights every path carries something. It is a relation, symbolic where a law simplifies it; at a size it
    is exact, `reach(layers).on(n)`. For one relation in every layer it is `relation.reach(len(layers))`.

    >>> from erlangen.relations import Causal, Dilated, Window
    >>> reach([Window(lookback=3), Window(lookback=5)])
    Window(lookback=8)
    >>> heads = PerHead([Window(lookback=3), Dilated(4)]) & Causal()
    >>> reach([heads]).on(16) == Causal().on(16), reach([heads, heads]).on(16) == Causal().on(16)
    (False, True)
    """
    listed = list(layers) if isinstance(layers, Iterable) and not isinstance(layers, (str, bytes)) else None
    if listed is None or not all(isinstance(layer, (Relation, PerHead)) for layer in listed):
        raise ParameterError(f"reach(layers) takes a list of relations or PerHead families, got {layers!r}")
    reached: Relation = Identity()
    for layer in listed:
        heads = layer.members if isinstance(layer, PerHead) else (layer,)
        reached = (reduce(lambda a, b: a | b, heads) | Identity()) @ reached
    return reached

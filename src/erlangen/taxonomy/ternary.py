"""What a ternary relation assumes: its laws with witnesses, its symmetry, and the verdict on its shadow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import permutations
from typing import TYPE_CHECKING, Any

import numpy as np

from erlangen.relations.ternary import TernaryRelation, Triples
from erlangen.symmetry import Group, symmetry

if TYPE_CHECKING:
    from erlangen.taxonomy.classify import Bias


@dataclass(frozen=True)
class TernaryBias:
    """The verdict on a ternary relation T on n positions. The kinds of Table 1 are about pairs: see `shadow`.

    - `arity` is 3, and `kind` is "ternary" ("empty" without triples).
    - `properties`, all decided exactly at n: `symmetric` ((j, l) in T_i iff (l, j) in T_i),
      `fully_symmetric` (all orders of a triple belong or none), `distinct` (no triple repeats a position),
      `product` (T_i = N_i x N_i: then T says no more than its shadow).
    - `witnesses`: for each property that fails, a triple that shows it.
    - `symmetry`: Aut(T), a subgroup of the group of the shadow.
    - `shadow`: the `Bias` of the pairwise shadow.

    >>> from erlangen.taxonomy import classify
    >>> from erlangen.relations import Fano
    >>> bias = classify(Fano())
    >>> bias.arity, bias.symmetry.order, bias.shadow.symmetry.order
    (3, 168, 5040)
    >>> bias.properties, bias.witnesses
    ({'symmetric': True, 'fully_symmetric': True, 'distinct': True, 'product': False}, {'product': (0, 1, 1)})
    """

    relation: str
    n: int
    num_triples: int
    properties: dict[str, bool]
    witnesses: dict[str, tuple[int, int, int]]
    symmetry: Group
    shadow: Bias
    arity: int = 3
    evidence: str = "exact at n"

    @property
    def kind(self) -> str:
        """`ternary`, or `empty` without triples."""
        return "ternary" if self.num_triples else "empty"

    def __str__(self) -> str:
        return (
            f"{self.relation}: {self.kind}, {self.num_triples:,} triples; symmetry {self.symmetry}; "
            f"shadow {self.shadow.kind}, symmetry {self.shadow.symmetry} (n = {self.n}, {self.evidence})"
        )

    def as_dict(self) -> dict[str, Any]:
        """The verdict as JSON."""
        group = self.symmetry
        return {
            "relation": self.relation,
            "n": self.n,
            "arity": self.arity,
            "kind": self.kind,
            "triples": self.num_triples,
            "evidence": self.evidence,
            "symmetry": {
                "name": group.name,
                "order": group.order_text if len(group.order_text) > 15 else group.order,
                "generators": [generator.tolist() for generator in group.generators],
                "evidence": group.evidence,
            },
            "properties": self.properties,
            "witnesses": {name: list(triple) for name, triple in self.witnesses.items()},
            "shadow": self.shadow.as_dict(),
        }


def classify_ternary(relation: TernaryRelation, n: Any = None) -> TernaryBias:
    """The verdict on n positions; n may be left out where the relation has a size of its own.

    >>> from erlangen.relations import WindowSquared
    >>> print(classify_ternary(WindowSquared(lookback=1), 4))
    WindowSquared(lookback=1): ternary, 13 triples; symmetry 1, order 1; shadow previous, symmetry 1, order 1
    (n = 4, exact at n)
    """
    from erlangen.taxonomy.classify import classify

    bound = relation.on(n)
    found = {name: decide(bound) for name, decide in PROPERTIES.items()}
    return TernaryBias(
        repr(relation),
        bound.n,
        bound.num_triples,
        {name: witness is None for name, witness in found.items()},
        {name: witness for name, witness in found.items() if witness is not None},
        symmetry(relation, bound.n),
        classify(relation.shadow(bound.n), bound.n),
    )


Witness = tuple[int, int, int] | None
"""A triple at which a property fails; None when it holds."""


def _missing(bound: Triples, triples: np.ndarray) -> Witness:
    """The first of the triples that does not belong."""
    outside = ~bound.contains(*triples.T)
    if not outside.any():
        return None
    i, j, last = triples[outside.argmax()].tolist()
    return i, j, last


def _symmetric(bound: Triples) -> Witness:
    return _missing(bound, bound.triples()[:, [0, 2, 1]])


def _fully_symmetric(bound: Triples) -> Witness:
    orders = [bound.triples()[:, list(order)] for order in permutations(range(3))]
    return _missing(bound, np.concatenate(orders))


def _distinct(bound: Triples) -> Witness:
    i, j, last = bound.triples().T
    repeats = (i == j) | (i == last) | (j == last)
    if not repeats.any():
        return None
    at = int(repeats.argmax())
    return int(i[at]), int(j[at]), int(last[at])


def _product(bound: Triples) -> Witness:
    shadow = bound.shadow().on(bound.n)
    for i in np.flatnonzero(shadow.degrees**2 != bound.degrees).tolist():
        near = [key for start, stop in shadow.row(i) for key in range(start, stop)]
        pairs = set(bound.row(i))
        return next((i, j, last) for j in near for last in near if (j, last) not in pairs)
    return None


PROPERTIES: dict[str, Callable[[Triples], Witness]] = {
    "symmetric": _symmetric,
    "fully_symmetric": _fully_symmetric,
    "distinct": _distinct,
    "product": _product,
}

"""Verdicts as values: what a relation of pairs assumes, what its weights add, and a ternary relation."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from erlangen.symmetry import Group
from erlangen.taxonomy.certificates import Certificate, decode
from erlangen.taxonomy.table1 import Row
from erlangen.taxonomy.ten_properties import PROPERTIES

MAX_LISTED = 100_000
"""Generators are written into JSON up to this many numbers in all."""


@dataclass(frozen=True)
class FamilyGroup:
    """The symmetry of a family for every n it is stated for: `S_n`, `Z2` or `1`.

    >>> FamilyGroup("S_n", "n!").order, FamilyGroup("Z2", "2").order
    (None, 2)
    """

    name: str
    order_text: str
    evidence: str = "symbolic"

    @property
    def order(self) -> int | None:
        """The order where it is the same number for every n."""
        return int(self.order_text) if self.order_text.isdigit() else None

    def __str__(self) -> str:
        return f"{self.name}, order {self.order_text}"


@dataclass(frozen=True)
class WeightsVerdict:
    """The weights of a classified relation: their form and heads, the support and what it alone would keep.

    `refined` says whether weights break symmetries of the support; None where one of the groups is not known.
    """

    support: str
    form: str
    heads: int
    support_symmetry: str | None
    refined: bool | None

    def __str__(self) -> str:
        heads = "1 head" if self.heads == 1 else f"{self.heads} heads"
        effect = {
            True: f"they refine the symmetry of {self.support}, {self.support_symmetry}",
            False: f"they keep the symmetry of {self.support}",
            None: "they can only refine the symmetry",
        }[self.refined]
        return f"{self.form}, {heads}; {effect}"

    def as_dict(self) -> dict[str, Any]:
        """The same as JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Bias:
    """The verdict on a relation: what it assumes about the data.

    - `kind`: `empty`, `full`, `identity`, `bipartite`, `total-order`, `previous` (with `p`), otherwise
      `sparse`; `graph` when the neighborhoods depend on the data; None when it is not known.
    - `kinds`: every kind that fits. On small n several do (on one position the loop is full, identity and a
      total order at once); `kind` is the first in the order above.
    - `properties`: name -> True, False, or None (not decided).
    - `certificates`: name -> `Certificate`, for every decided property, kind, and the symmetry.
    - `symmetry`: the `Group` at n, or a `FamilyGroup` for every n.
    - `evidence`: `exact at n`, or `symbolic` when the verdict is for every n >= `from_n`.
    - `weights`: for a weighted relation what its weights do to the symmetry of the support, which `kind` and
      `properties` are about; None for a plain relation.

    >>> from erlangen.relations import Window
    >>> from erlangen.taxonomy import classify
    >>> print(classify(Window(lookback=2), 8))
    Window(lookback=2): previous, p = 2; symmetry 1, order 1 (n = 8, exact at n)
    """

    relation: str
    n: int | None
    kind: str | None
    kinds: tuple[str, ...]
    p: int | None
    table1: Row | None
    symmetry: Group | FamilyGroup | None
    certificates: dict[str, Certificate] = field(repr=False)
    evidence: str
    from_n: int | None = None
    weights: WeightsVerdict | None = None

    def __str__(self) -> str:
        where = f"n = {self.n}" if self.n is not None else f"every n >= {self.from_n or 0}"
        width = "" if self.p is None else f", p = {self.p}"
        kind = "not decided" if self.kind is None else f"{self.kind}{width}"
        group = "not decided" if self.symmetry is None else str(self.symmetry)
        return f"{self.relation}: {kind}; symmetry {group} ({where}, {self.evidence})"

    @property
    def properties(self) -> dict[str, bool | None]:
        """Each property: True, False, or None where it was not decided."""
        known = self.certificates
        return {name: known[name].value if name in known else None for name in PROPERTIES}

    @property
    def order(self) -> np.ndarray | None:
        """The order in which a `total-order` or `previous` relation reads backwards, least first.

        >>> from erlangen.relations import FromMask
        >>> from erlangen.taxonomy import classify
        >>> classify(FromMask([[1, 1], [0, 1]])).order.tolist()
        [1, 0]
        """
        if self.kind not in ("total-order", "previous") or self.n is None:
            return None
        return decode(self.certificates[self.kind].data["order"], self.n)

    def as_dict(self) -> dict[str, Any]:
        """The verdict as JSON: kind, p, symmetry, table1, properties, certificates, and where it holds."""
        where = {"from_n": self.from_n} if self.n is None else {"n": self.n}
        weights = {} if self.weights is None else {"weights": self.weights.as_dict()}
        return {
            "relation": self.relation,
            **where,
            "kind": self.kind,
            "kinds": list(self.kinds),
            "p": self.p,
            "evidence": self.evidence,
            "symmetry": _group_record(self.symmetry),
            "table1": None if self.table1 is None else self.table1.as_dict(),
            "properties": self.properties,
            "certificates": {name: proof.as_dict() for name, proof in self.certificates.items()},
            **weights,
        }


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
        return {
            "relation": self.relation,
            "n": self.n,
            "arity": self.arity,
            "kind": self.kind,
            "triples": self.num_triples,
            "evidence": self.evidence,
            "symmetry": _group_record(self.symmetry),
            "properties": self.properties,
            "witnesses": {name: list(triple) for name, triple in self.witnesses.items()},
            "shadow": self.shadow.as_dict(),
        }


def _group_record(group: Group | FamilyGroup | None) -> dict[str, Any]:
    if group is None:
        return {"name": None, "order": None, "generators": None, "evidence": "none"}
    text = group.order_text  # beyond 30 digits an expression such as 1000000!
    record: dict[str, Any] = {
        "name": group.name,
        "order": int(text) if text.isdigit() else text,
        "generators": None,
    }
    if isinstance(group, Group):
        if len(group.generators) * group.degree <= MAX_LISTED:
            record["generators"] = [generator.tolist() for generator in group.generators]
        else:
            record["generators_omitted"] = len(group.generators)
    return record | {"evidence": group.evidence}

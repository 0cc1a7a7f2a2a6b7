"""What a relation assumes: its kind, its row of Table 1, its symmetry and properties, with certificates."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, overload

import numpy as np

from erlangen.errors import ParameterError, SizeError
from erlangen.relations import Empty, Neighborhoods, Relation, TernaryRelation, WeightedRelation
from erlangen.relations.protocol import expect
from erlangen.symmetry import Group, symmetry
from erlangen.taxonomy.certificates import Certificate, encode
from erlangen.taxonomy.family_group import FamilyGroup
from erlangen.taxonomy.kinds import KINDS
from erlangen.taxonomy.properties import PROPERTIES
from erlangen.taxonomy.table1 import Row, row
from erlangen.taxonomy.ternary import TernaryBias, classify_ternary
from erlangen.taxonomy.verify import MAX_SEARCH
from erlangen.taxonomy.weights import Weights, with_weights

MAX_FAMILY = 2_000_000
"""Windows wider than this are not answered for every n: their certificates are found at n = width + 2."""

MAX_LISTED = 100_000
"""Generators are written into JSON up to this many numbers in all."""


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
    weights: Weights | None = None

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
        >>> classify(FromMask([[1, 1], [0, 1]])).order.tolist()
        [1, 0]
        """
        from erlangen.taxonomy.certificates import decode

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


@overload
def classify(relation: Relation | Neighborhoods | WeightedRelation, n: Any = None) -> Bias: ...
@overload
def classify(relation: TernaryRelation, n: Any = None) -> TernaryBias: ...
def classify(
    relation: Relation | Neighborhoods | WeightedRelation | TernaryRelation, n: Any = None
) -> Bias | TernaryBias:
    """Classify a relation by what it *is* on n positions, not by how it was written.

    Without n: relations with a size of their own (`Bipartite`, `Documents`, `FromMask`, ...) are classified
    at it; `Full`, `Identity`, `Empty`, `Causal` and `Window` (and transposes) for every n from `from_n` on;
    for any other relation only what holds at every size by law is answered, and the rest is None. A
    data-dependent relation is `graph`; give its vectors, shape (length, dim), as n to decide the properties
    of one instance. A weighted relation is classified by its support; its symmetry is that of the weights.
    A ternary relation has no kind of Table 1: it gets a `TernaryBias`, with the verdict on its shadow.

    >>> from erlangen.relations import Causal, Window
    >>> bias = classify(Window(lookback=8), 8)
    >>> bias.kind, bias.table1.data_type, bias.symmetry.order
    ('total-order', 'sequential', 1)
    >>> classify(Window(lookback=2), 8).kind, classify(Window(lookback=2), 8).p
    ('previous', 2)
    >>> everywhere = classify(Causal())
    >>> everywhere.kind, everywhere.evidence, everywhere.from_n
    ('total-order', 'symbolic', 2)
    >>> classify(Window(lookback=2)).certificates["transitive"].data
    {'triple': [3, 1, 0]}
    """
    taken = "classify takes one relation or R.on(n)"
    asked = expect(relation, taken, arity=None, axes=("item", "head"), weights=True, bound=True)
    if asked.arity == 3:
        return classify_ternary(asked, n)
    if asked.axes:
        raise ParameterError(f"classify takes one relation, and {relation!r} holds several: ask one by one")
    own = asked.own_sizes
    if asked.weights is not None:
        size = own[0] if n is None and own is not None and own[0] == own[1] else n
        return with_weights(classify(asked.support, size), asked.weights)
    if asked.data_dependent:
        return _data_dependent(asked, n)
    if n is None and own is None:
        return _for_every_size(asked)
    return _at(asked.on(*(own if n is None else (n,))), repr(relation), asked)


def _at(bound: Neighborhoods, text: str, source: Relation | Neighborhoods) -> Bias:
    n = bound.queries
    if n != bound.keys:
        raise SizeError(
            f"classify is about relations of one sequence with itself; {text} has {n} queries and "
            f"{bound.keys} keys. Write encoder-decoder attention as Bipartite(encoder, decoder)"
        )
    known = {name: kind(bound) for name, kind in KINDS.items()}
    kinds = tuple(name for name, proof in known.items() if proof is not None and proof.value)
    certificates = {name: decide(bound) for name, decide in PROPERTIES.items()}
    kind = kinds[0] if kinds else "sparse"
    # A sparse verdict says that every other kind fails, so it shows each failing; any other shows itself.
    certificates |= {name: known[name] for name in kinds} if kinds else known
    group = symmetry(source, n)
    decided = {name: proof for name, proof in certificates.items() if proof is not None}
    proof = _symmetry_certificate(bound, group, decided)
    if proof is not None:
        decided["symmetry"] = proof
    p = decided["previous"].data["p"] if kind == "previous" else None
    return Bias(text, n, kind, kinds or ("sparse",), p, row(kind), group, decided, "exact at n")


def _symmetry_certificate(
    bound: Neighborhoods, group: Group, known: dict[str, Certificate]
) -> Certificate | None:
    n = bound.queries
    data: dict[str, Any] | None = None
    loops = int(bound.contains(np.arange(n), np.arange(n)).sum())
    if known["unique_topological_order"].value:
        order = known["unique_topological_order"].data["order"]
        data = {"proof": "unique-order", "order": "1", "topological": order}
    elif loops in (0, n) and bound.num_edges - loops in (0, n * (n - 1)):
        data = {"proof": "indiscernible", "order": {"factorials": [n]}}
    elif "bipartite" in known and known["bipartite"].value:
        encoder = known["bipartite"].data["encoder"]
        read = int((bound.T.degrees > 0).sum())
        data = {"proof": "blocks", "order": {"factorials": [read, n - read]}, "encoder": encoder}
    elif n <= MAX_SEARCH and group.exact:
        generators = [encode(generator, n) for generator in group.generators]
        data = {"proof": "search", "order": str(group.order), "generators": generators}
    return None if data is None else Certificate("symmetry", True, data, n)


# --------------------------------------------------------------- without a size


def _family(relation: Relation) -> tuple[int, FamilyGroup | None] | None:
    """From which n on the verdict no longer changes, and the group from there on.

    With p = the wider side of a band: from n = p + 2 on some pair is out of reach, which is what decides
    transitivity and totality; a symmetric band has exactly its reflection from n = 2 p + 1 on.
    """
    if relation == Empty():
        return 2, FamilyGroup("S_n", "n!")
    if relation.band is None:
        return None
    back, ahead = relation.band
    if back == ahead:
        return (
            (2, FamilyGroup("S_n", "n!")) if back in (0, inf) else (2 * int(back) + 1, FamilyGroup("Z2", "2"))
        )
    wide = max(back, ahead)
    return 2 if wide == inf else int(wide) + 2, FamilyGroup("1", "1") if 0 in (back, ahead) else None


def _for_every_size(relation: Relation) -> Bias:
    text, family = repr(relation), _family(relation)
    if family is None or family[0] > MAX_FAMILY:
        laws = {name: Certificate(name, True, {}, 0, every_size=True) for name in sorted(relation.laws)}
        return Bias(text, None, None, (), None, None, None, laws, "symbolic" if laws else "none", 0)
    size, group = family
    at = _at(relation.on(size), text, relation)
    # Every index in these certificates is below `size` and every array a word: they say the same beyond.
    # (A second kind that fits at `size`, such as W_p for a total order, may need another p beyond: left out.)
    lifted = {
        name: replace(proof, size=size, every_size=True)
        for name, proof in at.certificates.items()
        if name != "symmetry" and name not in at.kinds[1:]
    }
    if "total-order" in lifted and not lifted["total-order"].value:
        inner = lifted["total-order"].data["fails"]
        lifted["total-order"] = replace(
            lifted["total-order"],
            data={"fails": {"claim": inner["claim"], "value": False, "from_n": size, "data": inner["data"]}},
        )
    proof = at.certificates.get("symmetry")
    if proof is not None and proof.data["proof"] == "unique-order":
        lifted["symmetry"] = replace(proof, size=size, every_size=True)
    return replace(
        at,
        n=None,
        kinds=at.kinds[:1],
        symmetry=group,
        certificates=lifted,
        evidence="symbolic",
        from_n=size,
    )


def _data_dependent(relation: Relation, data: Any) -> Bias:
    text = repr(relation)
    if getattr(data, "ndim", 0) != 2:  # a size does not say what the data is
        return Bias(text, None, "graph", ("graph",), None, row("graph"), None, {}, "data-dependent")
    bound = relation.on(data)
    at = _at(bound, text, bound)
    return replace(at, kind="graph", kinds=("graph", *at.kinds), p=None, table1=row("graph"))


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

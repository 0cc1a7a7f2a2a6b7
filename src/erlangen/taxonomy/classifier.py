"""What a relation assumes: its kind, its row of Table 1, its symmetry and properties, with certificates."""

from __future__ import annotations

from dataclasses import replace
from functools import singledispatch
from math import inf
from typing import Any, overload

import numpy as np

from erlangen.errors import ParameterError, SizeError
from erlangen.relations import Empty, Full, Neighborhoods, Relation, TernaryRelation, WeightedRelation
from erlangen.relations.protocol import AnyRelation, expect
from erlangen.symmetry import Group, symmetry
from erlangen.taxonomy.certificates import MAX_SEARCH, Certificate, encode
from erlangen.taxonomy.kinds import KINDS
from erlangen.taxonomy.table1 import row
from erlangen.taxonomy.ten_properties import PROPERTIES
from erlangen.taxonomy.triple_properties import TRIPLE_PROPERTIES
from erlangen.taxonomy.verdict_values import Bias, FamilyGroup, TernaryBias, WeightsVerdict

MAX_FAMILY = 2_000_000
"""Windows wider than this are not answered for every n: their certificates are found at n = width + 2."""


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
    if asked.axes:
        raise ParameterError(f"classify takes one relation, and {relation!r} holds several: ask one by one")
    return verdict(asked, n)


@singledispatch
def verdict(relation: AnyRelation, n: Any) -> Any:
    """The verdict on one relation of any kind, on n positions, on vectors, or without a size."""
    raise NotImplementedError(f"nothing is known of what {relation!r} assumes")


@verdict.register
def _bound(bound: Neighborhoods, n: Any) -> Bias:
    return _at(bound if n is None else bound.on(n), repr(bound), bound)


@verdict.register
def _pairs(relation: Relation, n: Any) -> Bias:
    if relation.data_dependent:
        return _data_dependent(relation, n)
    sizes = relation.own_sizes if n is None else (n,)
    return _for_every_size(relation) if sizes is None else _at(relation.on(*sizes), repr(relation), relation)


@verdict.register
def _weighted(weighted: WeightedRelation, n: Any) -> Bias:
    """The verdict on the support, turned into that on the weighted relation.

    Kind and properties say who reads whom, so they are the support's. The symmetry is that of the
    row-normalised weights, a subgroup of the support's. A certificate of the symmetry stays where it proves
    that the support has none.

    >>> from erlangen.relations import ALiBi, Full
    >>> verdict = classify(ALiBi([0.5, 0.25], relation=Full()), 5)
    >>> print(verdict)
    ALiBi(slopes=[0.5, 0.25], relation=Full()): full; symmetry Z2, order 2 (n = 5, exact at n)
    >>> print(verdict.weights)
    Toeplitz, 2 heads; they refine the symmetry of Full(), S5, order 120
    """
    own = weighted.own_sizes
    bias = verdict(weighted.support, own[0] if n is None and own is not None and own[0] == own[1] else n)
    family = of_every_size(weighted)
    group: Any = None
    if bias.n is not None:
        group = symmetry(weighted, bias.n)
    elif bias.symmetry is not None and bias.symmetry.order == 1:
        group = bias.symmetry
    elif family is not None:
        group = family[1]
    refined = None
    if group is not None and bias.symmetry is not None:
        refined = group.order_text != bias.symmetry.order_text
    weights = WeightsVerdict(
        repr(weighted.support),
        "Toeplitz" if weighted.structured else "per edge",
        weighted.heads,
        None if bias.symmetry is None else str(bias.symmetry),
        refined,
    )
    rigid = bias.symmetry is not None and bias.symmetry.order == 1
    kept = {name: proof for name, proof in bias.certificates.items() if rigid or name != "symmetry"}
    return replace(bias, relation=repr(weighted), symmetry=group, certificates=kept, weights=weights)


@verdict.register
def _ternary(relation: TernaryRelation, n: Any) -> TernaryBias:
    """The properties of the triples, and the verdict on what pairs can see of them.

    >>> from erlangen.relations import WindowSquared
    >>> print(classify(WindowSquared(lookback=1), 4))
    WindowSquared(lookback=1): ternary, 13 triples; symmetry 1, order 1; shadow previous, symmetry 1, order 1
    (n = 4, exact at n)
    """
    bound = relation.on(n)
    found = {name: decide(bound) for name, decide in TRIPLE_PROPERTIES.items()}
    return TernaryBias(
        repr(relation),
        bound.n,
        bound.num_triples,
        {name: witness is None for name, witness in found.items()},
        {name: witness for name, witness in found.items() if witness is not None},
        symmetry(relation, bound.n),
        classify(relation.shadow(bound.n), bound.n),
    )


# ----------------------------------------------------------------------- at a size


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


@singledispatch
def of_every_size(relation: AnyRelation) -> tuple[int, FamilyGroup | None] | None:
    """From which n on the verdict no longer changes, and the group from there on; None where it may change.

    >>> from erlangen.relations import Causal, Window
    >>> of_every_size(Causal()), of_every_size(Window(3, 3))
    ((2, FamilyGroup(name='1', order_text='1', evidence='symbolic')), (7, FamilyGroup(name='Z2',
    order_text='2', evidence='symbolic')))
    """
    return None


@of_every_size.register
def _(relation: Relation) -> tuple[int, FamilyGroup | None] | None:
    """A band with p = its wider side: from n = p + 2 on some pair is out of reach, which is what decides
    transitivity and totality; a symmetric band has exactly its reflection from n = 2 p + 1 on.
    """
    if relation.band is None:
        return None
    back, ahead = relation.band
    if back == ahead:
        return (2, FamilyGroup("S_n", "n!")) if back in (0, inf) else (2 * int(back) + 1, REFLECTION)
    wide = max(back, ahead)
    return 2 if wide == inf else int(wide) + 2, FamilyGroup("1", "1") if 0 in (back, ahead) else None


@of_every_size.register
def _(relation: Empty) -> tuple[int, FamilyGroup]:
    return 2, FamilyGroup("S_n", "n!")


@of_every_size.register
def _(relation: WeightedRelation) -> tuple[int, FamilyGroup] | None:
    """Weights that fall, or grow, with the distance over all pairs: the identity and the reversal."""
    return (2, REFLECTION) if relation.support == Full() and relation.monotone else None


REFLECTION = FamilyGroup("Z2", "2")


def _for_every_size(relation: Relation) -> Bias:
    text, family = repr(relation), of_every_size(relation)
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

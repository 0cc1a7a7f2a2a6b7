"""Three orders on attention mechanisms, computed, and where the paper's single ranking agrees with them.

O1 *family*: a mechanism contains another as a special case.
O2 *mask*: inclusion of relations at a fixed n.
O3 *symmetry*: inclusion of automorphism groups at a fixed n.
No single order gives the ranking of Table 1: it extends O2, and contradicts O1 and O3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any

import numpy as np

from erlangen.errors import ParameterError
from erlangen.relations import Bipartite, Causal, Full, Graph, Identity, Nearest, Neighborhoods, Window, sizes
from erlangen.symmetry import symmetry
from erlangen.taxonomy.ranges import first_beyond
from erlangen.taxonomy.table1 import TABLE1

RANKED = tuple(TABLE1)
"""The paper's single ranking, from the most general to the most specific."""
ORDERS = ("family", "mask", "symmetry")
MOST = 64
"""The largest n: the orders no longer change, and the check of every edge stays instant."""

Certificate = Mapping[str, Any]


@dataclass(frozen=True)
class Node:
    """A place in the diagram: its label, the kinds of Table 1 it holds, and a word on why they stand here.

    `bounds` are the relations drawn of it; none where it takes any graph.
    """

    label: str
    kinds: tuple[str, ...]
    note: str
    bounds: tuple[Neighborhoods, ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class Edge:
    """`upper` is strictly above `lower` with nothing between them; `certificate` is the finite check."""

    upper: str
    lower: str
    certificate: Certificate


@dataclass(frozen=True)
class Comparison:
    """Two kinds that are comparable here, the larger first, and whether Table 1 ranks them that way."""

    upper: str
    lower: str
    agrees: bool


@dataclass(frozen=True)
class Hierarchy:
    """One of the three orders at n: nodes, Hasse edges with certificates, and the comparison with Table 1."""

    order: str
    n: int
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    table1: tuple[Comparison, ...]

    @property
    def disagreements(self) -> tuple[Comparison, ...]:
        """The comparisons in which Table 1 has it the other way round."""
        return tuple(pair for pair in self.table1 if not pair.agrees)

    def as_dict(self) -> dict[str, Any]:
        """The hierarchy as JSON."""
        return {
            "order": self.order,
            "n": self.n,
            "nodes": [{"label": v.label, "kinds": list(v.kinds), "note": v.note} for v in self.nodes],
            "edges": [
                {"upper": e.upper, "lower": e.lower, "certificate": dict(e.certificate)} for e in self.edges
            ],
            "table1": [{"upper": c.upper, "lower": c.lower, "agrees": c.agrees} for c in self.table1],
        }


def hierarchy(order: str = "family", n: int = 6) -> Hierarchy:
    """The order "family", "mask" or "symmetry" on n positions, every edge computed and certified.

    >>> [(e.upper, e.lower) for e in hierarchy("symmetry", n=6).edges]
    [('S6', 'S3 x S3'), ('S3 x S3', '1')]
    >>> [(c.upper, c.lower) for c in hierarchy("family").disagreements]
    [('previous', 'total-order')]
    >>> hierarchy("mask").disagreements
    ()
    """
    if order not in ORDERS:
        raise ParameterError(f"order must be one of {', '.join(ORDERS)}, got {order!r}")
    n = sizes.count(n, "hierarchy(n)", least=3)
    if n > MOST:
        raise ParameterError(f"hierarchy(n) takes 3 <= n <= {MOST}, got {n}")
    return {"family": _family, "mask": _mask, "symmetry": _symmetry}[order](n)


# ------------------------------------------------------------------- O1: family


def _family(n: int) -> Hierarchy:
    """A mechanism is the set of relations its parameters reach; graph attention, one for each instance."""
    reaches: dict[str, dict[str, Neighborhoods]] = {
        "Self": {"no parameter": Full().on(n)},
        "Window": {f"p = {p}": Window(lookback=p).on(n) for p in range(n)},
        "Masked": {"no parameter": Causal().on(n)},
        "Identity": {"no parameter": Identity().on(n)},
        "Encoder-Decoder": {f"m = {m}": Bipartite(m, n - m).on(n) for m in range(1, n)},
    }
    everything = {
        f"{name}, {setting}": r for name, family in reaches.items() for setting, r in family.items()
    }
    # Sparse attention takes any graph, so it reaches whatever the others reach; it is measured, not assumed.
    reaches["Sparse"] = {
        name: Graph.from_pairs(bound.edges(), nodes=n).on(n) for name, bound in everything.items()
    }
    ring = Graph([(i, (i + 1) % n) for i in range(n)], nodes=n).on(n)
    reaches["Sparse"]["a ring"] = ring

    def above(upper: str, lower: str) -> Certificate | None:
        if upper == "Graph":
            return _constant_on_data(n) if lower == "Sparse" else _reached(reaches["Sparse"], reaches[lower])
        return None if lower == "Graph" else _reached(reaches[upper], reaches[lower])

    nodes = (
        Node("Graph", ("graph",), "relations given by each instance"),
        Node("Sparse", ("sparse",), "any fixed relation"),
        Node("Self", ("full",), "all pairs", (Full().on(n),)),
        Node("Window", ("previous",), "p previous elements", (Window(lookback=min(2, n - 2)).on(n),)),
        Node("Encoder-Decoder", ("bipartite",), "Y x X", (Bipartite(n // 2, n - n // 2).on(n),)),
        Node("Masked", ("total-order",), "all previous: p = n - 1", (Causal().on(n),)),
        Node("Identity", (), "itself alone: p = 0", (Identity().on(n),)),
    )
    return _build("family", n, nodes, above)


def _reached(upper: Mapping[str, Neighborhoods], lower: Mapping[str, Neighborhoods]) -> Certificate | None:
    settings: dict[str, str] = {}
    for name, bound in lower.items():
        match = next((setting for setting, other in upper.items() if other == bound), None)
        if match is None:
            return None
        settings[name] = match
    beyond = next((name for name in reversed(list(upper)) if upper[name] not in lower.values()), None)
    return None if beyond is None else {"proof": "special case", "settings": settings, "strict": beyond}


def _constant_on_data(n: int) -> Certificate | None:
    """The same graph for every instance is sparse attention; the nearest keys change with the data."""
    data = np.eye(n)
    one, other = Nearest(1).on(data, data), Nearest(1).on(data, data[::-1].copy())
    if one == other:
        return None
    return {
        "proof": "special case",
        "settings": {"a fixed graph": "the same graph for every instance"},
        "strict": f"nearest keys: query 0 reads {one.row(0)[0][0]}, on other data {other.row(0)[0][0]}",
    }


# --------------------------------------------------------------------- O2: mask


def shown_windows(n: int) -> list[int]:
    """The widths drawn between masked (p = n - 1) and the identity (p = 0): all up to n = 8, else a choice.

    >>> shown_windows(6), shown_windows(20)
    ([4, 3, 2, 1], [18, 10, 2, 1])
    """
    return list(range(n - 2, 0, -1)) if n <= 8 else [n - 2, n // 2, 2, 1]


def _mask(n: int) -> Hierarchy:
    m = n // 2
    bound = {
        "Full": Full().on(n),
        "Masked": Causal().on(n),
        **{f"Window {p}": Window(lookback=p).on(n) for p in shown_windows(n)},
        "Encoder-Decoder": Bipartite(m, n - m).on(n),
        "Identity": Identity().on(n),
    }

    def above(upper: str, lower: str) -> Certificate | None:
        beyond = first_beyond(bound[upper], bound[lower])
        if beyond is None or not bound[lower] <= bound[upper]:
            return None
        return {
            "proof": "inclusion",
            "edges": [bound[upper].num_edges, bound[lower].num_edges],
            "strict": list(beyond),
        }

    kinds = {"Full": "full", "Masked": "total-order", "Encoder-Decoder": "bipartite"}
    nodes = tuple(
        Node(
            name,
            (kinds[name],) if name in kinds else ("previous",) if name.startswith("Window") else (),
            f"{b.num_edges} of {n * n} pairs",
            (b,),
        )
        for name, b in bound.items()
    )
    return _build("mask", n, nodes, above)


# ----------------------------------------------------------------- O3: symmetry


def _symmetry(n: int) -> Hierarchy:
    m = n // 2
    relations = {
        "full": ("Full", Full()),
        "identity": ("Identity", Identity()),
        "bipartite": ("Encoder-Decoder", Bipartite(m, n - m)),
        "total-order": ("Masked", Causal()),
        "previous": ("Window", Window(lookback=1)),
    }
    groups = {kind: symmetry(relation, n) for kind, (_, relation) in relations.items()}
    classes: list[list[str]] = []
    for kind, group in groups.items():
        for members in classes:
            other = groups[members[0]]
            if group.is_subgroup_of(other) and other.is_subgroup_of(group):
                members.append(kind)
                break
        else:
            classes.append([kind])
    known = {groups[members[0]].name: groups[members[0]] for members in classes}

    def above(upper: str, lower: str) -> Certificate | None:
        big, small = known[upper], known[lower]
        outside = next((g.tolist() for g in big.generators if not small.contains(g)), None)
        if outside is None or not small.is_subgroup_of(big):
            return None
        return {"proof": "subgroup", "orders": [big.order_text, small.order_text], "strict": outside}

    nodes = tuple(
        Node(
            groups[members[0]].name,
            tuple(kind for kind in members if kind in RANKED),
            ", ".join(relations[kind][0] for kind in members),
            tuple(relations[kind][1].on(n) for kind in members),
        )
        for members in classes
    )
    return _build("symmetry", n, nodes, above)


# --------------------------------------------------------------------- diagrams


def _build(
    order: str, n: int, nodes: tuple[Node, ...], above: Callable[[str, str], Certificate | None]
) -> Hierarchy:
    labels = [node.label for node in nodes]
    proofs = {(a, b): proof for a, b in permutations(labels, 2) if (proof := above(a, b)) is not None}
    edges = tuple(
        Edge(a, b, proof)
        for (a, b), proof in proofs.items()
        if not any((a, c) in proofs and (c, b) in proofs for c in labels)
    )
    kinds = {node.label: node.kinds for node in nodes}
    compared = dict.fromkeys((x, y) for a, b in proofs for x in kinds[a] for y in kinds[b] if x != y)
    table1 = tuple(Comparison(x, y, RANKED.index(x) < RANKED.index(y)) for x, y in compared)
    return Hierarchy(order, n, nodes, edges, table1)

"""The rows of the paper's Table 1, and the kind of relation each stands for."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Row:
    """One row: the mechanism, what it relates, its symmetry group as printed, and the data it suits.

    >>> TABLE1["total-order"].relations
    'previous elements'
    """

    mechanism: str
    relations: str
    symmetry_group: str
    data_type: str

    def as_dict(self) -> dict[str, str]:
        """The row as a dictionary."""
        return asdict(self)


TABLE1: dict[str, Row] = {
    "graph": Row("graph attention", "depends on the data", "dynamic", "a graph for each instance"),
    "sparse": Row("sparse attention", "arbitrary", "arbitrary", "one given graph"),
    "full": Row("self-attention", "fully connected", "permutations", "relational or bidirectional"),
    "total-order": Row("masked attention", "previous elements", "translation", "sequential"),
    "previous": Row("strided attention", "p previous elements", "translation", "bounded sequential"),
    "bipartite": Row("encoder-decoder attention", "bipartition", "block system", "partitional"),
}
"""Kind -> row, most general first, in the order the paper prints them."""

_STANDS_FOR = {"identity": "previous", "empty": "sparse"}


def row(kind: str | None) -> Row | None:
    """The row of a kind. The identity is strided attention with p = 0; the empty relation is one given graph.

    >>> row("identity").mechanism, row("empty").mechanism
    ('strided attention', 'sparse attention')
    """
    return None if kind is None else TABLE1[_STANDS_FOR.get(kind, kind)]

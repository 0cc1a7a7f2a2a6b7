"""The sizes a relation brings with it, for those that fit one number of positions only."""

from __future__ import annotations

from math import prod

from erlangen.errors import SizeError
from erlangen.relations.graphs import FromMask, Graph
from erlangen.relations.grids import Grid
from erlangen.relations.offsets import GridOffset
from erlangen.relations.operators import Node
from erlangen.relations.partitions import Bipartite, Documents
from erlangen.relations.relation import Relation


def own_sizes(relation: Relation) -> tuple[int, int] | None:
    """(queries, keys) when the relation fits this number of keys only, with its own number of queries.

    None when it fits any. An expression has the sizes of those of its parts that have any. Parts with
    different keys are an error; of different queries the fewest count, as they are the last positions of all.

    >>> from erlangen.relations import Bipartite, Causal, Documents
    >>> [own_sizes(r) for r in (Bipartite(encoder=3, decoder=4), Causal() & Documents([2, 3]), Causal())]
    [(7, 7), (5, 5), None]
    >>> own_sizes(Documents([2, 3]) | Bipartite(1, 1))
    Traceback (most recent call last):
    ...
    erlangen.errors.SizeError: Documents(lengths=(2, 3)) | Bipartite(encoder=1, decoder=1) has parts of
    different sizes: 5 queries x 5 keys and 2 queries x 2 keys
    """
    match relation:
        case Bipartite():
            return _square(relation.encoder + relation.decoder)
        case Documents():
            return _square(sum(relation.lengths))
        case Grid():
            return _square(prod(relation.shape))
        case GridOffset():
            return prod(relation.queries), prod(relation.shape)
        case Graph():
            return None if relation.nodes is None else _square(relation.nodes)
        case FromMask():
            return relation._bound.queries, relation._bound.keys
        case Node():
            found = [sizes for operand in relation.operands if (sizes := own_sizes(operand)) is not None]
            for sizes in found[1:]:
                if sizes[1] != found[0][1]:
                    (q, k), (other_q, other_k) = found[0], sizes
                    raise SizeError(
                        f"{relation} has parts of different sizes: "
                        f"{q} queries x {k} keys and {other_q} queries x {other_k} keys"
                    )
            return min(found) if found else None
        case _:
            return None


def _square(size: int) -> tuple[int, int]:
    return size, size

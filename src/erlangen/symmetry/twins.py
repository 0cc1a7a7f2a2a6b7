"""Twins: points whose exchange is an automorphism. Classes of them are merged before any search.

Searching a clique or a complete bipartite block costs a solver quadratic time or worse, and the answer is
known: a class of k twins contributes S_k. Points u, v are twins iff the transposition (u v) keeps the
relation. This is an equivalence, and each class is of one of two kinds: u, v have equal rows and equal
columns (kind 1), or they have them after every loop is toggled (kind 2: a clique without loops, an
independent set with them).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from erlangen.relations import intervals
from erlangen.relations.neighborhoods import Neighborhoods
from erlangen.symmetry.group_shapes import TRIVIAL, Shape, Symmetric, wreath
from erlangen.symmetry.moves import Move, symmetric
from erlangen.symmetry.refinement import compress, mix


@dataclass(frozen=True, eq=False)
class Reduced:
    """A relation with twins merged: vertex v stands for the aligned points blocks[v].

    `colors` tells vertices apart that no automorphism may exchange; `shapes[v]` is the group inside
    the block and `moves[v]` generates it, together with permutations that carry parts of the block to one
    another.
    """

    relations: tuple[Neighborhoods, ...]
    colors: np.ndarray
    blocks: list[np.ndarray]
    shapes: list[Shape]
    moves: list[tuple[Move, ...]]


def reduce(relations: Sequence[Neighborhoods], colors: np.ndarray) -> Reduced:
    """Merge twins, then twins of merged vertices, until none are left.

    Every class found by hash is compared run by run before it is believed.

    >>> two_cliques = Neighborhoods.from_dense(np.kron(np.eye(2), np.ones((3, 3))) > 0)
    >>> reduce([two_cliques], np.zeros(6, np.int64)).shapes[0].name
    'S3 wr S2'
    """
    n = colors.size
    state = Reduced(tuple(relations), compress(colors)[0], _singletons(n), [TRIVIAL] * n, [()] * n)
    while state.colors.size > 1 and (merged := _merge(state)) is not None:
        state = merged
    return state


def _singletons(n: int) -> list[np.ndarray]:
    return list(np.arange(n, dtype=np.int64)[:, None])


def _merge(state: Reduced) -> Reduced | None:
    labels, kinds = state.colors, np.zeros(state.colors.size, np.int64)
    for relation in state.relations:
        labels, kind = twin_labels(relation, labels)
        kinds = compress(3 * kinds + kind)[0]
    order = np.argsort(labels, kind="stable")
    cuts = np.flatnonzero(np.diff(labels[order])) + 1
    starts = np.concatenate([[0], cuts])
    sizes = np.diff(np.concatenate([starts, [order.size]]))
    if sizes.max() == 1:
        return None
    first = order[starts]
    renumber = np.argsort(first, kind="stable")  # vertices stay in the order of their smallest points
    keep = first[renumber]
    blocks = [state.blocks[v] for v in keep.tolist()]
    shapes = [state.shapes[v] for v in keep.tolist()]
    moves = [state.moves[v] for v in keep.tolist()]
    for place in np.flatnonzero(sizes[renumber] > 1).tolist():
        begin, size = starts[renumber[place]], sizes[renumber[place]]
        members = np.stack([state.blocks[v] for v in order[begin : begin + size].tolist()])
        blocks[place] = members.ravel()
        shapes[place] = wreath(shapes[place], Symmetric(int(size)))
        moves[place] += symmetric(members)
    several = sizes[renumber] > 1
    # Two merged vertices may be exchanged only if alike inside: same colour, same number, same kind.
    inside = compress(sizes[renumber] * (kinds.max() + 2) + np.where(several, kinds[keep] + 1, 0))[0]
    colors, _ = compress(state.colors[keep] * (inside.max() + 1) + inside)
    quotient = tuple(relation.restrict(keep, keep) for relation in state.relations)
    return Reduced(quotient, colors, blocks, shapes, moves)


def twin_labels(relation: Neighborhoods, colors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A label per point, equal exactly for twins of equal colour, and the kind of each class (0 if alone).

    >>> clique = Neighborhoods.from_dense(~np.eye(3, dtype=bool))
    >>> twin_labels(clique, np.zeros(3, np.int64))
    (array([0, 0, 0]), array([2, 2, 2]))
    """
    n = colors.size
    labels, kinds = np.arange(n, dtype=np.int64), np.zeros(n, np.int64)
    diagonal = np.arange(n, dtype=np.int64)
    for kind, form in ((1, relation), (2, relation ^ Neighborhoods.loops(n))):
        same = equal_rows(form.T, equal_rows(form, colors))
        shared = np.bincount(same, minlength=1)[same] > 1
        smallest = np.full(int(same.max(initial=-1)) + 1, n)
        np.minimum.at(smallest, same, diagonal)
        labels = np.where(shared, smallest[same], labels)
        kinds = np.where(shared, kind, kinds)
    return labels, kinds


def equal_rows(relation: Neighborhoods, labels: np.ndarray) -> np.ndarray:
    """A label per row, equal exactly for rows that have equal labels and are equal as sets.

    >>> equal_rows(Neighborhoods.from_edges(3, 3, [(0, 2), (1, 1), (2, 2)]), np.zeros(3, np.int64))
    array([0, 1, 0])
    """
    digest = mix(mix(relation.starts, 11) ^ mix(relation.stops, 12), 13)
    total = np.zeros(digest.size + 1, np.uint64)
    np.cumsum(digest, out=total[1:])
    row = total[relation.indptr[1:]] - total[relation.indptr[:-1]]
    classes, count = compress(mix(row, 14) ^ mix(labels, 15))
    leader = np.full(count, labels.size)
    np.minimum.at(leader, classes, np.arange(labels.size))
    differs = _differ(relation, leader[classes]) | (labels != labels[leader[classes]])
    if differs.any():  # a hash collision: compare by content
        content = [
            relation.starts[a:b].tobytes() + relation.stops[a:b].tobytes()
            for a, b in zip(relation.indptr[:-1], relation.indptr[1:], strict=True)
        ]
        seen: dict[tuple[int, bytes], int] = {}
        pairs = zip(labels.tolist(), content, strict=True)
        return np.array([seen.setdefault(pair, len(seen)) for pair in pairs], np.int64)
    return compress(leader[classes])[0]


def _differ(relation: Neighborhoods, leader: np.ndarray) -> np.ndarray:
    """Which rows differ from the row that leads their class."""
    rows = np.flatnonzero(leader != np.arange(leader.size))
    runs = np.diff(relation.indptr)
    differs = runs != runs[leader]
    rows = rows[~differs[rows]]
    own = intervals.expand(relation.indptr[rows], runs[rows])
    lead = intervals.expand(relation.indptr[leader[rows]], runs[rows])
    unequal = (relation.starts[own] != relation.starts[lead]) | (relation.stops[own] != relation.stops[lead])
    differs[np.repeat(rows, runs[rows])[unequal]] = True
    return differs

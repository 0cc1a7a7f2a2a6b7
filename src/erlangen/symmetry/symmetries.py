"""The question: which permutations of positions does a relation keep?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from erlangen.errors import ErlangenError, ParameterError, SizeError
from erlangen.relations import sizes
from erlangen.relations.families import PerHead
from erlangen.relations.neighborhoods import Neighborhoods
from erlangen.relations.protocol import AnyRelation, expect
from erlangen.relations.relation import Relation
from erlangen.relations.ternary import TernaryRelation
from erlangen.relations.weighted import WeightedRelation
from erlangen.symmetry.automorphisms import automorphisms
from erlangen.symmetry.closed_forms import closed_form
from erlangen.symmetry.group import Group
from erlangen.symmetry.group_shapes import Symmetric
from erlangen.symmetry.moves import Move
from erlangen.symmetry.structures import heads_of, structure, unexplored


def symmetry(
    relation: Relation | PerHead | Neighborhoods | WeightedRelation | TernaryRelation,
    n: int | None = None,
    *,
    keys: int | None = None,
    joint: bool = True,
    budget: float = 10.0,
) -> Group:
    """The automorphism group Aut(R) = {pi : (i, j) in R iff (pi i, pi j) in R} on n positions.

    It is the symmetry group of the attention layer with this relation and no positional encoding: f(pi X) =
    pi f(X) for all X exactly for pi in Aut(R), whatever the weights (W_V != 0). For `PerHead` it is the
    intersection of the groups of the heads. For a weighted relation it is the group of the row-normalised
    weights, {pi : W_ij / sum_l W_il is kept}, since scaling a row changes nothing; of all heads at once.
    For a ternary relation it is Aut(T) = {pi : (i, j, l) in T iff (pi i, pi j, pi l) in T}.

    `n` may be left out where the relation has a size of its own. With `joint=False` queries and keys are
    permuted apart: pairs (tau, sigma) with (i, j) in R iff (tau i, sigma j) in R; then `keys` may differ
    from n.

    Families of which theory knows the group are answered for any n at once (evidence "symbolic"); others
    are computed at n (evidence "exact at n"): twins are merged, colours refined, and bliss searches what
    remains. Weights are compared exactly; where floats had to be compared up to rounding, the evidence is
    "numeric". A search longer than `budget` seconds is stopped, and the group is then a part of the true one
    ("at least").

    >>> from erlangen.relations import Blocks, Causal, Full, Prefix, Ring, Window
    >>> print(symmetry(Full(), 5), "|", symmetry(Causal(), 5), "|", symmetry(Ring(1, 1), 8))
    S5, order 120 | 1, order 1 | D8, order 16
    >>> symmetry(Blocks(2), 6)
    <Group S2 wr S3, order 48; degree 6; symbolic>
    >>> print(symmetry(Full(), 1_000_000))
    S1000000, order 1000000!
    >>> symmetry(Causal() | Prefix(2) & Window(0, 9), 4)
    <Group S2, order 2; degree 4; exact at n>
    >>> symmetry(Full(), 2, keys=3, joint=False)
    <Group S2 x S3, order 12; 2 queries, 3 keys; symbolic>
    >>> from erlangen.relations import ALiBi, Weighted
    >>> symmetry(ALiBi([0.5, 0.25], relation=Full()), 6)
    <Group Z2, order 2; degree 6; symbolic>
    >>> symmetry(Weighted(Full(), [[1, 1, 1], [2, 2, 2], [0, 0, 0]]), 3)
    <Group S3, order 6; degree 3; exact at n>
    >>> from erlangen.relations import Fano
    >>> print(symmetry(Fano().shadow()), "|", symmetry(Fano()))
    S7, order 5040 | order 168
    """
    members = _members(relation, arity=None)
    if members[0].arity == 3 and (keys is not None or not joint):
        raise ParameterError(f"{relation} relates positions of one sequence: one permutation acts on all")
    queries, keys = _sizes(relation, members, n, keys)
    return _common(members, queries, keys, joint, _budget(budget))


def stack_symmetry(
    layers: Iterable[Relation | PerHead | Neighborhoods | WeightedRelation],
    n: int | None = None,
    *,
    budget: float = 10.0,
) -> Group:
    """The group of a stack of layers: the intersection of their groups.

    **This is not the group of what the stack reaches.** A permutation is a symmetry of a network when every
    layer keeps it; `reach` says which inputs an output can depend on. Three layers on a ring of six with its
    two neighbours reach everything, and the relation of everything has all 720 permutations; yet each layer
    still tells neighbours from others, and the network keeps only the 12 symmetries of the hexagon:

    >>> from erlangen.relations import Ring
    >>> layer = Ring(lookback=1, lookahead=1)
    >>> print(symmetry(layer.reach(3), 6))
    S6, order 720
    >>> print(stack_symmetry([layer] * 3, 6))
    D6, order 12
    """
    listed = tuple(layers)
    if not listed:
        raise ParameterError("stack_symmetry(layers) takes at least one layer, got none")
    members = [member for layer in listed for member in _members(layer)]
    queries, keys = _sizes(list(listed), members, n, None)
    return _common(members, queries, keys, True, _budget(budget))


def _common(members: Sequence[AnyRelation], queries: int, keys: int, joint: bool, budget: float) -> Group:
    """The permutations that keep every member."""
    if joint and queries != keys:
        raise SizeError(
            f"one permutation cannot act on {queries} queries and {keys} keys; "
            "with joint=False each side has its own"
        )
    known = {member: closed_form(member, queries, keys, joint) for member in members}
    for group in known.values():
        if group is not None and group.trivial:
            return group  # the intersection with anything is trivial
    # A member that every permutation keeps restricts nothing.
    everything = [m for m, group in known.items() if joint and group and group.shape == Symmetric(queries)]
    restricting = [member for member in known if member not in everything] or everything[:1]
    if len(restricting) == 1 and (alone := known[restricting[0]]) is not None:
        return alone
    large = unexplored(restricting, queries, keys, joint)
    if large is not None:
        return large
    found = [structure(member, queries, keys) for member in restricting]
    relations = tuple(dict.fromkeys(relation for one in found for relation in one.relations))
    colors = found[0].colors
    if not joint:
        side = np.repeat(np.array([0, 1]), [queries, keys])
        group = automorphisms([_side_by_side(bound) for bound in relations], side, budget, (queries, keys))
    elif colors is None:
        group = automorphisms(relations, np.zeros(queries, np.int64), budget)
    else:
        group = _on_positions(automorphisms(relations, colors, budget), found[0].oracle, queries)
    numeric = any(one.numeric for one in found)
    return replace(group, evidence="numeric") if numeric and group.exact else group


def _on_positions(group: Group, oracle: Any, n: int) -> Group:
    """What a group of all points does with the first n, by which alone it is determined."""
    inside = [move.points < n for move in group.moves]
    moves = tuple(
        Move(move.points[kept], move.images[kept]) for move, kept in zip(group.moves, inside, strict=True)
    )
    if not all(oracle(move.array(n)) for move in moves):
        raise ErlangenError("a computed generator is not an automorphism; this is a defect of erlangen")
    return Group(n, group.shape, moves, group.evidence, oracle)


def _members(relation: AnyRelation, arity: int | None = 2) -> Sequence[AnyRelation]:
    """Relations that each must be kept: those of the heads, or a weighted relation with all of its heads."""
    asked = expect(relation, _TAKEN, arity=arity, axes=("item", "head"), weights=True, bound=True)
    heads = heads_of(asked)
    return heads if asked.weights is None else (asked,)


_TAKEN = "symmetry(relation) takes a relation, a PerHead or neighborhoods"


def _sizes(relation: Any, members: Sequence[AnyRelation], n: int | None, keys: int | None) -> tuple[int, int]:
    if n is None:
        own = next((found for member in members if (found := member.own_sizes) is not None), None)
        if own is None:
            raise SizeError(f"{relation} has no size of its own: say on how many positions (n=, or --n)")
        n, keys = own[0], own[1] if keys is None else keys
    queries = sizes.size(n, "n")
    return queries, queries if keys is None else sizes.size(keys, "keys")


def _budget(budget: Any) -> float:
    if isinstance(budget, bool) or not isinstance(budget, (int, float)) or not budget >= 0:
        raise ParameterError(f"budget is a number of seconds >= 0, got {budget!r}")
    return float(budget)


def _side_by_side(bound: Neighborhoods) -> Neighborhoods:
    """Queries and keys as one set of points, queries first; key rows are empty."""
    q, k = bound.queries, bound.keys
    indptr = np.concatenate([bound.indptr, np.full(k, bound.indptr[-1], np.int64)])
    return Neighborhoods(q + k, q + k, indptr, bound.starts + q, bound.stops + q)

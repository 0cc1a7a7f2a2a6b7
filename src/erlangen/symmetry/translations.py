"""What survives of translations on a finite sequence: Toeplitz masks, cores, the prefix law."""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch
from math import inf
from typing import Any, final

import numpy as np

from erlangen.errors import ParameterError, SizeError
from erlangen.relations import intervals, sizes
from erlangen.relations.expressions import Complement, Transpose
from erlangen.relations.neighborhoods import Neighborhoods
from erlangen.relations.orders import Empty
from erlangen.relations.protocol import AnyRelation, expect
from erlangen.relations.relation import Relation
from erlangen.relations.windows import Offset


@final
@dataclass(frozen=True, eq=False, repr=False)
class Translations:
    """How a relation on n positions behaves under i -> i + m. Made by `translations`.

    - `toeplitz`: R[i + 1, j + 1] = R[i, j] wherever both are positions. It is what "translation
      invariant" can mean for a finite mask; it is not a symmetry of the finite layer.
    - `core(m)`: the rows i with N_{i+m} = N_i + m. Exactly these rows of a layer are equivariant to the
      shift by m.
    - `prefix`: f(X)[:k] = f(X[:k]) for every k, the property behind a cache of keys and values: no row reads
      beyond itself, and on k positions the relation is the restriction of the one on n.
    - `integers`: the group of the family on all integers where theory gives it: `Z` (translations),
      `Z with reversals` (translations and reflections), `Sym(Z)` (every permutation), else None.
    """

    neighborhoods: Neighborhoods
    toeplitz: bool
    prefix: bool
    prefix_counterexample: str | None
    integers: str | None

    @property
    def n(self) -> int:
        """The number of positions."""
        return self.neighborhoods.queries

    def core(self, shift: int) -> np.ndarray:
        """Core(m) = {i : N_{i+m} = N_i + m} for a shift m, where i and i + m are positions.

        >>> from erlangen.relations import Causal, Window
        >>> translations(Window(lookback=2), 8).core(3), translations(Causal(), 8).core(3)
        (array([2, 3, 4]), array([], dtype=int64))
        """
        if isinstance(shift, bool) or not isinstance(shift, (int, np.integer)):
            raise ParameterError(f"core(shift) takes an integer, got {shift!r}")
        n, m, bound = self.n, int(shift), self.neighborhoods
        if abs(m) >= n:
            return np.empty(0, np.int64)
        rows = np.arange(max(0, -m), min(n, n - m), dtype=np.int64)
        runs = np.diff(bound.indptr)
        same = runs[rows] == runs[rows + m]
        rows = rows[same]
        own = intervals.expand(bound.indptr[rows], runs[rows])
        other = intervals.expand(bound.indptr[rows + m], runs[rows])
        unequal = (bound.starts[own] + m != bound.starts[other]) | (
            bound.stops[own] + m != bound.stops[other]
        )
        fits = np.ones(n, bool)
        fits[np.repeat(rows, runs[rows])[unequal]] = False
        return rows[fits[rows]]

    def cores(self) -> dict[int, np.ndarray]:
        """Core(m) for every shift m from 1 - n to n - 1; Core(0) is everything.

        >>> from erlangen.relations import Causal
        >>> {m: core.tolist() for m, core in translations(Causal(), 3).cores().items()}
        {-2: [], -1: [], 0: [0, 1, 2], 1: [], 2: []}
        """
        return {m: self.core(m) for m in range(1 - self.n, self.n)}

    def __str__(self) -> str:
        integers = f"; on the integers: {self.integers}" if self.integers else ""
        return (
            f"{'Toeplitz' if self.toeplitz else 'not Toeplitz'}; prefix law "
            f"{'holds' if self.prefix else f'fails ({self.prefix_counterexample})'}; "
            f"rows equivariant to the shift by 1: {self.core(1).size} of {max(self.n - 1, 0)}{integers}"
        )

    def __repr__(self) -> str:
        return f"<Translations on {self.n} positions: {self}>"


def translations(relation: Relation | Neighborhoods, n: int | None = None) -> Translations:
    """Is the mask Toeplitz, which rows are equivariant to which shift, does the prefix law hold?

    A causal mask is Toeplitz and keeps prefixes, and yet no row at all is equivariant to any shift: the
    shifted row also reads what was shifted in. A window is equivariant away from the start.

    >>> from erlangen.relations import Causal, Window
    >>> print(translations(Causal(), 8))
    Toeplitz; prefix law holds; rows equivariant to the shift by 1: 0 of 7; on the integers: Z
    >>> print(translations(Window(lookback=2), 8))
    Toeplitz; prefix law holds; rows equivariant to the shift by 1: 5 of 7; on the integers: Z
    >>> print(translations(Window(lookback=1, lookahead=1), 8))
    Toeplitz; prefix law fails (query 0 reads key 1); rows equivariant to the shift by 1: 5 of 7; on the
    integers: Z with reversals
    """
    bound = _bind(relation, n)
    inner, outer = slice(1, None), slice(None, -1)
    toeplitz = bound.queries == 0 or bound.restrict(inner, inner) == bound.restrict(outer, outer)
    broken = _ahead(bound) or _inconsistent(relation, bound)
    return Translations(bound, toeplitz, broken is None, broken, on_integers(relation))


@singledispatch
def on_integers(relation: AnyRelation) -> str | None:
    """The automorphism group of a family on all integers, where theory gives it.

    A band of at least two keys determines which integers are neighbours (their rows differ by one key), so
    only translations and reflections can keep it; a reflection does exactly when the band is symmetric. An
    automorphism of the order of the integers is a translation.

    >>> from erlangen.relations import Blocks, Causal, Full, Window
    >>> [on_integers(r) for r in (Causal(), Window(3), Window(2, 2), Full(), Blocks(2))]
    ['Z', 'Z', 'Z with reversals', 'Sym(Z)', None]
    """
    return None


@on_integers.register
def _by_band(relation: Relation) -> str | None:
    if relation.band is None:
        return None
    back, ahead = relation.band
    if back == ahead:
        return "Sym(Z)" if back in (0, inf) else "Z with reversals"
    return "Z"


@on_integers.register(Complement)
@on_integers.register(Transpose)
def _of_operand(relation: Complement | Transpose) -> str | None:
    return on_integers(relation.operands[0])


@on_integers.register
def _empty(relation: Empty) -> str:
    return "Sym(Z)"


@on_integers.register
def _offset(relation: Offset) -> str | None:
    return {0: "Sym(Z)", 1: "Z"}.get(abs(relation.by))


def _bind(relation: Relation | Neighborhoods, n: int | None) -> Neighborhoods:
    relation = expect(relation, "translations(relation) takes a relation or neighborhoods", bound=True)
    if n is None and relation.own_sizes is None:
        raise SizeError(
            f"{relation} has no size of its own: say on how many positions, translations(relation, n)"
        )
    bound = relation.on(*(relation.own_sizes or ())) if n is None else relation.on(sizes.size(n, "n"))
    if bound.queries != bound.keys:
        raise SizeError(f"translations act on one sequence of n positions; got {bound} for n = {n}")
    return bound


def _ahead(bound: Neighborhoods) -> str | None:
    rows = bound.run_rows
    ahead = np.flatnonzero(bound.stops > rows + 1)
    if ahead.size == 0:
        return None
    query = int(rows[ahead[0]])
    return f"query {query} reads key {max(int(bound.starts[ahead[0]]), query + 1)}"


def _inconsistent(relation: Any, bound: Neighborhoods) -> str | None:
    """The first k at which the relation on k positions is not the restriction of the one on n."""
    if relation.own_sizes is not None or relation.pointwise:
        return None
    for k in range(1, bound.queries):
        try:
            if relation.on(k) != bound.restrict(slice(0, k), slice(0, k)):
                return f"on {k} positions the relation is not the restriction of the one on {bound.queries}"
        except SizeError:
            continue  # a size on which the relation does not exist gives no counterexample
    return None

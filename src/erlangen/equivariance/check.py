"""The verdict: a layer keeps exactly a group when it passes inside it and fails outside it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from erlangen.equivariance.measure import DoubleLayer, Layer
from erlangen.errors import ShapeError
from erlangen.symmetry.group import Group

TOLERANCE = 1e-9
"""Relative error in float64 below which a layer counts as equivariant to a permutation."""


@final
@dataclass(frozen=True)
class Check:
    """What was measured: the largest error inside the group and the smallest on sampled permutations outside.

    `inside` has one error per generator, `outside` one per sampled permutation that is not in the group; it
    is empty only for a group that holds all permutations. The evidence is numeric.
    """

    group: Group
    inside: tuple[float, ...]
    outside: tuple[float, ...]
    unbroken: tuple[tuple[int, ...], ...]
    tolerance: float

    @property
    def keeps(self) -> bool:
        """Whether the layer is equivariant to the whole group."""
        return all(error < self.tolerance for error in self.inside)

    @property
    def breaks(self) -> bool:
        """Whether the layer is not equivariant to any sampled permutation outside the group."""
        return all(error > self.tolerance for error in self.outside)

    @property
    def holds(self) -> bool:
        """Both: the group is kept, and nothing more that was tried."""
        return self.keeps and self.breaks

    def __str__(self) -> str:
        inside = (
            f"largest error {max(self.inside):.1e} on {len(self.inside)} generators"
            if self.inside
            else "trivial"
        )
        outside = (
            f"smallest error {min(self.outside):.1e} on {len(self.outside)} permutations outside"
            if self.outside
            else "no permutation lies outside"
        )
        verdict = (
            "holds" if self.holds else "fails: not kept" if not self.keeps else "fails: the layer keeps more"
        )
        return f"{self.group.name}: {inside}, {outside}: {verdict} (numeric)"


def check(layer: Layer, group: Group, x: Any, *, samples: int = 16, seed: int = 0) -> Check:
    """Is `group` the symmetry of a layer? Equivariant on every generator **and** not on permutations outside.

    Permutations outside are sampled from transpositions, which a wrong relation is most likely to keep,
    and from all permutations. `x` has shape (n, d), or is a pair (queries, keys) for a group with queries
    and keys apart. Scores should be of order one: a saturated softmax hides edges.

    >>> import torch
    >>> from erlangen.nn import SparseAttention
    >>> from erlangen.relations import Ring
    >>> from erlangen.symmetry import symmetry
    >>> _ = torch.manual_seed(0)
    >>> ring, x = Ring(1, 1), torch.randn(6, 8)
    >>> check(SparseAttention(8, ring), symmetry(ring, 6), x).holds
    True
    >>> check(SparseAttention(8, Ring(1, 0)), symmetry(ring, 6), x).keeps
    False
    """
    prepared = DoubleLayer(layer, x)
    lengths = tuple(len(t) for t in prepared.inputs)
    expected = (group.degree,) if group.sides is None else group.sides
    if lengths != expected:
        raise ShapeError(f"{group!r} acts on {expected} positions, but x has {lengths}")

    def error(element: np.ndarray) -> float:
        return prepared.measure(group.pair(element) if group.sides else element).error

    inside = tuple(error(generator) for generator in group.generators)
    outsiders = list(outside(group, samples, np.random.default_rng(seed)))
    errors = tuple(error(element) for element in outsiders)
    unbroken = tuple(
        tuple(e.tolist()) for e, size in zip(outsiders, errors, strict=True) if size <= TOLERANCE
    )
    return Check(group, inside, errors, unbroken, TOLERANCE)


def outside(group: Group, samples: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Up to `samples` permutations that are not in the group; none when the group holds them all.

    >>> from erlangen.relations import Bipartite, Full
    >>> from erlangen.symmetry import symmetry
    >>> rng = np.random.default_rng(0)
    >>> len(list(outside(symmetry(Bipartite(2, 2)), 5, rng))), len(list(outside(symmetry(Full(), 4), 5, rng)))
    (5, 0)
    """
    starts = [0, group.degree] if group.sides is None else [0, group.sides[0], group.degree]
    found = 0
    for attempt in range(20 * samples):
        if found == samples:
            return
        element = np.arange(group.degree, dtype=np.int64)
        for low, high in itertools.pairwise(starts):
            if attempt % 2:
                element[low:high] = low + rng.permutation(high - low)
            elif high - low > 1 and rng.random() < 1 / len(starts) + 0.5:
                a, b = low + rng.choice(high - low, 2, replace=False)
                element[a], element[b] = b, a
        if not group.contains(element):
            found += 1
            yield element

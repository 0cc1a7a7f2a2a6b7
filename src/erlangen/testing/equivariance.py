"""One line for a test suite: this layer has exactly this symmetry."""

from __future__ import annotations

from typing import Any

import torch

from erlangen.equivariance.check import Check, check
from erlangen.equivariance.measure import Layer
from erlangen.errors import ParameterError
from erlangen.relations.families import PerHead
from erlangen.relations.neighborhoods import Neighborhoods
from erlangen.relations.relation import Relation
from erlangen.symmetry import Group, symmetry


def assert_equivariant(
    layer: Layer, group: Group | Relation | PerHead | Neighborhoods, x: Any, *, samples: int = 16
) -> Check:
    """Fail unless a layer keeps every generator of a group and none of the sampled permutations outside it.

    For a relation the group is its symmetry group. The check runs in float64 on a copy of the layer; the
    relative error must be below 1e-9 inside the group and above it outside.

    >>> from erlangen.nn import MaskedAttention
    >>> from erlangen.relations import Causal, Full
    >>> x = torch.randn(5, 8)
    >>> print(assert_equivariant(MaskedAttention(8), Causal(), x).holds)
    True
    >>> assert_equivariant(MaskedAttention(8), Full(), x)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    AssertionError: the layer is not equivariant to S5: error ... on the permutation [...]
    """
    __tracebackhide__ = True
    if not isinstance(group, Group):
        lengths = [len(t) for t in (x if isinstance(x, (tuple, list)) else (x,))]
        if not all(isinstance(t, torch.Tensor) for t in (x if isinstance(x, (tuple, list)) else (x,))):
            raise ParameterError(
                "assert_equivariant(layer, group, x): x is a tensor (n, d) or a pair of them"
            )
        group = symmetry(group, lengths[0], keys=lengths[-1], joint=len(lengths) == 1)
    result = check(layer, group, x, samples=samples)
    if not result.keeps:
        worst = max(range(len(result.inside)), key=result.inside.__getitem__)
        raise AssertionError(
            f"the layer is not equivariant to {group.name}: error {result.inside[worst]:.1e} "
            f"on the permutation {_shown(group.generators[worst].tolist())}"
        )
    if not result.breaks:
        raise AssertionError(
            f"the layer has more symmetry than {group.name}: it also keeps {_shown(list(result.unbroken[0]))}"
        )
    return result


def _shown(image: list[int]) -> str:
    return str(image) if len(image) <= 32 else f"[{', '.join(map(str, image[:16]))}, ...]"

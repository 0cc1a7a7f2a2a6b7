"""Reading the relation and the symmetry group out of a black-box layer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from erlangen.equivariance.check import TOLERANCE
from erlangen.equivariance.measure import DoubleLayer, Layer, in_double, output_of
from erlangen.errors import ParameterError, ShapeError
from erlangen.relations import sizes
from erlangen.relations.neighborhoods import Neighborhoods
from erlangen.symmetry.automorphisms import automorphisms, least_order
from erlangen.symmetry.group import Group, Oracle
from erlangen.symmetry.group_shapes import Unnamed
from erlangen.symmetry.moves import Move
from erlangen.symmetry.symmetries import symmetry

_SUPPORT = 1e-9
"""A derivative counts as zero below this fraction of the largest."""
_LISTED = 5000
"""Groups up to this order are tested element by element where their generators do not all survive."""


@final
@dataclass(frozen=True)
class Recovered:
    """What a layer computes, read from the outside.

    - `neighborhoods`: the relation, from the Jacobian at X = 0 (theorem T1).
    - `relation_group`: Aut of that relation, exact.
    - `group`: the symmetry group of the layer itself, numeric. Without positional encodings and with one
      head the two are equal (theorem T2); positions and further heads can make it smaller.
    - `smallest_kept`, `largest_dropped`: the smallest derivative counted as an edge and the largest counted
      as none, as fractions of the largest; the wider the gap, the surer the reading.
    """

    neighborhoods: Neighborhoods
    relation_group: Group
    group: Group
    smallest_kept: float
    largest_dropped: float

    @property
    def positional(self) -> bool:
        """Whether the layer keeps fewer permutations than its relation, as with positional encodings."""
        return self.group.order < self.relation_group.order

    def __str__(self) -> str:
        more = "" if not self.positional else f"; the layer itself keeps only {self.group} (numeric)"
        return f"{self.neighborhoods.num_edges} edges; relation symmetry {self.relation_group}{more}"


def recover(
    layer: Layer, n: int, *, dim: int | None = None, seed: int = 0, budget: float = 10.0
) -> Recovered:
    """Read relation and symmetry group out of a layer (n, dim) -> (n, anything), knowing nothing of its
    inside.

    **The relation.** At X = 0 all scores are equal, so the weights are 1/|N_i| and the Jacobian is
    (D^-1 A) kron W_V, for any affine Q, K, V with W_V != 0 (theorem T1): its support is the relation. With
    several heads it is their union; a residual connection or absolute positions can add pairs (i, i), since
    an output then depends on its own query.

    **The group.** Inputs with equal rows are fixed by every permutation, so at each of them the Jacobian and
    the output of an equivariant layer are invariant. Reading both at zero and at random equal rows gives a
    coloured graph whose automorphisms contain the group; they are then measured on random inputs. The group
    is right unless all probes and measurements agree by chance: evidence "numeric".

    `dim` is read from `layer.d_model` and similar attributes when left out.

    >>> from erlangen.nn import SparseAttention
    >>> from erlangen.relations import Ring
    >>> _ = torch.manual_seed(0)
    >>> found = recover(SparseAttention(8, Ring(1, 1)), 6)
    >>> found.neighborhoods == Ring(1, 1).on(6)
    True
    >>> print(found)
    18 edges; relation symmetry D6, order 12
    """
    n = sizes.size(n, "n")
    dim = _dimension(layer) if dim is None else sizes.count(dim, "dim", least=1)
    budget = float(budget)
    double = in_double(layer)
    rng = torch.Generator().manual_seed(seed)
    constants = [torch.zeros(dim, dtype=torch.float64)]
    constants += [torch.randn(dim, generator=rng, dtype=torch.float64) for _ in range(2)]
    probes = [_probe(double, constant.expand(n, dim), rng) for constant in constants]
    sizes_of = probes[0][0].abs().amax(-1)
    largest = float(sizes_of.max()) if n else 0.0
    kept = sizes_of > _SUPPORT * largest
    neighborhoods = Neighborhoods.from_dense(kept.numpy())
    relation_group = symmetry(neighborhoods, budget=budget)
    edges = torch.cat([jacobian for jacobian, _ in probes], dim=-1)
    points = torch.cat([value for _, value in probes], dim=-1)
    possible = automorphisms(_bits(_colors(edges)), _colors(points), budget)
    group = _measured(double, possible, torch.randn(2, n, dim, generator=rng, dtype=torch.float64))
    relative = sizes_of / largest if largest else sizes_of
    return Recovered(
        neighborhoods,
        relation_group,
        group,
        float(relative[kept].min()) if kept.any() else math.inf,
        float(relative[~kept].max()) if (~kept).any() else 0.0,
    )


def _dimension(layer: Any) -> int:
    for name in ("d_model", "embed_dim", "hidden_size", "in_features", "in_channels", "dim"):
        if isinstance(value := getattr(layer, name, None), int):
            return value
    raise ParameterError("the layer does not tell its input dimension: pass recover(layer, n, dim=...)")


def _probe(layer: Layer, x: Tensor, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """At x: u^T J_ij for two random u, as (n, n, 2 dim), and the output, as (n, dim out)."""
    x = x.clone().requires_grad_(True)
    with torch.enable_grad():
        output = output_of(layer(x))
        if output.dim() != 2 or len(output) != len(x):
            raise ShapeError(f"the layer maps {tuple(x.shape)} to {tuple(output.shape)}; expected (n, d)")
        sketches = torch.randn(2, output.shape[1], generator=rng, dtype=torch.float64)
        rows = []
        for i in range(len(x)):
            pair = []
            for sketch in sketches:
                scalar = output[i] @ sketch
                if not scalar.requires_grad:  # a row that depends on nothing, or a layer without gradients
                    pair.append(torch.zeros_like(x))
                    continue
                (gradient,) = torch.autograd.grad(scalar, x, retain_graph=True, allow_unused=True)
                pair.append(torch.zeros_like(x) if gradient is None else gradient)
            rows.append(torch.cat(pair, dim=-1))
    jacobian = torch.stack(rows) if rows else x.new_zeros(0, 0, 1)
    return jacobian.detach(), output.detach()


def _colors(vectors: Tensor) -> np.ndarray:
    """A number per vector (last axis), equal where vectors agree up to rounding."""
    flat = vectors.reshape(-1, vectors.shape[-1])
    if flat.numel() == 0:
        return np.zeros(vectors.shape[:-1], np.int64)
    scale = flat.abs().max().clamp_min(1e-30)
    weights = torch.linspace(1.0, 2.0, flat.shape[1], dtype=torch.float64).sqrt() - 0.37
    value = ((flat / scale) @ weights).numpy()
    order = np.argsort(value, kind="stable")
    steps = np.diff(value[order]) > 1e-8 * flat.shape[1]
    color = np.empty(value.size, np.int64)
    color[order] = np.concatenate([[0], np.cumsum(steps)])
    return color.reshape(vectors.shape[:-1])


def _bits(colors: np.ndarray) -> list[Neighborhoods]:
    """Coloured pairs as relations: one for each binary digit of the colour."""
    digits = max(int(colors.max(initial=0)).bit_length(), 1)
    return [Neighborhoods.from_dense((colors >> digit) & 1) for digit in range(digits)]


def _survives(prepared: list[DoubleLayer], element: np.ndarray) -> bool:
    return all(one.measure(element).error < TOLERANCE for one in prepared)


def _measured(layer: Layer, possible: Group, inputs: Tensor) -> Group:
    """The permutations of a group that the layer keeps on random inputs."""
    prepared = [DoubleLayer(layer, x) for x in inputs]
    survives = Oracle(_survives, (prepared,))
    kept = [move for move in possible.moves if survives(move.array(possible.degree))]
    if len(kept) == len(possible.moves):
        evidence = "numeric" if possible.exact else "at least"
        return Group(possible.degree, possible.shape, tuple(kept), evidence, survives)
    if possible.exact and possible.shape.digits < math.log10(_LISTED):
        elements = [element for element in possible.elements() if survives(element)]
        moves = tuple(Move.of(element) for element in elements[1:])
        return Group(possible.degree, Unnamed(len(elements)), moves, "numeric", survives)
    least = least_order([move.array(possible.degree) for move in kept], possible.degree)
    return Group(possible.degree, Unnamed(least, at_least=True), tuple(kept), "at least", survives)

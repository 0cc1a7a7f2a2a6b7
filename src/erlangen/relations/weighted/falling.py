"""Log-weights that fall with the distance: ALiBi, and the decay of retention."""

from __future__ import annotations

from typing import Any, final

import numpy as np

from erlangen.errors import ParameterError
from erlangen.relations import sizes
from erlangen.relations.catalogue import written
from erlangen.relations.families import Bindable
from erlangen.relations.lookup import is_torch, readable
from erlangen.relations.orders import Causal
from erlangen.relations.protocol import Draw
from erlangen.relations.weighted import tables
from erlangen.relations.weighted.weighted_relation import WeightedRelation

_CAUSAL = Causal()


@written
@final
class ALiBi(WeightedRelation):
    """Attention with linear biases (Press et al.): b_ij = -m_h |i - j| for head h.

    `slopes` is one number or one per head: integers, fractions, floats, or a torch tensor to learn them.
    Causally this is m_h (j - i), and since -m_h i is the same for the whole row, **it is the same layer as
    the bias m_h j, which only the key decides** (`erlangen theorems`). Over `Full()` that is not so.

    >>> from erlangen.relations import Full
    >>> ALiBi(slopes=[0.5, 0.25])
    ALiBi(slopes=[0.5, 0.25])
    >>> ALiBi(1, relation=Full()).on(3).dense()[0].tolist()
    [[0.0, -1.0, -2.0], [-1.0, 0.0, -1.0], [-2.0, -1.0, 0.0]]
    """

    __slots__ = ("slopes",)
    slopes: Any
    structured = _of_distance = True
    _default, _named, _table, _dimensions = _CAUSAL, ("slopes",), "slopes", 1

    def __init__(self, slopes: Any, relation: Bindable = _CAUSAL) -> None:
        super().__init__(relation, slopes=self._read(slopes))

    @staticmethod
    def slopes_for(heads: int) -> list[float]:
        """The published slopes: 2^(-8/h), 2^(-16/h), ..., 2^-8 for h heads when h is a power of two.

        For another number of heads the slopes of the next lower power of two come first, and then every
        second one of the next higher (as BLOOM has them).

        >>> ALiBi.slopes_for(4), ALiBi.slopes_for(3)
        ([0.25, 0.0625, 0.015625, 0.00390625], [0.0625, 0.00390625, 0.25])
        """
        heads = sizes.count(heads, "ALiBi.slopes_for(heads)", least=1)
        lower = 1 << (heads.bit_length() - 1)
        slopes = [2.0 ** (-8 * k / lower) for k in range(1, lower + 1)]
        return slopes + [2.0 ** (-8 * k / (2 * lower)) for k in range(1, 2 * (heads - lower), 2)]

    @classmethod
    def example(cls, n: int, draw: Draw) -> ALiBi:
        return cls(draw.integers(-3, 3, 1, 2), draw.relation(n))

    def _by_offset(self, offsets: np.ndarray) -> Any:
        distances = tables.beside(-np.abs(offsets), self.slopes)
        return tables.floats(self._numbers)[:, None] * distances

    def _units(self, i: np.ndarray, j: np.ndarray) -> list[np.ndarray]:
        # Whatever real number a slope is, the biases are its sign times whole distances, up to scale.
        return [int(np.sign(float(m))) * -np.abs(i - j) for m in tables.exact(self.slopes).ravel()]


@written
@final
class Decay(WeightedRelation):
    """Weights W_ij = rate_h^|i - j|, so that b_ij = |i - j| log rate_h (causally: (i - j) log rate_h).

    `rate` is one positive number or one per head; below 1 the past fades, 1 leaves the plain relation. It is
    `ALiBi` with slopes -log(rate).

    >>> Decay(rate=0.9)
    Decay(rate=[0.9])
    >>> np.exp(Decay([0.5]).on(3).dense()[0]).round(3).tolist()
    [[1.0, 0.0, 0.0], [0.5, 1.0, 0.0], [0.25, 0.5, 1.0]]
    """

    __slots__ = ("rate",)
    rate: Any
    structured = _of_distance = True
    _default, _named, _table, _dimensions = _CAUSAL, ("rate",), "rate", 1

    def __init__(self, rate: Any, relation: Bindable = _CAUSAL) -> None:
        values = self._read(rate)
        if (not is_torch(values) or readable(values)) and not (tables.exact(values) > 0).all():
            raise ParameterError(f"Decay(rate) takes numbers > 0, got {tables.written(values)}")
        super().__init__(relation, rate=values)

    @classmethod
    def example(cls, n: int, draw: Draw) -> Decay:
        return cls([draw.choice([0.5, 0.9, 1, 2]) for _ in range(draw.integer(1, 2))], draw.relation(n))

    def _by_offset(self, offsets: np.ndarray) -> Any:
        rate = tables.floats(self._numbers)
        logs = np.log(rate) if isinstance(rate, np.ndarray) else rate.log()
        return -logs[:, None] * tables.beside(-np.abs(offsets), self.rate)

    def _units(self, i: np.ndarray, j: np.ndarray) -> list[np.ndarray]:
        # Multiples of log(rate): only its sign matters.
        return [int(np.sign(r - 1)) * np.abs(i - j) for r in tables.exact(self.rate).ravel().tolist()]

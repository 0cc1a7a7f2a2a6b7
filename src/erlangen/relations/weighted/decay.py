"""Decay: weights that fall by a constant factor with every step, as in retention."""

from __future__ import annotations

from typing import Any, final

import numpy as np

from erlangen.errors import ParameterError
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

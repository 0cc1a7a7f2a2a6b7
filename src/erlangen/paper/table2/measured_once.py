"""The rows of Table 2 as they are measured: each once, when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable

from erlangen.paper.table2 import architectures
from erlangen.paper.table2.measured import Architecture, Outcome, measure


class Rows:
    """Measured rows of Table 2, or of the architectures given; `told` hears of each implementation before it.

    >>> Rows().named("BERT").claimed
    'self-attention'
    """

    def __init__(
        self,
        architectures: tuple[Architecture, ...] | None = None,
        told: Callable[[str], None] | None = None,
    ) -> None:
        self._architectures = architectures
        self._told = told or (lambda name: None)
        self._outcomes: dict[str, Outcome] = {}

    @property
    def architectures(self) -> tuple[Architecture, ...]:
        """The table that is measured."""
        if self._architectures is not None:
            return self._architectures
        return architectures.TABLE2

    def named(self, model: str) -> Architecture:
        """The row of a model."""
        return next(row for row in self.architectures if row.model == model)

    def outcome(self, model: str) -> Outcome:
        """What every implementation of a model was measured to read, and whether it is what was claimed."""
        if model not in self._outcomes:
            row, measured = self.named(model), []
            for one in row.implementations:
                self._told(one.name)
                measured.append(measure(one))
            self._outcomes[model] = Outcome(row, tuple(measured))
        return self._outcomes[model]

    def outcomes(self) -> list[Outcome]:
        """All rows, in the order of the table."""
        return [self.outcome(row.model) for row in self.architectures]

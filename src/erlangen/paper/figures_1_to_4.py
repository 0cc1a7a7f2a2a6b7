"""Figures 1-4 of the paper: the mechanism that each shows, as a relation and a size to draw it at."""

from __future__ import annotations

from dataclasses import dataclass

from erlangen.relations import Bipartite, Causal, Full, Relation, Window


@dataclass(frozen=True)
class Figure:
    """A figure: its number, what is told of it, and the relation that is drawn on `n` positions.

    >>> FIGURES[2].title
    'Figure 3. Masked attention: a total order (Theorem 3)'
    """

    number: int
    told: str
    relation: Relation
    n: int

    @property
    def title(self) -> str:
        """The line above the picture."""
        return f"Figure {self.number}. {self.told}"


FIGURES = (
    Figure(1, "Self-attention: everybody reads everybody (Theorem 1)", Full(), 6),
    Figure(2, "Encoder-decoder attention: a bipartite graph (Theorem 2)", Bipartite(encoder=3, decoder=4), 7),
    Figure(3, "Masked attention: a total order (Theorem 3)", Causal(), 6),
    Figure(4, "Strided attention: the 2 positions before and itself (Theorem 4)", Window(lookback=2), 8),
)
"""What the demo draws and the items "Figure 1" to "Figure 4" check."""

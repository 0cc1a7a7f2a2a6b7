"""The symmetry group of a relation for every size at once."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FamilyGroup:
    """The symmetry of a family for every n it is stated for: `S_n`, `Z2` or `1`.

    >>> FamilyGroup("S_n", "n!").order, FamilyGroup("Z2", "2").order
    (None, 2)
    """

    name: str
    order_text: str
    evidence: str = "symbolic"

    @property
    def order(self) -> int | None:
        """The order where it is the same number for every n."""
        return int(self.order_text) if self.order_text.isdigit() else None

    def __str__(self) -> str:
        return f"{self.name}, order {self.order_text}"

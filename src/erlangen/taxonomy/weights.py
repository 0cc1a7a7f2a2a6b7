"""What weights add to a verdict: the support is classified, and the weights refine its symmetry."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from erlangen.relations import Full, WeightedRelation
from erlangen.symmetry import symmetry
from erlangen.taxonomy.family_group import FamilyGroup

if TYPE_CHECKING:
    from erlangen.taxonomy.classify import Bias


@dataclass(frozen=True)
class Weights:
    """The weights of a classified relation: their form and heads, the support and what it alone would keep.

    `refined` says whether weights break symmetries of the support; None where one of the groups is not known.
    """

    support: str
    form: str
    heads: int
    support_symmetry: str | None
    refined: bool | None

    def __str__(self) -> str:
        heads = "1 head" if self.heads == 1 else f"{self.heads} heads"
        effect = {
            True: f"they refine the symmetry of {self.support}, {self.support_symmetry}",
            False: f"they keep the symmetry of {self.support}",
            None: "they can only refine the symmetry",
        }[self.refined]
        return f"{self.form}, {heads}; {effect}"

    def as_dict(self) -> dict[str, Any]:
        """The same as JSON."""
        return {
            "support": self.support,
            "form": self.form,
            "heads": self.heads,
            "support_symmetry": self.support_symmetry,
            "refined": self.refined,
        }


def with_weights(bias: Bias, weighted: WeightedRelation) -> Bias:
    """The verdict on the support, turned into that on the weighted relation.

    Kind and properties say who reads whom, so they are the support's. The symmetry is that of the
    row-normalised weights, a subgroup of the support's. A certificate of the symmetry stays where it proves
    that the support has none.

    >>> from erlangen.relations import ALiBi
    >>> from erlangen.taxonomy import classify
    >>> verdict = classify(ALiBi([0.5, 0.25], relation=Full()), 5)
    >>> print(verdict)
    ALiBi(slopes=[0.5, 0.25], relation=Full()): full; symmetry Z2, order 2 (n = 5, exact at n)
    >>> print(verdict.weights)
    Toeplitz, 2 heads; they refine the symmetry of Full(), S5, order 120
    """
    group: Any = None
    if bias.n is not None:
        group = symmetry(weighted, bias.n)
    elif bias.symmetry is not None and bias.symmetry.order == 1:
        group = bias.symmetry
    elif weighted.support == Full() and weighted.monotone:
        group = FamilyGroup("Z2", "2")
    refined = None
    if group is not None and bias.symmetry is not None:
        refined = group.order_text != bias.symmetry.order_text
    weights = Weights(
        repr(weighted.support),
        "Toeplitz" if weighted.structured else "per edge",
        weighted.heads,
        None if bias.symmetry is None else str(bias.symmetry),
        refined,
    )
    rigid = bias.symmetry is not None and bias.symmetry.order == 1
    kept = {name: proof for name, proof in bias.certificates.items() if rigid or name != "symmetry"}
    return replace(bias, relation=repr(weighted), symmetry=group, certificates=kept, weights=weights)

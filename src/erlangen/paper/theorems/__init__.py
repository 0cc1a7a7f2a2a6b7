"""Every numbered statement of the paper as a check on real layers and exact relations.

`run()` gives a list of findings: what the paper says, whether it holds as printed, what holds instead, how
that is known, and the counterexample. Nothing is recorded: a finding is verified when its check passes now.
Torch is imported by the checks when they run, not by this package.
"""

from __future__ import annotations

from erlangen.errors import ParameterError
from erlangen.paper.theorems import (
    code,
    convolution,
    definitions,
    equivariance,
    higher_order,
    kernels,
    ranking,
    relational,
    weights,
)
from erlangen.paper.theorems.item import Finding, Item

__all__ = ["ITEMS", "Finding", "Item", "run"]

ITEMS: dict[str, Item] = {
    item.name: item
    for module in (
        definitions,
        relational,
        equivariance,
        ranking,
        code,
        weights,
        kernels,
        convolution,
        higher_order,
    )
    for item in module.ITEMS
}
"""Every statement by its name, in the order of the paper."""


def run(item: str | None = None) -> list[Finding]:
    """Check every statement, or the one named (upper and lower case do not count).

    >>> [finding] = run("corollary 1")
    >>> finding.holds_as_printed, finding.verified
    (False, True)
    >>> run("Theorem 99")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    erlangen.errors.ParameterError: there is no item 'Theorem 99'; the items are ...
    """
    if item is None:
        return [each.run() for each in ITEMS.values()]
    wanted = next((each for name, each in ITEMS.items() if name.lower() == item.strip().lower()), None)
    if wanted is None:
        raise ParameterError(f"there is no item {item!r}; the items are {', '.join(ITEMS)}")
    return [wanted.run()]

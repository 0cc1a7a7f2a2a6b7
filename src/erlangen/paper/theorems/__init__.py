"""Every statement of the paper as a check on real layers, real models and exact relations.

`run()` gives a list of findings: what the paper says; whether that holds as printed, as meant, and by its
proof, each with the counterexample or the slip; what holds instead, and how that is known. Nothing is
recorded: a finding is verified when its check passes now.
"""

from __future__ import annotations

from collections.abc import Callable

from erlangen.errors import ParameterError
from erlangen.paper.table2.measured_once import Rows
from erlangen.paper.theorems import (
    code,
    convolution_items,
    definitions,
    equivariance_items,
    figure_items,
    kernel_items,
    model_items,
    ranking,
    relational,
    ternary_items,
    weight_items,
)
from erlangen.paper.theorems.item import Finding, Item, Judgement

__all__ = ["ITEMS", "Finding", "Item", "Judgement", "run"]

ITEMS: dict[str, Item] = {
    item.name: item
    for module in (
        definitions,
        relational,
        equivariance_items,
        ranking,
        figure_items,
        model_items,
        code,
        weight_items,
        kernel_items,
        convolution_items,
        ternary_items,
    )
    for item in vars(module).values()
    if isinstance(item, Item)
}
"""Every item by its name: those of the paper first, then what it leaves open."""


def run(item: str | None = None, told: Callable[[str, int], None] | None = None) -> list[Finding]:
    """Check every item, or the one named (upper and lower case do not count).

    `told` hears what is being checked and how many items are done. The models of Table 2 are measured once
    for all the items that speak of them.

    >>> [finding] = run("corollary 1")
    >>> finding.printed.verdict, finding.proof.verdict, finding.verified
    ('holds', 'with correction', True)
    >>> print(finding.proof.why)
    t = n = 6 leaves 1 of 6 rows with a key
    >>> run("Theorem 99")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    erlangen.errors.ParameterError: there is no item 'Theorem 99'; the items are ...
    """
    chosen = list(ITEMS.values())
    if item is not None:
        chosen = [each for name, each in ITEMS.items() if name.lower() == item.strip().lower()]
        if not chosen:
            raise ParameterError(f"there is no item {item!r}; the items are {', '.join(ITEMS)}")
    tell = told or (lambda what, done: None)
    findings: list[Finding] = []
    rows = Rows(told=lambda name: tell(f"auditing {name}", len(findings)))
    for each in chosen:
        tell(each.name, len(findings))
        findings.append(each.run(rows))
    return findings

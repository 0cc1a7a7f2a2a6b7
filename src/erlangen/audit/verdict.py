"""One attention call, judged: what its witnesses say, held against what is expected of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Any

import numpy as np

from erlangen.audit.calls.real import Real, of_items, real_rows
from erlangen.audit.expect import Expectation, Expected, bound_of, expected_of, first_break
from erlangen.audit.expect import in_words as expected_in_words
from erlangen.audit.findings import Finding
from erlangen.audit.identify import describe
from erlangen.audit.observed import Measured
from erlangen.audit.support import Support, of_item
from erlangen.audit.wording import irregular, told, words
from erlangen.errors import ErlangenError
from erlangen.relations import Batch, Graph, PerHead, Relation

UNDECIDED = "not decided"
"""A kind or a symmetry that was not asked for, or for which the budget left no time."""


@dataclass(eq=False)
class CallVerdict:
    """One attention call, judged: what was declared, what its kernel reads, what was expected."""

    measured: Measured
    where: str
    real_queries: np.ndarray | None
    real_keys: np.ndarray | None
    expected: Expected | None
    counterexample: Finding | None = None

    bias: str | None = UNDECIDED
    """The kind of the kernel relation (`full`, `total-order`, `previous`, ...); None if heads differ."""
    symmetry: str | None = UNDECIDED
    """The name of the kernel relation's symmetry group, where all heads agree on one.

    Weights can only break symmetries, so with weights it is a bound: "within S5, order 120".
    """

    module = property(attrgetter("measured.module"), doc="The module that made the call.")
    api = property(attrgetter("measured.api"), doc="The attention API that was called.")
    kind = property(attrgetter("measured.kind"), doc="`self`, `cross` or `derived`.")
    index = property(attrgetter("measured.index"), doc="Its number in the order of execution.")
    batch = property(attrgetter("measured.batch"), doc="The number of items.")
    heads = property(attrgetter("measured.heads"), doc="The number of heads.")
    queries = property(attrgetter("measured.queries"), doc="The number of queries.")
    keys = property(attrgetter("measured.keys"), doc="The number of keys.")
    agree = property(attrgetter("measured.agree"), doc="Whether the kernel does what was declared.")
    weights = property(attrgetter("measured.weights"), doc="The weights that the call adds, in short.")

    @property
    def rows(self) -> list[np.ndarray | None] | None:
        """Per item the rows of real queries; padding rows carry no meaning."""
        if self.real_queries is None or self.real_queries.shape[-1] != self.measured.queries:
            return None
        return [None if row.all() else np.flatnonzero(row) for row in self.real_queries]

    @cached_property
    def declared(self) -> Relation | PerHead | Batch | None:
        """The declared relation, as the simplest expression; None where nothing is declared."""
        said = self.measured.declared
        return None if said is None else describe(said, self.rows)

    @cached_property
    def kernel(self) -> Relation | PerHead | Batch:
        """The relation that the kernel really computes, as the simplest expression equal at this size."""
        return describe(self.measured.kernel, self.rows)

    @cached_property
    def kernel_text(self) -> str:
        """The kernel relation as a reader sees it: its expression, or words where it has none."""
        return told(self.kernel, self.measured.kernel, self.rows)

    @cached_property
    def declared_text(self) -> str | None:
        """The declared relation as a reader sees it; None where nothing is declared."""
        said = self.measured.declared
        return None if said is None else told(self.declared, said, self.rows)

    @cached_property
    def expected_text(self) -> str | None:
        """What was expected as a reader sees it; None where nothing was."""
        if self.expected is None:
            return None
        return expected_in_words(self.expected, self.measured.queries, self.measured.keys)

    @property
    def disagreement(self) -> tuple[int, int, int, int, bool] | None:
        """(item, head, query, key, whether the kernel has it) of the first edge not as declared."""
        said = self.measured.declared
        return None if said is None else self.measured.kernel.difference(said)


def judge_call(
    call: Measured,
    expect: Expectation,
    real: Real,
    where: str,
) -> CallVerdict:
    """Hold one call against what is expected of it; `real` gives each input's real positions."""
    relation = expected_of(expect, call)
    queries, keys = real_rows(call, 0, real), real_rows(call, 1, real)
    verdict = CallVerdict(call, where, of_items(queries), of_items(keys), relation)
    if relation is not None:
        broken = first_break(relation, call, "", queries, keys, where)
        if broken is not None:
            verdict.counterexample = broken.at(
                measured=in_words(verdict.kernel, call.kernel, broken, relation)
            )
    return verdict


def in_words(
    measured: Relation | PerHead | Batch, support: Support, broken: Finding, expected: Expected | None
) -> str:
    """A measured relation for a reader: its expression, or where that is only a mask, what is unusual about
    it."""
    if not irregular(measured) and not isinstance(measured, Graph):
        return str(measured)
    bound = of_item(support.items, broken.item or 0)[broken.head or 0]
    wanted: Any = None if expected is None else bound_of(expected)
    try:
        return words(bound, None if wanted is None or wanted.axes else wanted)
    except ErlangenError:
        return words(bound)

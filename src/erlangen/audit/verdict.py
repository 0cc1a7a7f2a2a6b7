"""One attention call, judged: what its witnesses say, held against what is expected of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter

import numpy as np

from erlangen.audit.expect import Expectation, Expected, bound_of, expected_of, first_break
from erlangen.audit.expect import in_words as expected_in_words
from erlangen.audit.findings import Finding
from erlangen.audit.identify import describe, words
from erlangen.audit.observed import Measured
from erlangen.audit.support import Support
from erlangen.audit.wording import irregular, told
from erlangen.errors import ErlangenError
from erlangen.relations import Batch, Graph, Neighborhoods, PerHead, Relation

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
    real: dict[str, np.ndarray | None],
    where: str,
) -> CallVerdict:
    """Hold one call against what is expected of it; `real` gives each input's real positions."""
    relation = expected_of(expect, call)
    queries, keys = real_rows(call, 0, real), real_rows(call, 1, real)
    verdict = CallVerdict(call, where, _of_items(queries), _of_items(keys), relation)
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
    bound = support.items[min(broken.item or 0, support.batch - 1)][broken.head or 0]
    wanted = None if expected is None else bound_of(expected)
    try:
        return words(bound, wanted if isinstance(wanted, Relation) else None)
    except ErlangenError:
        return words(bound)


def kept(bound: Neighborhoods, real: np.ndarray | None, item: int) -> Neighborhoods:
    """The edges of real rows."""
    if real is None or real.shape[-1] != bound.queries:
        return bound
    return Neighborhoods.from_dense(bound.dense() & real[min(item, len(real) - 1)][:, None])


def resampled(real: np.ndarray, size: int) -> np.ndarray | None:
    """Which of `size` rows are real, where positions are: a row of several positions is if any of them is.

    >>> resampled(np.array([[True, True, True, False, False, False]]), 3).tolist()
    [[True, True, False]]
    >>> resampled(np.array([[True, True, True, False, False]]), 2).tolist()
    [[True, False]]
    """
    batch, n = real.shape
    if n and size > n:
        return real.repeat(size // n, axis=-1) if size % n == 0 else None
    for rate in (-(-n // size), n // size) if size else ():  # what is left over has a row, or none
        if (size - 1) * rate < n < (size + 1) * rate:
            whole = np.pad(real, ((0, 0), (0, max(0, size * rate - n))))[:, : size * rate]
            return np.asarray(whole.reshape(batch, size, rate).any(axis=-1))
    return None


Real = Mapping[str, np.ndarray | None]
"""Name of an input -> its real positions, None where nothing marks padding."""


def has_places(call: Measured, side: int, name: str, length: int) -> bool:
    """Whether the positions of an input may stand among more queries (side 0) or keys (side 1)."""
    return (call.queries, call.keys)[side] > length and name in (call.query_inputs, call.key_inputs)[side]


def real_rows(call: Measured, side: int, real: Real) -> np.ndarray | None:
    """Which queries (side 0) or keys (side 1) of a call are real: those that an input with padding put there
    are as its positions are, and what was joined to it is."""
    size = (call.queries, call.keys)[side]
    owner = (call.query_owner, call.key_owner)[side]
    placed = [(rows, real.get(name)) for name, rows in call.places[side].items()]
    marked = [(rows, mask) for rows, mask in placed if mask is not None and mask.ndim == 2]
    if not marked:
        return real_of(owner, size, real)
    found = np.ones((len(marked[0][1]), size), bool)
    for rows, mask in marked:
        found[:, rows] = mask
    return found


def real_of(owner: str | None, size: int, real: Real) -> np.ndarray | None:
    """The real positions of the input that a call's queries or keys are the positions of."""
    mask = None if owner is None else real.get(owner)
    if mask is None or mask.ndim == 2:
        return None if mask is None else resampled(mask, size)
    found = resampled(mask.reshape(-1, mask.shape[-1]), size)
    return None if found is None else found.reshape(*mask.shape[:2], size)


def _of_items(real: np.ndarray | None) -> np.ndarray | None:
    return real if real is None or real.ndim == 2 else np.asarray(real.any(axis=1))

"""Reconciling the witnesses: call by call, and the calls together with the flow."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from erlangen.audit.expect import (
    Counterexample,
    Expectation,
    Expected,
    bind_expected,
    expected_of,
    first_break,
)
from erlangen.audit.identify import describe
from erlangen.audit.inputs import Content
from erlangen.audit.measure import Measured
from erlangen.audit.streams import predict
from erlangen.audit.support import Support
from erlangen.audit.witnesses.flow import Flow
from erlangen.bias import classify
from erlangen.relations import Batch, Bipartite, Full, Identity, Neighborhoods, PerHead, Relation


@dataclass(eq=False)
class CallVerdict:
    """One attention call, judged: what was declared, what its kernel reads, what was expected."""

    measured: Measured
    where: str
    real_queries: np.ndarray | None
    real_keys: np.ndarray | None
    expected: Expected | None
    counterexample: Counterexample | None = None

    def __getattr__(self, name: str) -> Any:
        if name in (
            "module",
            "api",
            "kind",
            "queries",
            "keys",
            "heads",
            "batch",
            "agree",
            "index",
            "weights",
        ):
            return getattr(self.measured, name)
        raise AttributeError(name)

    @property
    def _rows(self) -> list[np.ndarray | None] | None:
        """Per item the rows of real queries; padding rows carry no meaning."""
        if self.real_queries is None or self.real_queries.shape[-1] != self.measured.queries:
            return None
        return [None if row.all() else np.flatnonzero(row) for row in self.real_queries]

    @cached_property
    def declared(self) -> Relation | PerHead | Batch | None:
        """The declared relation, as the simplest expression; None where nothing is declared."""
        said = self.measured.declared
        return None if said is None else describe(said, self._rows)

    @cached_property
    def kernel(self) -> Relation | PerHead | Batch:
        """The relation that the kernel really computes, as the simplest expression equal at this size."""
        return describe(self.measured.kernel, self._rows)

    @cached_property
    def bias(self) -> str | None:
        """The kind of the kernel relation (`full`, `total-order`, `previous`, ...); None if heads differ."""
        kinds = {kind_of(bound) for bound in self._judged}
        return kinds.pop() if len(kinds) == 1 else None

    @cached_property
    def symmetry(self) -> str | None:
        """The name of the kernel relation's symmetry group, where all heads agree on one.

        Weights can only break symmetries, so with weights it is a bound: "within S5, order 120".
        """
        groups = {str(group): group for bound in self._judged if bound.queries == bound.keys
                  if (group := _classified(bound).symmetry) is not None}  # fmt: skip
        if len(groups) != 1:
            return None
        [(name, group)] = groups.items()
        return name if self.measured.weights is None or group.trivial else f"within {name}"

    @property
    def _judged(self) -> tuple[Neighborhoods, ...]:
        """The measurements that speak: without items that are padded, if there are others."""
        rows = self._rows
        items = self.measured.kernel.items
        whole = [
            item
            for index, item in enumerate(items)
            if rows is None or rows[min(index, len(rows) - 1)] is None
        ]
        return Support(tuple(whole or items)).unique

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
    queries, keys = _real(call.query_inputs, call.queries, real), _real(call.key_inputs, call.keys, real)
    verdict = CallVerdict(call, where, queries, keys, relation)
    if relation is not None:
        broken = first_break(relation, call, "", queries, keys, where)
        if broken is not None:
            verdict.counterexample = first_break(relation, call, str(verdict.kernel), queries, keys, where)
    return verdict


@dataclass(eq=False)
class FlowVerdict:
    """The flow from one input to the output, held against the calls and the expectation."""

    flow: Flow
    square: bool
    """Whether output rows and input positions are the same sequence."""
    predicted: tuple[Neighborhoods, ...] | None
    """What the kernel relations with residuals let each item's rows read; None when they do not compose."""
    outside_attention: tuple[Neighborhoods, ...] | None
    missing: tuple[Neighborhoods, ...] | None
    counterexample: Counterexample | None = None
    fast_path: tuple[int, int, int] | None = None
    """(item, row, position) of the first edge that differs when the model is observed."""
    real: np.ndarray | None = None
    """The real rows of each item, where padding is marked."""

    @cached_property
    def relation(self) -> Relation | PerHead | Batch:
        """The measured dependence, as the simplest expression equal at this size."""
        return self._described(self.flow.relations)

    @cached_property
    def predicted_relation(self) -> Relation | PerHead | Batch | None:
        """What the kernel relations predict, as the simplest expression; None when they do not compose."""
        return None if self.predicted is None else self._described(self.predicted)

    def meaningful(self, bound: Neighborhoods, item: int) -> Neighborhoods:
        """The edges of real rows: what becomes of padding rows carries no meaning."""
        return _kept(bound, self.real, item)

    def _described(self, items: tuple[Neighborhoods, ...]) -> Relation | PerHead | Batch:
        rows = None
        if self.real is not None and self.real.shape[-1] == items[0].queries:
            rows = [None if row.all() else np.flatnonzero(row) for row in self.real]
        return describe(Support(tuple((bound,) for bound in items)), rows)

    @cached_property
    def bias(self) -> str | None:
        """The kind of the measured dependence, where items agree on one."""
        kinds = {kind_of(bound) for bound in set(self.flow.relations)}
        return kinds.pop() if len(kinds) == 1 else None

    @cached_property
    def future_edges(self) -> int | None:
        """On how many later positions rows depend, in any item; None between different sequences."""
        if not self.square:
            return None
        every = Support((self.flow.relations,)).of_item(0).edges()
        return int((every[:, 1] > every[:, 0]).sum())


def judge_flow(
    flow: Flow,
    calls: list[Measured],
    found: list[Content],
    expect: Expectation,
    real: dict[str, np.ndarray | None],
    covered: bool,
) -> FlowVerdict:
    """Hold a flow against the product of the calls' relations and against the expectation."""
    target = next(content for content in found if content.name == flow.content)
    items = range(len(flow.relations))
    square = flow.relations[0].queries == flow.relations[0].keys and not any(
        call.kind == "cross" and call.key_inputs == {flow.content} for call in calls
    )
    rows = None if real.get(flow.content) is None or not square else real[flow.content]
    verdict = FlowVerdict(flow, square, None, None, None, real=rows)

    def product(b: int, residual: bool) -> Neighborhoods | None:
        size = flow.relations[b].queries
        return predict(calls, found, target, size, lambda call: call.kernel.of_item(b), residual=residual)

    reached = [product(b, True) for b in items]
    least = [product(b, False) for b in items]
    if covered and calls and not flow.pooled and not any(part is None for part in reached):
        verdict.predicted = tuple(part for part in reached if part is not None)
        pairs = list(zip(flow.relations, verdict.predicted, strict=True))
        verdict.outside_attention = tuple(_kept(seen - said, rows, b) for b, (seen, said) in enumerate(pairs))
        # Without residuals somewhere the truth lies between the two products: then nothing is missing.
        lower = [
            low if low is not None and low <= seen else said
            for low, (seen, said) in zip(least, pairs, strict=True)
        ]
        verdict.missing = tuple(
            _kept(said - seen, rows, b)
            for b, (said, seen) in enumerate(zip(lower, flow.relations, strict=True))
        )
    verdict.counterexample = _flow_break(verdict, calls, found, target, expect, real, covered)
    return verdict


def _flow_break(
    verdict: FlowVerdict,
    calls: list[Measured],
    found: list[Content],
    target: Content,
    expect: Expectation,
    real: dict[str, np.ndarray | None],
    covered: bool,
) -> Counterexample | None:
    """A dependence that no stack of the expected relations allows."""
    flow = verdict.flow
    if expect is None or flow.pooled or not verdict.square:
        return None
    for b, seen in enumerate(flow.relations):
        bound = _allowed(calls, found, target, expect, real, covered, b, seen.queries)
        if bound is None:
            continue
        allowed, text = bound
        edges = _kept(seen - allowed, verdict.real, b).edges()
        if len(edges):
            i, j = edges[0].tolist()
            return Counterexample("the whole model", text, str(verdict.relation), b, None, i, j, True)
    return None


def _allowed(
    calls: list[Measured],
    found: list[Content],
    target: Content,
    expect: Expectation,
    real: dict[str, np.ndarray | None],
    covered: bool,
    item: int,
    rows: int,
) -> tuple[Neighborhoods, str] | None:
    if isinstance(expect, Relation) and (not calls or not covered):
        # Without sight of the calls their number is unknown: any number of steps is allowed, one if none.
        bound = expect | Identity()
        try:
            return (bound.closure() if calls else bound).on(rows), str(expect)
        except ValueError:
            return None
    relations = {call.index: expected_of(expect, call) for call in calls}
    if not covered or any(relations[call.index] is None and call.kind == "self" for call in calls):
        return None

    def union(call: Measured) -> Neighborhoods:
        relation = relations[call.index]
        if relation is None:
            return Full().on(call.queries, call.keys)
        mask = _real(call.key_inputs, call.keys, real)
        keys = None if mask is None else mask[min(item, len(mask) - 1)]
        result = bind_expected(relation, call, item, 0, keys)
        for head in range(1, call.heads):
            result = result | bind_expected(relation, call, item, head, keys)
        return result

    product = predict(calls, found, target, rows, union)
    names = list(dict.fromkeys(str(relation) for relation in relations.values() if relation is not None))
    return None if product is None else (product, f"layers of {', '.join(names)}")


def kind_of(bound: Neighborhoods) -> str | None:
    """The kind of a relation; between two sequences only all pairs have one, `bipartite`."""
    if bound.queries != bound.keys:
        whole = bound.num_edges == bound.queries * bound.keys
        return classify(Bipartite(encoder=bound.keys, decoder=bound.queries)).kind if whole else None
    return _classified(bound).kind


_KNOWN: dict[Neighborhoods, Any] = {}


def _classified(bound: Neighborhoods) -> Any:
    if bound not in _KNOWN:
        while len(_KNOWN) >= 256:
            _KNOWN.pop(next(iter(_KNOWN)))
        _KNOWN[bound] = classify(bound)
    return _KNOWN[bound]


def _kept(bound: Neighborhoods, real: np.ndarray | None, item: int) -> Neighborhoods:
    """The edges of real rows."""
    if real is None or real.shape[-1] != bound.queries:
        return bound
    return Neighborhoods.from_dense(bound.dense() & real[min(item, len(real) - 1)][:, None])


def _real(names: frozenset[str], size: int, real: dict[str, np.ndarray | None]) -> np.ndarray | None:
    """The real positions of the sequence that a call's queries or keys come from."""
    fitting = [mask for name, mask in real.items() if mask is not None and mask.shape[-1] == size]
    chosen = [real[name] for name in names if real.get(name) is not None]
    for mask in (*chosen, *fitting):
        if mask is not None and mask.shape[-1] == size:
            return mask
    return None

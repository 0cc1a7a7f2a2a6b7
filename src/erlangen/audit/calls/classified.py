"""What measured relations are by kind, and their symmetries: asked by an audit, within its budget."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from erlangen.audit.flow_verdict import FlowVerdict
from erlangen.audit.support import Support, of_item
from erlangen.audit.verdict import CallVerdict
from erlangen.audit.witnesses.runs import Budget
from erlangen.caches import cached
from erlangen.relations import Bipartite, Neighborhoods
from erlangen.taxonomy import classify


@cached(256)
def _bias(bound: Neighborhoods) -> Any:
    return classify(bound)


def classify_measured(calls: Iterable[CallVerdict], flows: Iterable[FlowVerdict], budget: Budget) -> None:
    """Write down the kinds and symmetries of calls and of flows, as far as the budget goes."""
    for call in calls:
        if budget.left <= 0:
            return
        kinds = {_kind(bound) for bound in _judged(call)}
        call.bias = kinds.pop() if len(kinds) == 1 else None
        call.symmetry = _symmetry(call)
    for flow in flows:
        if budget.left <= 0:
            return
        kinds = {_kind(bound) for bound in set(flow.flow.relations)}
        flow.bias = kinds.pop() if len(kinds) == 1 else None


def _judged(call: CallVerdict) -> tuple[Neighborhoods, ...]:
    """The measurements that speak: without items that are padded, if there are others."""
    rows, items = call.rows, call.measured.kernel.items
    whole = [item for index, item in enumerate(items) if rows is None or of_item(rows, index) is None]
    return Support(tuple(whole or items)).unique


def _kind(bound: Neighborhoods) -> str | None:
    """The kind of a relation; between two sequences only all pairs have one, `bipartite`."""
    if bound.queries == bound.keys:
        return _bias(bound).kind
    whole = bound.num_edges == bound.queries * bound.keys
    return classify(Bipartite(encoder=bound.keys, decoder=bound.queries)).kind if whole else None


def _symmetry(call: CallVerdict) -> str | None:
    groups = {str(group): group for bound in _judged(call) if bound.queries == bound.keys
              if (group := _bias(bound).symmetry) is not None}  # fmt: skip
    if len(groups) != 1:
        return None
    [(name, group)] = groups.items()
    return name if call.weights is None or group.trivial else f"within {name}"

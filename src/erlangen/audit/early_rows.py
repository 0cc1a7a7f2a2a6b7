"""Rows that come out before attention, beside a pooled output behind it: embeddings beside a loss."""

from __future__ import annotations

from erlangen.audit.witnesses.flow import Flow


def each_itself(flow: Flow) -> bool:
    """Whether no row reads more than one position."""
    return all(int(bound.dense().sum(axis=1).max(initial=0)) <= 1 for bound in flow.relations)


def only_early(flows: list[Flow]) -> bool:
    """Whether all outputs with rows read themselves alone, and a pooled one reads several positions: what
    reads others then stands behind those rows, which show nothing of it."""
    rows = [flow for flow in flows if not flow.pooled]
    pooled = [flow for flow in flows if flow.pooled]
    return bool(rows) and all(map(each_itself, rows)) and not all(map(each_itself, pooled))

"""One line for a test suite: this model really computes this relation."""

from __future__ import annotations

from typing import Any

from torch import nn

from erlangen.audit.api import audit
from erlangen.audit.expect import Expectation
from erlangen.audit.report import Report
from erlangen.errors import ParameterError
from erlangen.relations import Causal


def assert_relation(model: nn.Module, inputs: Any, relation: Expectation) -> Report:
    """Fail unless every self-attention call of a model reads exactly `relation`, in every head.

    `relation` may also be a mapping from module-name patterns to relations, or a callable, as for
    `erlangen.audit`. The flow from inputs to outputs must not go beyond what such layers allow, on the given
    inputs and on those that the audit tries by itself. Failing names the module, the head and the edge. A
    model whose attention could not be seen fails too: nothing is inferred from silence.

    >>> import torch, erlangen as er
    >>> layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    >>> x, mask = torch.randn(2, 5, 8), nn.Transformer.generate_square_subsequent_mask(5)
    >>> assert_relation(layer, {"src": x, "src_mask": mask}, er.Causal()).verdict
    'holds'
    >>> assert_relation(layer, {"src": x}, er.Causal())
    Traceback (most recent call last):
    ...
    AssertionError: TransformerEncoderLayer: an expectation is violated
    self_attn: expected Causal(), measured Full(); extra edge (0, 1)
    the whole model: expected layers of Causal(), measured Full(); extra edge (0, 1)
    """
    if relation is None:
        raise ParameterError("assert_relation needs a relation to expect, got None")
    report = audit(model, inputs, relation)
    if report.verdict != "holds":
        raise AssertionError(failure(report))
    return report


def assert_causal(model: nn.Module, inputs: Any) -> Report:
    """Fail when any position reads, or any output depends on, a later one.

    Weaker than `assert_relation(model, inputs, Causal())`: a window, or documents, are causal too.

    >>> import torch
    >>> assert_causal(nn.GRU(3, 3, batch_first=True), torch.randn(1, 4, 3)).flow.relation
    Causal()
    >>> assert_causal(nn.GRU(3, 3, batch_first=True, bidirectional=True), torch.randn(1, 4, 3))
    Traceback (most recent call last):
    ...
    AssertionError: GRU: a position reads the future
    the whole model, item 0: output row 0 depends on position 1
    """
    report = audit(model, inputs)
    found = _future_calls(report)
    flows = [flow for flow in (report.flow, *report.other_flows) if flow is not None and flow.square]
    for flow in flows:
        for item, bound in enumerate(flow.flow.relations):
            edges = (bound - Causal().on(bound.queries)).edges()
            if len(edges):
                i, j = edges[0].tolist()
                found.append(f"the whole model, item {item}: output row {i} depends on position {j}")
                break
    if found:
        raise AssertionError("\n".join([f"{report.model}: a position reads the future", *found]))
    if not flows and (report.coverage.unexplained or not report.calls):
        raise AssertionError(f"{report.model}: nothing was seen that could tell whether it is causal")
    return report


def _future_calls(report: Report) -> list[str]:
    found: dict[str, str] = {}
    for call in [*report.calls, *(call for trial in report.trials for call in trial.calls)]:
        measured = call.measured
        if measured.kind != "self" or measured.queries > measured.keys or measured.module in found:
            continue
        allowed = Causal().on(measured.queries, measured.keys)
        for item, heads in enumerate(measured.kernel.items):
            rows = (
                None
                if call.real_queries is None
                else call.real_queries[min(item, len(call.real_queries) - 1)]
            )
            for head, bound in enumerate(heads):
                edges = (bound - allowed).edges()
                if rows is not None:
                    edges = edges[rows[edges[:, 0]]]
                if len(edges) and measured.module not in found:
                    i, j = edges[0].tolist()
                    where = "" if call.where == "given" else f" ({call.where})"
                    place = f"{measured.module or 'the model'}, item {item}, head {head}{where}"
                    found[measured.module] = f"{place}: query {i} reads key {j}"
    return list(found.values())


def failure(report: Report) -> str:
    """What went wrong, for an assertion: the verdict and every edge that breaks it."""
    from erlangen.audit.report import VERDICTS

    lines = [f"{report.model}: {VERDICTS[report.verdict]}", *map(str, report.counterexamples)]
    if not report.counterexamples:
        lines += report.all_warnings()
    if report.verdict == "undecided" and not report.calls:
        lines.append("no attention call was seen that the expectation is about")
    return "\n".join(lines)

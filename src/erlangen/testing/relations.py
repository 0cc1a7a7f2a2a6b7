"""One line for a test suite: this model really computes this relation."""

from __future__ import annotations

import warnings
from typing import Any

from torch import nn

from erlangen.audit.api import audit
from erlangen.audit.expect import AtMost, Expectation
from erlangen.audit.findings import lines
from erlangen.audit.report import Report
from erlangen.errors import ParameterError
from erlangen.relations import Causal


def assert_relation(model: nn.Module, inputs: Any, relation: Expectation, **options: Any) -> Report:
    """Fail unless every self-attention call of a model reads exactly `relation`, in every head.

    `relation` may also be a mapping from module-name patterns to relations, or a callable, as for
    `erlangen.audit`, whose options (`flow=`, `feedings=`, `positions=`, `budget=`) are taken as well. The
    flow from inputs to outputs must not go beyond what such layers allow, on the given inputs and on those
    that the audit tries by itself. Failing names the module, the head and the edge. What could not be
    compared fails too, with the reason: nothing is inferred from silence.

    >>> import torch, erlangen as er
    >>> layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    >>> x, mask = torch.randn(2, 5, 8), nn.Transformer.generate_square_subsequent_mask(5)
    >>> assert_relation(layer, {"src": x, "src_mask": mask}, er.Causal()).verdict
    'holds'
    """
    __tracebackhide__ = True
    if relation is None:
        raise ParameterError("assert_relation needs a relation to expect, got None")
    report = audit(model, inputs, relation, **options)
    if report.verdict != "holds":
        raise failed(report, f"{report.model}: {report.verdict_text}")
    if report.not_judged:  # a pattern that is too narrow leaves calls out, and the test would pass for ever
        warnings.warn(f"{report.model}: {report.not_judged_text()}", AuditWarning, stacklevel=2)
    return said(report)


def assert_causal(model: nn.Module, inputs: Any, **options: Any) -> Report:
    """Fail when any position reads, or any output depends on, a later one.

    Weaker than `assert_relation(model, inputs, Causal())`: a window, or documents, are causal too. The
    options are those of `erlangen.audit`.

    >>> import torch
    >>> assert_causal(nn.GRU(3, 3, batch_first=True), torch.randn(1, 4, 3)).flow.relation
    Causal()
    >>> try:
    ...     assert_causal(nn.GRU(3, 3, batch_first=True, bidirectional=True), torch.randn(1, 4, 3))
    ... except AssertionError as error:
    ...     print(str(error).splitlines()[0])
    GRU: a position reads the future: the whole model, item 0: output row 0 depends on position 1
    """
    __tracebackhide__ = True
    report = audit(model, inputs, AtMost(Causal()), **options)
    if report.verdict == "violated":
        edges = [one for one in report.findings if one.kind == "edge"]
        if edges:
            first = edges[0]
            where = "" if first.where == "given" else f" ({first.where})"
            head = "" if first.module == "the whole model" else f", head {first.head or 0}"
            verb = f"{first.name}, item {first.item}{head}{where}: {first.sentence}"
            raise failed(report, f"{report.model}: a position reads the future: {verb}")
    if report.verdict != "holds":
        raise failed(report, f"{report.model}: {report.verdict_text}")
    return said(report)


def failed(report: Report, head: str) -> AssertionError:
    """An assertion error that names the first fault in its first line, then all of them, and carries the
    report."""
    found = lines(report.findings)
    if len(found) and "reads the future" not in head:
        head = f"{head}: {found[0]}"
        found = found[1:]
    opened = [f"open: {one}" for one in dict.fromkeys(map(str, report.open))] if not report.findings else []
    error = AssertionError("\n".join([head, *found, *opened, report.verdict_line()]))
    error.report = report  # type: ignore[attr-defined]
    return error


def said(report: Report) -> Report:
    """The report, with what may be wrong although the test passes as Python warnings."""
    for text in report.serious():
        warnings.warn(f"{report.model}: {text}", AuditWarning, stacklevel=3)
    return report


class AuditWarning(UserWarning):
    """What an audit that passed still wants a reader to know."""

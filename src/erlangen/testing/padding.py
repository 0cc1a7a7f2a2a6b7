"""One line for a test suite: padding is never read."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import nn

from erlangen.audit.api import audit
from erlangen.audit.report import Report
from erlangen.audit.verdict import CallVerdict, FlowVerdict


def assert_no_padding_leak(model: nn.Module, inputs: Any) -> Report:
    """Fail when a real position reads a padding one, or an output at a real position depends on its content.

    Padding is what the inputs mark as such (`attention_mask`, `key_padding_mask`, ...). Where they mark none,
    the audit pads them by itself if the model takes an `attention_mask`; if it cannot, this fails, for
    nothing was tried.

    >>> import torch
    >>> layer, x = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), torch.randn(2, 5, 8)
    >>> padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    >>> assert_no_padding_leak(layer, {"src": x, "src_key_padding_mask": padding}).unchanged
    True
    """
    report = audit(model, inputs)
    calls = [*report.calls, *(call for trial in report.trials for call in trial.calls)]
    found = list(dict.fromkeys(text for call in calls if (text := _read(call)) is not None))
    flows = [flow for flow in (report.flow, *report.other_flows) if flow is not None]
    found += [text for flow in flows if (text := _depends(flow)) is not None]
    found += [text for text in report.contradictions if "which is padding" in text and text not in found]
    if found:
        raise AssertionError("\n".join([f"{report.model}: padding is read", *found]))
    tried = any(call.real_keys is not None and not call.real_keys.all() for call in calls)
    tried = tried or any(flow.real is not None and not flow.real.all() for flow in flows)
    if not tried:
        raise AssertionError(
            f"{report.model}: no padding was tried: give inputs that mark some positions as padding"
        )
    return report


def _read(call: CallVerdict) -> str | None:
    """The first real query that reads a padding key."""
    keys, queries = call.real_keys, call.real_queries
    if keys is None or keys.all():
        return None
    for item, heads in enumerate(call.measured.kernel.items):
        padding = ~keys[min(item, len(keys) - 1)]
        real = (
            np.ones(call.measured.queries, bool) if queries is None else queries[min(item, len(queries) - 1)]
        )
        for head, bound in enumerate(heads):
            edges = bound.edges()
            edges = edges[padding[edges[:, 1]] & real[edges[:, 0]]]
            if len(edges):
                i, j = edges[0].tolist()
                where = "" if call.where == "given" else f" ({call.where})"
                place = f"{call.module or 'the model'}, item {item}, head {head}{where}"
                return f"{place}: query {i} reads padding key {j}"
    return None


def _depends(flow: FlowVerdict) -> str | None:
    """The first real output row that moves with the content of a padding position."""
    if flow.real is None or flow.real.all():
        return None
    for item, bound in enumerate(flow.flow.relations):
        real = flow.real[min(item, len(flow.real) - 1)]
        edges = bound.edges()
        edges = edges[real[edges[:, 0]] & ~real[edges[:, 1]]]
        if len(edges):
            i, j = edges[0].tolist()
            return f"the whole model, item {item}: output row {i} depends on padding position {j}"
    return None

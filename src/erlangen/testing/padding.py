"""One line for a test suite: padding is never read."""

from __future__ import annotations

from typing import Any

from torch import nn

from erlangen.audit.api import audit
from erlangen.audit.obligations import Compared
from erlangen.audit.report import Report
from erlangen.testing.relations import failed, said


def assert_no_padding_leak(model: nn.Module, inputs: Any, **options: Any) -> Report:
    """Fail when a real position reads a padding one, or an output at a real position depends on its content.

    Padding is what the inputs mark as such: any mask with one entry for each position, whatever its name.
    Where they mark none, the audit pads them by itself, at the end and at the start, if the model takes a
    mask; if it cannot, this fails, for nothing was tried. The options are those of `erlangen.audit`.

    >>> import torch
    >>> layer, x = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), torch.randn(2, 5, 8)
    >>> padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    >>> assert_no_padding_leak(layer, {"src": x, "src_key_padding_mask": padding}).unchanged
    True
    """
    __tracebackhide__ = True
    report = audit(model, inputs, **options)
    if any(one.kind in ("padding", "invariance") for one in report.findings):
        raise failed(report, f"{report.model}: padding is read")
    about = (Compared.PADDING, Compared.INVARIANCE)
    settled = [one for one in report.obligations if one.subject.compared in about]
    opened = [one for one in report.open if one.subject.compared in about or one.subject.input is not None]
    if not any(one.state == "held" for one in settled):
        raise failed(
            report, f"{report.model}: no padding was tried: give inputs that mark some positions as padding"
        )
    if any(one.kind == "finite" for one in report.findings) or opened:
        raise failed(report, f"{report.model}: not everything could be compared")
    return said(report)

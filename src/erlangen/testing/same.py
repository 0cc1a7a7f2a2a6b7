"""One line for a test suite: two models compute the same relations."""

from __future__ import annotations

from typing import Any

from torch import nn

from erlangen.audit.comparison import Comparison, compare


def assert_same_relation(model_a: nn.Module, model_b: nn.Module, inputs: Any) -> Comparison:
    """Fail unless two models read the same keys with the same weights, call by call and head by head, and let
    outputs depend on the same positions: a rewrite, another backend, another version.

    >>> import torch
    >>> a, b = (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True) for _ in range(2))
    >>> assert_same_relation(a, b, torch.randn(2, 5, 8)).calls
    1
    """
    __tracebackhide__ = True
    result = compare(model_a, model_b, inputs)
    if not result.same:
        raise _failed(result)
    return result


def _failed(result: Comparison) -> AssertionError:
    """An assertion error that names the first difference in its first line, and carries the comparison."""
    head, *rest = str(result).splitlines()
    error = AssertionError("\n".join([f"{head}: {rest[0]}", *rest[1:]] if rest else [head]))
    error.report = result  # type: ignore[attr-defined]
    return error

"""Where an audit is weak: what these inputs could not show."""

from __future__ import annotations

from typing import Any

from torch import nn

from erlangen.audit.inputs import Content
from erlangen.audit.verdict import CallVerdict
from erlangen.relations import Window

_WINDOWS = ("sliding_window", "attention_window", "window_size", "local_attention", "attention_chunk_size")


def limits(
    model: nn.Module, calls: list[CallVerdict], contents: list[Content], padded: bool, flow_asked: bool
) -> list[str]:
    """Warnings about what was not, or could not be, tried."""
    found = []
    longest = max((content.length for content in contents), default=0)
    for name, size in _configured_windows(getattr(model, "config", None)):
        if longest and longest <= size:
            found.append(
                f"the sequence ({longest}) is not longer than {name} = {size}: its window cannot be seen"
            )
    for call in calls:
        window = call.expected
        if isinstance(window, Window) and call.keys <= window.lookback + 1 and window.lookahead == 0:
            found.append(
                f"{call.module}: {call.keys} keys are not more than {window} reads, so it looks like Causal()"
            )
            break
    merged = [call.module for call in calls if call.api == "module"]
    if merged:
        found.append(f"{merged[0]} ({len(merged)} calls) was probed as a whole: its heads are not told apart")
    local = [call for call in calls if contents and _is_local(call, contents)]
    if local:
        found.append(
            f"{local[0].module or 'the model'} ({len(local)} calls) attends within {local[0].queries} "
            "positions, which are no whole input: its relation is that of a chunk"
        )
    if contents and longest < 4:
        found.append(f"a sequence of {longest} positions tells little: give a longer one")
    if contents and calls and not padded:
        found.append("no padding was tried")
    if contents and all(content.batch == 1 for content in contents) and contents[0].batch_axis is not None:
        found.append("a batch of one sequence cannot show whether sequences of a batch read each other")
    if flow_asked and not contents:
        found.append("no input with positions was recognised: the flow was not measured")
    return found


def _is_local(call: CallVerdict, contents: list[Content]) -> bool:
    """Whether a self-attention call sees fewer positions than every input has."""
    return call.kind == "self" and all(call.queries < content.length for content in contents)


def _configured_windows(config: Any) -> list[tuple[str, int]]:
    pairs = []
    for name in _WINDOWS:
        value = getattr(config, name, None)
        if isinstance(value, list | tuple) and value:
            value = max(part for part in value if isinstance(part, int))
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            pairs.append((name, value))
    return pairs

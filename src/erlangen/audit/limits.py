"""Where an audit is weak: what these inputs could not show."""

from __future__ import annotations

from torch import nn

from erlangen.audit.inputs import Content
from erlangen.audit.possible_sizes import possible_sizes
from erlangen.audit.sizes import named_sizes
from erlangen.audit.verdict import CallVerdict
from erlangen.relations import Window


def limits(
    model: nn.Module,
    calls: list[CallVerdict],
    contents: list[Content],
    padded: bool,
    longest: int,
    batch: int,
) -> list[str]:
    """What was not, or could not be, tried. `longest` is the longest sequence that was fed, and
    `batch` the largest batch."""
    found = []
    for name, size in named_sizes(model):
        if longest and longest <= size:
            found.append(
                f"{name} = {size} was not crossed by {longest} positions: its window cannot be seen, and "
                "nothing is known about longer inputs"
            )
    for call in calls:
        window = call.expected
        seen = max(longest, call.keys)
        if isinstance(window, Window) and seen <= window.lookback + 1 and window.lookahead == 0:
            found.append(
                f"{call.module}: {call.keys} keys are not more than {window} reads, so it looks like Causal()"
            )
            break
    merged = [call.module for call in calls if call.api == "module"]
    if merged:
        found.append(f"{merged[0]} ({len(merged)} calls) was probed as a whole: its heads are not told apart")
    derived = [call for call in calls if call.kind == "derived"]
    if derived:
        found.append(
            f"{derived[0].module or 'the model'} ({len(derived)} calls): {derived[0].queries} queries and "
            f"{derived[0].keys} keys are not the positions of an input: judged by what flows through them"
        )
    local = [call for call in calls if contents and _is_local(call, contents)]
    if local:
        found.append(
            f"{local[0].module or 'the model'} ({len(local)} calls) attends within {local[0].queries} "
            "positions, which are no whole input: its relation is that of a chunk"
        )
    if contents and max((content.length for content in contents), default=0) < 4:
        found.append(f"a sequence of {contents[0].length} positions tells little: give a longer one")
    if contents and calls and not padded:
        found.append("no padding was tried")
    if contents and batch == 1 and contents[0].batch_axis is not None:
        found.append("a batch of one sequence cannot show whether sequences of a batch read each other")
    return found


SAID = 4
"""So many integers that may be lengths are named."""


def uncrossed(model: nn.Module, longest: int) -> str:
    """The integers that may be lengths and that no input crossed; empty without one. No input crosses the
    size of a table of embeddings: one may be as long."""
    named = {size for _, size in named_sizes(model)}
    tables = {one.num_embeddings for one in model.modules() if isinstance(one, nn.Embedding)}
    found = [
        f"{name} = {size}"
        for name, size in reversed(possible_sizes(model))
        if longest and size >= longest + (size in tables) and size not in named
    ]
    if not found:
        return ""
    more = f" and {len(found) - SAID} more" if len(found) > SAID else ""
    return f"beyond {', '.join(found[:SAID])}{more}: if that is a length, give longer inputs"


def _is_local(call: CallVerdict, contents: list[Content]) -> bool:
    """Whether a self-attention call sees fewer positions than every input has."""
    return call.kind == "self" and all(call.queries < content.length for content in contents)

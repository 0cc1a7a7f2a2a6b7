"""What an audit tried, and where it is weak: what these inputs could not show."""

from __future__ import annotations

from typing import Any

from erlangen.audit.case import Examination
from erlangen.audit.examiner import Examiner
from erlangen.audit.feeding import Feeding
from erlangen.audit.inputs import Content
from erlangen.audit.reading import Reading
from erlangen.audit.sizes import named_sizes
from erlangen.audit.verdict import CallVerdict
from erlangen.relations import Window


def limits(
    examiner: Examiner, calls: list[CallVerdict], contents: list[Content], fed: list[Reading]
) -> list[str]:
    """What was not, or could not be, tried: `calls` and `contents` are those of the given inputs, `fed` is
    all that was fed."""
    model, found = examiner.model, list[str]()
    padded = any(not mask.real().all() for one in fed for mask in one.masks)
    longest = max((content.length for one in fed for content in one.sequences), default=0)
    batch = max((content.batch for one in fed for content in one.sequences), default=0)
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
    if examiner.flow and not contents:
        found.append("no input with positions was recognised: the flow was not measured")
    return found


def _is_local(call: CallVerdict, contents: list[Content]) -> bool:
    """Whether a self-attention call sees fewer positions than every input has."""
    return call.kind == "self" and all(call.queries < content.length for content in contents)


def tried(done: list[tuple[Feeding, Examination]]) -> dict[str, Any]:
    """Lengths, batch sizes, modes, feedings and token range that were tried: those of the given feeding
    first."""
    contents = [one for feeding, _ in done for one in feeding.reading.sequences]
    tokens = [one.pool for one in contents if one.pool is not None]
    sampled = {trial.label: trial.sampled for _, trial in done if trial.sampled is not None}
    return {
        "lengths": sorted({one.length for one in contents}),
        "batch": sorted({feeding.reading.batch for feeding, _ in done}),
        "modes": list(dict.fromkeys(feeding.mode.name for feeding, _ in done)),
        "feedings": [trial.label for _, trial in done],
        "tokens": [int(min(pool.min() for pool in tokens)), int(max(pool.max() for pool in tokens))]
        if tokens
        else None,
        "sampled": {label: list(pair) for label, pair in sampled.items()},
        "beside attention": done[0][1].beside,
        "added": list(dict.fromkeys(feeding.added for feeding, _ in done if feeding.added)),
        "groups": {trial.label: trial.groups for _, trial in done if trial.groups},
    }

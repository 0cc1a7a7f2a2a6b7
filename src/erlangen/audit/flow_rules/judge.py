"""The flow from one input to one output, judged by the rule for what its rows are to the input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from erlangen.audit.calls.real import kept
from erlangen.audit.calls.streams import predict
from erlangen.audit.flow_rules.bounds import size
from erlangen.audit.flow_rules.following import surely_real
from erlangen.audit.flow_rules.other_rows import judge_foreign, judge_mapped
from erlangen.audit.flow_rules.own_rows import judge_diagonal, judge_own
from erlangen.audit.flow_rules.taken_rows import AVERAGE, ROW, UNTOLD
from erlangen.audit.flow_verdict import FlowVerdict, Scene
from erlangen.audit.inputs import Content
from erlangen.audit.obligations import Compared
from erlangen.audit.observed import Measured
from erlangen.audit.outputs import floating
from erlangen.audit.support import of_item
from erlangen.audit.witnesses.flow import Flow
from erlangen.audit.witnesses.runs import Runner
from erlangen.relations import Neighborhoods


def judge_flow(flow: Flow, role: str, scene: Scene, beside: Sequence[Flow] = ()) -> FlowVerdict:
    """Hold a flow against the product of the calls' relations and against the expectation.

    `beside` are the flows from other inputs whose positions the rows of this output are.
    """
    verdict = FlowVerdict(flow, role, scene.feeding.label)
    keys = scene.real.get(scene.content.name)
    verdict.real_keys = keys if keys is not None and keys.shape[-1] == scene.content.length else None
    if role in ("own", "inner"):
        verdict.real = verdict.real_keys
        if role == "own":
            _leave_out_unlabelled(verdict, scene)
    elif role == "foreign":
        verdict.real = _rows_of_others(flow, scene)
    _compose(verdict, scene)
    _padding(verdict, scene)
    if role == "labels":
        _labels(verdict, scene)
    elif scene.expect is not None:
        if role in ("own", "inner"):
            judge_own(verdict, scene)
        elif role == "mapped":
            judge_mapped(verdict, scene, beside)
        elif role == "foreign":
            judge_foreign(verdict, scene)
        if role in ("own", "inner", "mapped"):
            judge_diagonal(verdict, scene)
    return verdict


def _leave_out_unlabelled(verdict: FlowVerdict, scene: Scene) -> None:
    """Rows of a loss whose label does not count (-100) move with nothing: nothing is missing there."""
    flow, labelled = verdict.flow, scene.labelled
    shape = (len(flow.relations), flow.relations[0].queries)
    if labelled is None or flow.features != 1 or labelled.shape != shape:
        return
    silent = ~np.stack([np.asarray(seen.dense().any(axis=1)) for seen in flow.relations])
    rows = ~(silent & ~labelled)
    verdict.real = rows if verdict.real is None else verdict.real & rows


def _rows_of_others(flow: Flow, scene: Scene) -> np.ndarray | None:
    rows = flow.relations[0].queries
    return next(
        (
            scene.real[one.name]
            for one in scene.contents
            if one is not scene.content
            and one.axis is not None
            and one.length == rows
            and scene.real.get(one.name) is not None
        ),
        None,
    )


def _compose(verdict: FlowVerdict, scene: Scene) -> None:
    """What the measured calls predict, what flows beside them, and what they predict that is not seen."""
    flow, calls = verdict.flow, scene.calls
    if not (scene.covered and calls and flow.complete) or verdict.role in ("pooled", "labels", "mapped"):
        return

    def product(b: int, residual: bool) -> Neighborhoods | None:
        size = flow.relations[b].queries
        return predict(
            calls,
            scene.contents,
            scene.content,
            size,
            lambda call: call.kernel.of_item(b),
            residual=residual,
            owner=scene.content.name if verdict.role in ("own", "inner") else None,
        )

    items = range(len(flow.relations))
    reached, least = [product(b, True) for b in items], [product(b, False) for b in items]
    if any(part is None for part in reached):
        return
    verdict.predicted = tuple(part for part in reached if part is not None)
    pairs = list(zip(flow.relations, verdict.predicted, strict=True))
    verdict.outside_attention = tuple(
        kept(seen - said, verdict.real, b) for b, (seen, said) in enumerate(pairs)
    )
    # Without residuals somewhere the truth lies between the two products: then nothing is missing.
    lower = [
        low if low is not None and low <= seen else said
        for low, (seen, said) in zip(least, pairs, strict=True)
    ]
    verdict.missing = tuple(
        kept(said - seen, verdict.real, b)
        for b, (said, seen) in enumerate(zip(lower, flow.relations, strict=True))
    )


def _padding(verdict: FlowVerdict, scene: Scene) -> None:
    """No real row may depend on what stands at a padding position."""
    keys = verdict.real_keys
    if keys is None or keys.all() or verdict.role == "labels":
        return
    if verdict.role == "pooled" and verdict.flow.whole_batch and scene.padding_alone is not None:
        if not (scene.labels and verdict.flow.features == 1):  # a loss counts the labels of padding
            _padding_of_batch(verdict, scene, scene.padding_alone(verdict.flow))
        return
    if verdict.role == "pooled" and scene.own_padding:
        if not (scene.labels and verdict.flow.features == 1):  # a loss counts the labels of padding
            _pooled_padding(verdict, keys, bool(scene.seen) and not keys[:, 0].all(), scene)
        return
    for b, seen in enumerate(verdict.flow.relations):
        padding = _padding_of(verdict, keys, b)
        edges = kept(seen, verdict.real, b).edges()
        if verdict.role == "mapped":
            edges = edges[surely_real(verdict.flow, verdict.real_keys, b)[0][edges[:, 0]]]
        edges = edges[padding[edges[:, 1]]] if len(edges) else edges
        if len(edges):
            i, j = edges[0].tolist()
            row = "the output" if verdict.role == "pooled" else f"output row {i}"
            text = f"{row} depends on padding position {j}"
            finding = verdict.found(
                kind="padding", item=b, query=i, key=j, size=size(verdict, b, i, j), detail=text
            )
            verdict.broken(Compared.PADDING, finding)
            return
    verdict.held(Compared.PADDING)


def _padding_of_batch(verdict: FlowVerdict, scene: Scene, read: dict[int, list[int]] | None) -> None:
    """A number for the whole batch: what stands at the padding of an item may not move it."""
    if read is None:
        name = verdict.flow.output or "the output"
        reason = "whose padding is not that of one sequence for each item: return a row for each item"
        verdict.opened(Compared.PADDING, f"{name} is one number for the whole batch, {reason}")
        return
    for item, positions in read.items():
        j = positions[0]
        if len(positions) == 1 and scene.own_padding:
            verdict.opened(
                Compared.PADDING,
                f"{verdict.flow.output or 'the output'} depends on padding position {j} of item {item}, and "
                "whether it takes the row that stands there could not be told: return the rows before it",
            )
            return
        several = f"s {j} to {positions[-1]}" if len(positions) > 1 else f" {j}"
        text = f"the output depends on padding position{several} of item {item}"
        verdict.broken(
            Compared.PADDING, verdict.found(kind="padding", item=item, query=0, key=j, detail=text)
        )
        return
    verdict.held(Compared.PADDING)


def _padding_of(verdict: FlowVerdict, keys: np.ndarray, item: int) -> np.ndarray:
    """The padding positions of an item; of all items, where an output is of the whole batch: a position is
    changed in every item then, and is padding only where it is real in none."""
    real = keys.any(axis=0) if verdict.flow.whole_batch else of_item(keys, item)
    return np.logical_not(np.asarray(real))


def padding_read_by(verdict: FlowVerdict, item: int) -> np.ndarray:
    """The padding positions that any row of one item reads."""
    keys = verdict.real_keys
    if keys is None:
        return np.empty(0, int)
    padding = _padding_of(verdict, keys, item)
    return np.flatnonzero(verdict.flow.relations[item].dense().any(axis=0) & padding)


def _pooled_padding(verdict: FlowVerdict, keys: np.ndarray, first: bool, scene: Scene) -> None:
    """A pooled output may read one padding position: the row it takes may follow the tokens, not the mask.

    Several are read only by an average that counts padding, or by rows that read it. `first`: the first rows
    are padding and rows come out beside it; the first row, which may be what is pooled, may read anything.
    """
    name = verdict.flow.output or "the output"
    for b in range(len(verdict.flow.relations)):
        read = padding_read_by(verdict, b)
        if not len(read):
            continue
        j = int(read[0])
        told = scene.taken is not None and (len(read) == 1 or first)
        found = scene.taken(verdict.flow, b, j) if told and scene.taken is not None else AVERAGE
        if found == ROW:
            verdict.notes.append(
                f"{verdict.where}: {name} takes the row at position {j}, which is padding there"
            )
        elif found == UNTOLD:
            verdict.opened(
                Compared.PADDING,
                f"{name} depends on padding position {j}, and whether it takes the row that stands there, or "
                "counts it among others, could not be told: return the rows before it is pooled, or leave "
                'padding out by feedings=["padded right"] or ["padded left"]',
            )
            return
        else:
            several = f"s {j} to {int(read[-1])}" if len(read) > 1 else f" {j}"
            text = f"the output depends on padding position{several}"
            finding = verdict.found(
                kind="padding", item=b, query=0, key=j, size=size(verdict, b, 0, j), detail=text
            )
            verdict.broken(Compared.PADDING, finding)
            return
    verdict.held(Compared.PADDING)


def _labels(verdict: FlowVerdict, scene: Scene) -> None:
    """Rows may not depend on labels at or behind them; a decoder is fed earlier ones (teacher forcing)."""
    flow = verdict.flow
    pooled = flow.pooled or flow.relations[0].queries == 1
    if pooled and (flow.whole_batch or (flow.features == 1 and "loss" in flow.output.lower())):
        verdict.held(Compared.LABELS)  # a loss, of the batch or of each item
        return
    if pooled and flow.features == 1 and any(seen.num_edges for seen in flow.relations):
        verdict.opened(
            Compared.LABELS,
            f"{flow.output or 'the output'} is one number for each item and depends on {flow.content}: a "
            "loss may, a prediction may not; call it loss, or say content=[...] to leave "
            f"{flow.content} as it is",
        )
        return
    if pooled:
        moved = next((b for b, seen in enumerate(flow.relations) if seen.num_edges), None)
        finding = None
        if moved is not None:
            text = f"{flow.output or 'the output'} depends on {flow.content}"
            finding = verdict.found(kind="labels", item=moved, detail=text)
        verdict.settle(Compared.LABELS, finding)
        return
    if flow.features == 1 and _one_label_each(verdict):
        name = flow.output or "the output"
        if "loss" in flow.output.lower() or flow.output in scene.losses():
            verdict.held(Compared.LABELS)  # each token's loss reads its own label
        else:
            verdict.opened(
                Compared.LABELS,
                f"{name} is one number for each row and depends on one of {flow.content} each: a loss may, a "
                f"prediction may not; call it loss, or say content=[...] to leave {flow.content} as it is",
            )
        return
    for b, seen in enumerate(verdict.flow.relations):
        edges = seen.edges()
        late = edges[edges[:, 1] >= edges[:, 0]] if len(edges) else edges
        if len(edges) and not len(late):
            verdict.notes.append(f"{verdict.flow.content} is fed to the rows one step late, as decoders are")
        if len(late):
            i, j = late[0].tolist()
            text = f"output row {i} depends on {verdict.flow.content} at position {j}"
            verdict.broken(
                Compared.LABELS,
                verdict.found(
                    kind="labels", item=b, query=i, key=j, size=size(verdict, b, i, j), detail=text
                ),
            )
            return
    verdict.held(Compared.LABELS)


def _one_label_each(verdict: FlowVerdict) -> bool:
    """Whether rows read one label each, all at the same distance and not one that a decoder is fed with."""
    steps = [seen.edges() for seen in verdict.flow.relations]
    apart = {int(d) for edges in steps if len(edges) for d in (edges[:, 1] - edges[:, 0])}
    return len(apart) == 1 and min(apart) >= 0


_LOSSES = ("loss", "cross_entropy")
"""Parts of the names of PyTorch's loss functions."""


class _Watch(TorchFunctionMode):
    """Remembers what loss functions return."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[torch.Tensor] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        if isinstance(result, torch.Tensor) and any(word in name for word in _LOSSES):
            self.seen.append(result.detach().flatten())
        return result


def losses_of(runner: Runner) -> set[str]:
    """The names of outputs that are what a loss function of PyTorch returned for each token."""
    watch = _Watch()
    try:
        output = runner.on(runner.inputs, watch)
    except Exception:
        return set()  # a model that runs only unobserved
    return {
        name
        for name, tensor in floating(output)
        if tensor.dim() and any(torch.equal(one, tensor.flatten()) for one in watch.seen)
    }


def labelled_rows(labels: list[Content]) -> np.ndarray | None:
    """Which rows have a label that counts, (batch, rows); None where no label is -100."""
    for one in labels:
        tensor = one.tensor.detach().cpu()
        if one.axis == 1 and one.batch_axis == 0 and tensor.dim() == 2 and bool((tensor == -100).any()):
            return (tensor != -100).numpy()
    return None


def fed_labels(labels: list[Content], calls: list[Measured]) -> list[Content]:
    """The labels that a decoder is fed with: its queries read another sequence."""
    asking = {name for call in calls if call.kind == "cross" for name in call.query_inputs}
    return [one for one in labels if one.axis is not None and one.name in asking]

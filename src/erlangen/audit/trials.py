"""More forward passes: other inputs of the same kind, and training mode."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from erlangen.audit.expect import Expectation
from erlangen.audit.identify import identify
from erlangen.audit.inputs import Content, Inputs, contents, real_positions
from erlangen.audit.measure import Known, Measured, Pass, observe
from erlangen.audit.report import Trial
from erlangen.audit.state import RandomState, Snapshot
from erlangen.audit.verdict import CallVerdict, judge_call
from erlangen.audit.witnesses.flow import Flow, spot_flow
from erlangen.errors import ErlangenError
from erlangen.relations import Neighborhoods, Relation


def try_inputs(
    model: nn.Module,
    inputs: Inputs,
    base: Pass,
    expect: Expectation,
    random: RandomState,
    batch: int,
    known: Known,
) -> Trial:
    """Judge the calls on other inputs, and compare them with those on the given inputs."""
    found = contents(model, inputs)
    try:
        seen = observe(model, inputs, found[0].batch if found else batch, random, known)
    except Exception as error:
        return Trial(inputs.label, [], skipped=f"{type(error).__name__}: {str(error).split(chr(10))[0]}")
    _inherit(seen, base)
    real = {content.name: real_positions(model, inputs, content) for content in found}
    trial = Trial(inputs.label, [_judge(call, expect, real, inputs.label) for call in seen.calls])
    for verdict in trial.calls:
        trial.contradictions += differences(verdict) + _padding_read(verdict)
    if len(seen.calls) != len(base.calls):
        trial.differences.append(f"{len(seen.calls)} attention calls, {len(base.calls)} on the given inputs")
        return trial
    unlike = _unlike(model, base.inputs, inputs)
    for verdict, call in zip(trial.calls, base.calls, strict=True):
        now = verdict.measured
        if _sizes(now) == _sizes(call) and now.kernel != call.kernel and inputs.label != "padded":
            trial.varying[now.module] = f"on {', '.join(unlike) or 'the inputs'}"
        elif inputs.label == "shorter" and not _same_family(call, now):
            trial.differences.append(
                f"{now.module or 'the model'}: {verdict.kernel}, not the relation at full length"
            )
    return trial


def try_training(
    model: nn.Module,
    inputs: Inputs,
    base: Pass,
    expect: Expectation,
    real: dict[str, np.ndarray | None],
    snapshot: Snapshot,
    batch: int,
    known: Known,
) -> Trial:
    """The same inputs in training mode: every relation must be the same. Buffers are put back afterwards."""
    model.train()
    try:
        seen = observe(model, inputs, batch, snapshot.random, known)
    except Exception as error:
        return Trial("training", [], skipped=f"{type(error).__name__}: {str(error).split(chr(10))[0]}")
    finally:
        model.eval()
        snapshot.restore_buffers()
    _inherit(seen, base)
    trial = Trial("training", [_judge(call, expect, real, "training") for call in seen.calls])
    if len(seen.calls) != len(base.calls):
        trial.differences.append(f"{len(seen.calls)} attention calls, {len(base.calls)} in eval mode")
        return trial
    for now, call in zip(seen.calls, base.calls, strict=True):
        if _sizes(now) == _sizes(call) and now.kernel != call.kernel:
            b, h, i, j, has = now.kernel.difference(call.kernel) or (0, 0, 0, 0, False)
            trial.contradictions.append(
                f"{now.module or 'the model'}, item {b}, head {h}: in training mode query {i} "
                f"{'reads' if has else 'does not read'} key {j}, in eval mode it "
                f"{'does not' if has else 'does'}"
            )
    return trial


def training_flow(model: nn.Module, inputs: Inputs, found: list[Content], flow: Flow) -> list[str]:
    """Dependences that appear in training mode only, at three positions: batch statistics do this."""
    content = next(one for one in found if one.name == flow.content)
    n = content.length
    positions = sorted({n // 4, n // 2, 3 * n // 4})
    model.train()
    try:
        moved = spot_flow(model, inputs, content, positions)
    except Exception as error:
        return [f"the flow from {content.name} was not measured: {type(error).__name__}"]
    finally:
        model.eval()
    for b, seen in enumerate(flow.relations):
        new = moved[b] & ~seen.dense()[:, positions]
        if new.any():
            i, j = np.argwhere(new)[0]
            return [
                f"output row {i} depends on position {positions[j]} of {content.name} (item {b}), "
                "which in eval mode it does not"
            ]
    return []


def differences(verdict: CallVerdict) -> list[str]:
    """Where the kernel does not do what was declared."""
    call, found = verdict.measured, []
    name = call.module or "the model"
    where = "" if verdict.where == "given" else f" ({verdict.where})"
    nan_rows = [row for row in call.nan_rows if _speaks(verdict, row)]
    if nan_rows:
        b, h, i = nan_rows[0]
        found.append(
            f"{name}{where}: {len(nan_rows)} fully masked rows become NaN, first item {b}, head {h}, "
            f"query {i}"
        )
    revived = [row for row in call.revived_rows if _speaks(verdict, row)]
    if revived:
        b, h, i = revived[0]
        found.append(
            f"{name}{where}: {len(revived)} fully masked rows read keys all the same (a finite mask value "
            f"makes them uniform), first item {b}, head {h}, query {i}"
        )
    edge = verdict.disagreement
    if edge is not None and not nan_rows and not revived and not call.nan_rows and not call.revived_rows:
        b, h, i, j, has = edge
        found.append(
            f"{name}{where}: item {b}, head {h}: edge ({i}, {j}) is {'not ' if has else ''}declared, but "
            f"{'is' if has else 'is not'} computed"
        )
    if call.weights is not None and call.weights.applied is False:
        found.append(f"{name}{where}: the finite bias that reached the call is not what its kernel adds")
    return found


def _speaks(verdict: CallVerdict, row: tuple[int, int, int]) -> bool:
    """Whether a row belongs to a real query; rows of padding carry no meaning."""
    real = verdict.real_queries
    return real is None or bool(real[min(row[0], len(real) - 1)][row[2]])


def _judge(
    call: Measured, expect: Expectation, real: dict[str, np.ndarray | None], label: str
) -> CallVerdict:
    """Judge a call of a trial; an expectation with a size of its own cannot be held against other sizes."""
    try:
        return judge_call(call, expect, real, label)
    except ErlangenError:
        if label in ("training", "given"):
            raise
        return judge_call(call, None, real, label)


def _padding_read(verdict: CallVerdict) -> list[str]:
    """Real queries that read padding keys."""
    call, keys = verdict.measured, verdict.real_keys
    if keys is None or keys.all():
        return []
    for b, heads in enumerate(call.kernel.items):
        padding = ~keys[min(b, len(keys) - 1)]
        real = (
            None
            if verdict.real_queries is None
            else verdict.real_queries[min(b, len(verdict.real_queries) - 1)]
        )
        for h, bound in enumerate(heads):
            edges = bound.edges()
            bad = padding[edges[:, 1]] & (True if real is None else real[edges[:, 0]])
            if bad.any():
                i, j = edges[np.flatnonzero(bad)[0]].tolist()
                return [
                    f"{call.module or 'the model'}: item {b}, head {h}: query {i} reads key {j}, "
                    "which is padding"
                ]
    return []


def _inherit(seen: Pass, base: Pass) -> None:
    """Give the calls of a trial the sources found on the given inputs."""
    for call, known in zip(seen.calls, base.calls, strict=False):
        if call.module == known.module:
            call.kind, call.query_inputs, call.key_inputs = known.kind, known.query_inputs, known.key_inputs


def _same_family(call: Measured, now: Measured) -> bool:
    """Whether the relation at full length, read as an expression, also gives the one measured now."""
    for long, short in zip(call.kernel.items[0], now.kernel.items[0], strict=False):
        relation: Relation = identify(long)
        try:
            bound: Neighborhoods = relation.on(now.queries, now.keys)
        except ErlangenError:
            continue  # a relation of one size only: nothing to compare
        if bound != short:
            return False
    return True


def _unlike(model: nn.Module, a: Inputs, b: Inputs) -> list[str]:
    """The names of the arguments in which two inputs differ."""
    first, second = a.named(model), b.named(model)
    names = [*first, *(name for name in second if name not in first)]
    return [name for name in names if not _equal(first.get(name), second.get(name))]


def _equal(x: object, y: object) -> bool:
    if isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor):
        return x.shape == y.shape and torch.equal(x, y)
    return x is y


def _sizes(call: Measured) -> tuple[int, int, int, int]:
    return call.batch, call.heads, call.queries, call.keys

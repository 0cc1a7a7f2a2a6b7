"""Where measurements contradict each other, and where real queries read padding."""

from __future__ import annotations

from erlangen.audit.findings import Finding
from erlangen.audit.flow_verdict import FlowVerdict
from erlangen.audit.support import of_item
from erlangen.audit.verdict import CallVerdict


def contradictions_of(verdict: CallVerdict) -> list[str]:
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
    return real is None or bool(of_item(real, row[0])[row[2]])


def padding_read(verdict: CallVerdict) -> Finding | None:
    """The first real query that reads a padding key."""
    call, keys = verdict.measured, verdict.real_keys
    if keys is None or keys.all():
        return None
    for b, heads in enumerate(call.kernel.items):
        padding = ~of_item(keys, b)
        real = verdict.real_queries
        rows = None if real is None else of_item(real, b)
        for h, bound in enumerate(heads):
            edges = bound.edges()
            bad = padding[edges[:, 1]] & (True if rows is None else rows[edges[:, 0]])
            if bad.any():
                i, j = edges[bad.nonzero()[0][0]].tolist()
                return Finding(
                    "padding", call.module, item=b, head=h, query=i, key=j, where=verdict.where,
                    source=call.source, detail=f"query {i} reads padding key {j}",
                )  # fmt: skip
    return None


def flow_contradictions(verdict: FlowVerdict) -> list[str]:
    found = []
    if verdict.flow.batch_leak is not None:
        changed, moved = verdict.flow.batch_leak
        found.append(f"sequences of one batch read each other: changing item {changed} moves item {moved}")
    if verdict.fast_path is not None:
        b, i, j = verdict.fast_path
        found.append(f"the fast path differs from the observed path: item {b}, row {i}, position {j}")
    return found


def flow_warnings(verdict: FlowVerdict) -> list[str]:
    name, found = verdict.flow.content, []
    for b, part in enumerate(verdict.outside_attention or ()):
        if part.num_edges:
            i, j = part.edges()[0].tolist()
            found.append(
                f"outside attention: output row {i} depends on position {j} of {name} (item {b}), which no "
                f"attention call carries; {part.num_edges} such edges"
            )
            break
    for b, part in enumerate(verdict.missing or ()):
        if part.num_edges:
            i, j = part.edges()[0].tolist()
            found.append(
                f"predicted but not seen: output row {i} on position {j} of {name} (item {b}); "
                f"{part.num_edges} such edges: cancelled, or smaller than rounding"
            )
            break
    return found

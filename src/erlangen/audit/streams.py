"""Which sequence each attention call reads, and what the calls together let the output depend on."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from erlangen.audit.inputs import Content
from erlangen.audit.measure import Measured, Pass
from erlangen.relations import Identity, Neighborhoods


def name_sources(base: Pass, changed: dict[str, Pass]) -> None:
    """Fill in which inputs the queries and keys of each call depend on, and whether it is self or cross.

    `changed[name]` is the same pass with all content of one input changed. A call is cross-attention when its
    queries and its keys depend on different inputs, or, within one input, when their numbers differ.
    """
    cached = any("past" in key and value is not None for key, value in base.inputs.kwargs.items())
    for call in base.calls:
        queries, keys = set(), set()
        for name, other in changed.items():
            if call.fingerprints is None or call.index >= len(other.calls):
                continue
            after = other.calls[call.index].fingerprints
            if after is not None:
                queries |= {name} if after[0] != call.fingerprints[0] else set()
                keys |= {name} if after[1] != call.fingerprints[1] else set()
        call.query_inputs, call.key_inputs = frozenset(queries), frozenset(keys)
        apart = queries != keys if len(changed) > 1 else call.queries != call.keys and not cached
        call.kind = "cross" if apart else "self"


def predict(
    calls: list[Measured],
    contents: list[Content],
    target: Content,
    rows: int,
    relation: Callable[[Measured], Neighborhoods],
    *,
    residual: bool = True,
) -> Neighborhoods | None:
    """What `rows` output rows can depend on in the target input: the boolean product of the calls' relations.

    Each call adds what its keys have seen, with residuals also what its queries have seen already; last call
    leftmost. Two inputs are two sequences, joined by cross-attention. None when the calls do not form one or
    two such sequences (sizes change on the way).
    """
    if len(contents) == 1:
        return _one_sequence(calls, target, rows, relation, residual)
    return _two_sequences(calls, contents, target, rows, relation, residual)


def _one_sequence(
    calls: list[Measured],
    target: Content,
    rows: int,
    relation: Callable[[Measured], Neighborhoods],
    residual: bool,
) -> Neighborhoods | None:
    n = target.length
    sizes = {size for call in calls for size in (call.queries, call.keys)} or {n}
    if len(sizes) != 1:
        return None
    (length,) = sizes
    extra = length - n  # such as a class token, which comes first
    if extra < 0 or rows not in (length, n):
        return None
    own = np.arange(n, dtype=np.int64)
    reach = Neighborhoods.from_edges(length, n, np.stack([own + extra, own], axis=1))
    for call in calls:
        reach = _step(reach, relation(call), residual)
    return reach if rows == length else reach.restrict(np.arange(extra, length))


def _two_sequences(
    calls: list[Measured],
    contents: list[Content],
    target: Content,
    rows: int,
    relation: Callable[[Measured], Neighborhoods],
    residual: bool,
) -> Neighborhoods | None:
    crossing = [call for call in calls if call.kind == "cross"]
    sources = {call.key_inputs for call in crossing}
    if len(contents) != 2 or len(sources) != 1 or len(next(iter(sources))) != 1:
        return None
    (source,) = next(iter(sources))
    encoder = next(content for content in contents if content.name == source)
    decoder = next(content for content in contents if content.name != source)
    if rows != decoder.length:
        return None
    columns = target.length
    empty = np.empty((0, 2), np.int64)
    own = np.stack([np.arange(columns)] * 2, axis=1)
    inside = Neighborhoods.from_edges(encoder.length, columns, own if target is encoder else empty)
    reach = Neighborhoods.from_edges(decoder.length, columns, own if target is decoder else empty)
    for call in calls:
        if call.kind == "cross":
            if (call.queries, call.keys) != (decoder.length, encoder.length):
                return None
            further = relation(call).compose(inside)
            reach = reach | further if residual else further
        elif call.query_inputs == {source}:
            if (call.queries, call.keys) != (encoder.length,) * 2:
                return None
            inside = _step(inside, relation(call), residual)
        else:
            if (call.queries, call.keys) != (decoder.length,) * 2:
                return None
            reach = _step(reach, relation(call), residual)
    return reach


def _step(reach: Neighborhoods, relation: Neighborhoods, residual: bool) -> Neighborhoods:
    if residual:
        relation = relation | Identity().on(relation.queries)
    return relation.compose(reach)

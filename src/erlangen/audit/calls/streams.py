"""Which sequence each attention call reads, and what the calls together let the output depend on."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from erlangen.audit.inputs import Content
from erlangen.audit.observed import Measured, Pass
from erlangen.relations import Identity, Neighborhoods


def name_sources(
    base: Pass, changed: dict[str, Pass], spots: dict[str, list[tuple[int, Pass]]], contents: list[Content]
) -> None:
    """Fill in which inputs the queries and keys of each call depend on, and whether it is self or cross.

    `changed[name]` is the same pass with all content of one input changed, `spots[name]` are passes with one
    position changed. The queries are the positions of an input when the query that moves most with position p
    is query p; likewise the keys. A call is self-attention when both are positions of one input,
    cross-attention when of two different ones. Summaries, chunks, memory tokens and single steps are no
    positions: such a call is *derived*, and only the flow can judge it.
    """
    cached = any("past" in key and value is not None for key, value in base.inputs.kwargs.items())
    lengths = {content.name: content.length for content in contents}
    asking: set[str | None] = set()
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
        call.query_owner = _owner(call, 0, call.queries, queries, spots, lengths, asking)
        call.key_owner = _owner(call, 1, call.keys, keys, spots, lengths, asking)
        call.kind = _kind(call, spots, lengths, cached)
        if call.kind == "cross":
            asking.add(call.query_owner)
    derived = {size for call in base.calls if call.kind == "derived" for size in (call.queries, call.keys)}
    for call in base.calls:
        if call.kind == "self" and call.queries in derived - set(lengths.values()):
            call.kind = "derived"  # among summaries that another call made


def _owner(
    call: Measured,
    side: int,
    size: int,
    inputs: set[str],
    spots: dict[str, list[tuple[int, Pass]]],
    lengths: dict[str, int],
    asking: set[str | None],
) -> str | None:
    """The input whose positions the queries or keys are: the one of that length, if several the one they
    follow.

    Rows that asked another sequence (`asking`: the owners of queries of earlier cross-attention) depend on
    both and stay their own, also where they are fed one step late and follow neither.
    """
    fitting = [name for name in lengths if name in inputs and lengths[name] == size]
    if len(fitting) > 1:
        asked = [name for name in fitting if name in asking]
        followed = [name for name in fitting if _follows(call, spots.get(name, []), side)]
        fitting = (followed if len(followed) == 1 else []) or asked or followed or fitting
    if fitting:
        return fitting[0]
    known = [name for name in lengths if name in inputs]
    return known[0] if len(known) == 1 else None  # at another rate


def _kind(
    call: Measured, spots: dict[str, list[tuple[int, Pass]]], lengths: dict[str, int], cached: bool
) -> str:
    queries, keys = call.query_inputs, call.key_inputs
    if call.queries == call.keys:
        if queries == keys:
            return "self"
        if any(_follows(call, spots.get(name, []), 0) and _follows(call, spots.get(name, []), 1) for name in
               queries & keys):  # fmt: skip
            return "self"
        return "cross" if queries and keys else "derived"
    if cached:
        return "self"
    readers = {name for name in queries if lengths[name] == call.queries} or queries - keys
    read = {name for name in keys if lengths[name] == call.keys} or keys - queries
    if not read and call.key_owner is not None:
        read = {call.key_owner}  # at another rate, by queries that have read it before
    own = {name for name in readers if _follows(call, spots.get(name, []), 0)} or readers
    return "cross" if own and read and not own & read else "derived"


def _follows(call: Measured, spots: list[tuple[int, Pass]], side: int) -> bool:
    """Whether the row of queries (side 0) or keys (side 1) that moves most with position p is row p."""
    hits = []
    for position, other in spots:
        after = other.calls[call.index].marks if call.index < len(other.calls) else None
        if call.marks is None or after is None or after[side].shape != call.marks[side].shape:
            return False
        size = np.abs(after[side] - call.marks[side])
        hits.append(bool(size.any()) and int(size.argmax()) == position)
    return bool(hits) and sum(hits) * 2 > len(hits)


def predict(
    calls: list[Measured],
    contents: list[Content],
    target: Content,
    rows: int,
    relation: Callable[[Measured], Neighborhoods],
    *,
    residual: bool = True,
    owner: str | None = None,
) -> Neighborhoods | None:
    """What `rows` output rows can depend on in the target input: the boolean product of the calls' relations.

    Each call adds what its keys have seen, with residuals also what its queries have seen already; last call
    leftmost. Two inputs are two sequences, joined by cross-attention. None when the calls do not form one or
    two such sequences (sizes change on the way). `owner` is the input that the rows are the positions of.
    """
    if not any(call.kind == "cross" for call in calls):
        # Calls that no change of the target reaches are of another tower and carry nothing of it.
        reached = [call for call in calls if target.name in call.query_inputs | call.key_inputs]
        calls = reached or calls
        return _one_sequence(calls, target, rows, relation, residual)
    return _two_sequences(calls, contents, target, rows, relation, residual, owner)


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
    if length < n or rows not in (length, n):
        return None
    own = np.arange(n, dtype=np.int64)
    # A class token comes first, where nothing was measured.
    placed = next((call.places[1][target.name] for call in calls if target.name in call.places[1]), None)
    at = own + length - n if placed is None else placed.astype(np.int64)
    reach = Neighborhoods.from_edges(length, n, np.stack([at, own], axis=1))
    for call in calls:
        reach = _step(reach, relation(call), residual)
    return reach if rows == length else reach.restrict(at)


def _two_sequences(
    calls: list[Measured],
    contents: list[Content],
    target: Content,
    rows: int,
    relation: Callable[[Measured], Neighborhoods],
    residual: bool,
    owner: str | None,
) -> Neighborhoods | None:
    crossing = [call for call in calls if call.kind == "cross"]
    sources = {call.key_inputs for call in crossing}
    if len(sources) != 1 or len(next(iter(sources))) != 1:
        return None
    (source,) = next(iter(sources))
    encoder = next((content for content in contents if content.name == source), None)
    read = {name for call in crossing for name in call.query_inputs if name != source}
    of_encoder = encoder is not None and owner == source and rows == encoder.length
    decoders = [content for content in contents if content.name in read]
    decoders = [content for content in decoders if of_encoder or content.length == rows]
    if encoder is None or len(decoders) != 1 or target not in (encoder, decoders[0]):
        return None
    decoder = decoders[0]
    columns = target.length
    empty = np.empty((0, 2), np.int64)
    own = np.stack([np.arange(columns)] * 2, axis=1)
    inside = Neighborhoods.from_edges(encoder.length, columns, own if target is encoder else empty)
    reach = Neighborhoods.from_edges(decoder.length, columns, own if target is decoder else empty)
    for call in calls:
        if target is decoder and call.query_inputs == {source}:
            continue  # an encoder reads nothing of the decoder's input, at whatever rate its rows are
        if call.kind == "cross":
            keys = call.keys if target is decoder else encoder.length
            if (call.queries, call.keys) != (decoder.length, keys):
                return None
            if target is decoder:
                inside = Neighborhoods.from_edges(keys, columns, empty)
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
    return inside if of_encoder else reach


def _step(reach: Neighborhoods, relation: Neighborhoods, residual: bool) -> Neighborhoods:
    if residual:
        relation = relation | Identity().on(relation.queries)
    return relation.compose(reach)

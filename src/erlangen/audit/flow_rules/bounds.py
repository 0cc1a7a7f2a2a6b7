"""What the rows of an output may read and must read, by the calls or by the whole model."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import or_

import numpy as np

from erlangen.audit.calls.real import kept, real_rows
from erlangen.audit.calls.streams import predict
from erlangen.audit.expect import (
    Expected,
    about_the_whole,
    bind_expected,
    bound_of,
    expected_of,
    in_words,
    overall,
)
from erlangen.audit.findings import Finding
from erlangen.audit.flow_verdict import FlowVerdict, Scene
from erlangen.audit.observed import Measured
from erlangen.audit.support import of_item
from erlangen.audit.witnesses.flow import Flow
from erlangen.audit.wording import without_masks
from erlangen.errors import ErlangenError
from erlangen.relations import Full, Identity, Neighborhoods, Relation

Bounds = tuple[Neighborhoods, Neighborhoods | None, Expected | None, str, bool]
"""(what may be read, what must be read, the expectation, its text, whether from calls)."""


def bounds(verdict: FlowVerdict, scene: Scene, item: int) -> Bounds | str:
    """What the rows of an item may read and must read, or why that cannot be said."""
    if scene.covered and not about_the_whole(scene.expect, scene.base or scene.calls):
        found = by_calls(verdict, scene, item, scene.calls)
        if found is None and scene.base is not scene.calls:
            found = by_calls(verdict, scene, item, scene.base)
            # Layers may be dropped in training: then less is read.
            found = None if found is None else (found[0], None, *found[2:])
        if found is not None:
            return found
    return by_whole(verdict, scene, item)


def by_calls(
    verdict: FlowVerdict,
    scene: Scene,
    item: int,
    calls: list[Measured],
    size: int | None = None,
) -> Bounds | None:
    """What a stack of calls may read that are each as expected; None where they do not compose. `size` is how
    many rows there are, where the output has a part of them."""
    rows = verdict.flow.relations[item].queries if size is None else size
    relations = {call.index: expected_of(scene.expect, call) for call in calls}
    spoken = [relation for relation in relations.values() if relation is not None]
    if spoken:

        def union(call: Measured) -> Neighborhoods:
            relation = relations[call.index]
            if relation is None:
                return Full().on(call.queries, call.keys)
            mask = real_rows(call, 1, scene.real)
            keys = None if mask is None else of_item(mask, item)
            result = bind_expected(relation, call, item, 0, keys)
            for head in range(1, call.heads):
                result = result | bind_expected(relation, call, item, head, keys)
            return result

        product = predict(calls, scene.contents, scene.content, rows, union, owner=scene.content.name)
        if product is not None:
            names = list(dict.fromkeys(in_words(one, rows, scene.content.length) for one in spoken))
            text = f"layers of {', '.join(names)}"
            if size is not None:
                return product, None, spoken[0], text, True
            lower = None if verdict.role == "inner" else some_reading(verdict, scene, product, item)
            if lower is None:
                lower = _surely_read(calls, scene, verdict.flow.relations[item], union)
            return product, lower, spoken[0], text, True
    return None


def _surely_read(
    calls: list[Measured],
    scene: Scene,
    seen: Neighborhoods,
    union: Callable[[Measured], Neighborhoods],
) -> Neighborhoods | None:
    """What rows must read when every call is as expected: what each call reads and their product, too.

    Whether the calls follow each other or stand side by side, with residuals or without, such an edge arrives
    at the rows; it does not where the queries of a call are not the rows that it is used for, as when heads
    are split by a reshape. Content that no row reads at all is overwritten, and nothing is expected of it.
    None where the calls are not all of this sequence, and in training, where dropout takes edges away.
    """
    rows = seen.queries
    if scene.feeding.mode.train:
        return None
    own = [call for call in calls if call.kind == "self" and call.query_owner == scene.content.name]
    if not own or any((call.queries, call.keys) != (rows, scene.content.length) for call in own):
        return None
    product = predict(
        calls, scene.contents, scene.content, rows, union, residual=False, owner=scene.content.name
    )
    if product is None:
        return None
    for call in own:
        product = product & union(call)
    read = np.asarray(seen.dense().any(axis=0))
    return Neighborhoods.from_dense(product.dense() & read[None, :])


def by_whole(verdict: FlowVerdict, scene: Scene, item: int) -> Bounds | str:
    """What any number of layers may read that are each as expected: their number is unknown."""
    rows = verdict.flow.relations[item].queries
    relation = overall(scene.expect)
    if (
        relation is None
        and scene.covered
        and any(expected_of(scene.expect, call) is not None for call in scene.calls)
    ):
        return (
            "each call was held against what is expected of it, but the calls do not compose to what these "
            f"{rows} rows may read of {verdict.flow.content} (sizes or axes change between them): add the "
            "pattern '*' with a relation of the whole model, or expect one relation"
        )
    if relation is None and scene.covered and scene.calls:
        return (
            "nothing is expected of the calls, and only a relation of the whole model could be held against "
            "the outputs: expect one relation, or add the pattern '*'"
        )
    if relation is None:
        return (
            "the calls could not all be explained, and only a relation of the whole model could be held "
            "against the outputs: expect one relation, or add the pattern '*'"
        )
    try:
        bound = single(relation, item).on(rows, scene.content.length)
        keys = verdict.real_keys
        closed = closure_of(bound, single(relation, item), rows)
    except ErlangenError as error:
        told = in_words(relation, rows, scene.content.length)
        reason = without_masks(str(error))
        return f"{told} cannot be held against {rows} rows of {verdict.flow.content}: {reason}"
    if keys is not None:
        real = of_item(keys, item)[None, :]
        closed = Neighborhoods.from_dense(closed.dense() & real) if closed.queries == rows else closed
        bound = Neighborhoods.from_dense(bound.dense() & real)
    text = in_words(relation, rows, scene.content.length)
    text = f"layers of {text}" if scene.calls else text
    return closed, bound, relation, text, False


def allowed(verdict: FlowVerdict, scene: Scene, item: int) -> Neighborhoods | None:
    """What the rows of one item may read; None where that cannot be said."""
    bound = (by_whole if verdict.unseen else bounds)(verdict, scene, item)
    return None if isinstance(bound, str) else bound[0]


def some_reading(
    verdict: FlowVerdict, scene: Scene, product: Neighborhoods, item: int
) -> Neighborhoods | None:
    """What must be seen when every call is as expected and no output reads any of it: attention is thrown
    away."""
    seen = verdict.flow.relations[item]
    if item < len(scene.seen) and scene.seen[item].queries == seen.queries:
        seen = scene.seen[item]
    off = Identity().on(seen.queries, seen.keys) if seen.queries == seen.keys else None
    if off is None or (seen - off).num_edges or not (product - off).num_edges:
        return None
    return product


def single(relation: Expected, item: int) -> Relation:
    """The relation of one item over all heads."""
    items = bound_of(relation).grid()
    return reduce(or_, items[item if len(items) > 1 else 0])


def by_head(relation: Expected) -> bool:
    """Whether heads are expected to read differently."""
    return any(len(set(heads)) > 1 for heads in bound_of(relation).grid())


def closure_of(bound: Neighborhoods, relation: Relation, rows: int) -> Neighborhoods:
    """Any number of steps: without sight of the layers their number is unknown."""
    if bound.queries != bound.keys:
        return bound
    try:
        return (relation | Identity()).closure().on(rows)
    except ErlangenError:
        step = bound | Identity().on(rows)
        while True:
            further = step.compose(step)
            if further == step:
                return step
            step = further


def columns(bound: Neighborhoods, flow: Flow) -> Neighborhoods:
    """The edges to positions that were changed."""
    if flow.positions is None:
        return bound
    tried = np.zeros(bound.keys, bool)
    tried[list(flow.positions)] = True
    return Neighborhoods.from_dense(bound.dense() & tried[None, :])


def size(verdict: FlowVerdict, item: int, row: int, key: int) -> float | None:
    sizes = verdict.flow.sizes
    return None if sizes is None else float(sizes[item, row, key])


def edge(verdict: FlowVerdict, item: int, edges: Neighborhoods, text: str, extra: bool) -> Finding:
    """The finding of the edge that moves most, for a leak of 1e-1 tells more than one of 1e-6."""
    pairs = edges.edges()
    best = 0
    if extra and verdict.flow.sizes is not None and not np.isnan(verdict.flow.sizes).any():
        sizes = verdict.flow.sizes[item][pairs[:, 0], pairs[:, 1]]
        best = 0 if sizes[0] > 1e-3 * sizes.max() else int(sizes.argmax())
    i, j = pairs[best].tolist()
    if extra or item not in verdict.wrong:
        verdict.wrong[item] = edges, extra
    return verdict.found(
        expected=text,
        measured=verdict.text(item),
        item=item,
        query=i,
        key=j,
        extra=extra,
        size=size(verdict, item, i, j) if extra else None,
    )


def within_closure(verdict: FlowVerdict, scene: Scene) -> bool:
    """Whether some number of steps of the one relation that is expected reads all that is seen."""
    for item, seen in enumerate(verdict.flow.relations):
        bound = by_whole(verdict, scene, item)
        if isinstance(bound, str) or kept(seen - bound[0], verdict.real, item).num_edges:
            return False
    return True

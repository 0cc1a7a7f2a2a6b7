"""The flow from one input to one output, judged: edges that no stack of the expected relations allows, and
edges that are missing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from erlangen.audit.expect import AtMost, Expectation, Expected, bind_expected, bound_of, expected_of, overall
from erlangen.audit.findings import Finding
from erlangen.audit.identify import describe, words
from erlangen.audit.inputs import Content
from erlangen.audit.measure import Measured
from erlangen.audit.streams import predict
from erlangen.audit.support import Support
from erlangen.audit.verdict import kept, kind_of, real_of
from erlangen.audit.witnesses.flow import Flow
from erlangen.errors import ErlangenError
from erlangen.relations import Batch, Full, Identity, Neighborhoods, PerHead, Relation

WHOLE = "the whole model"
SHARP = 1e-4
"""Where rows move by more than this just beside a missing edge, the edge is missing and not merely small."""


@dataclass(eq=False)
class FlowVerdict:
    """The flow from one input to one output, held against the calls and the expectation."""

    flow: Flow
    role: str
    """"own": rows are the positions of this input. "mapped": they are positions at another rate. "pooled": no
    rows. "foreign": rows are positions of another sequence. "inner": rows seen inside the model, before a
    pooled output. "labels": only a loss may read it."""
    where: str = "given"
    predicted: tuple[Neighborhoods, ...] | None = None
    """What the kernel relations with residuals let each item's rows read; None when they do not compose."""
    outside_attention: tuple[Neighborhoods, ...] | None = None
    missing: tuple[Neighborhoods, ...] | None = None
    counterexample: Finding | None = None
    fast_path: tuple[int, int, int] | None = None
    """(item, row, position) of the first edge that differs when the model is observed."""
    real: np.ndarray | None = None
    """The real rows of each item, where padding is marked."""
    real_keys: np.ndarray | None = None
    """The real positions of each item of the input that is read."""
    settled: list[tuple[str, Finding | None, str | None]] = field(default_factory=list)
    """What was compared: (what, the finding if it is broken, the reason if it is open)."""
    notes: list[str] = field(default_factory=list)

    @property
    def square(self) -> bool:
        """Whether output rows and input positions are the same sequence."""
        return self.role == "own"

    @cached_property
    def relation(self) -> Relation | PerHead | Batch:
        """The measured dependence, as the simplest expression equal at this size."""
        return self._described(self.flow.relations)

    @cached_property
    def predicted_relation(self) -> Relation | PerHead | Batch | None:
        """What the kernel relations predict, as the simplest expression; None when they do not compose."""
        return None if self.predicted is None else self._described(self.predicted)

    def meaningful(self, bound: Neighborhoods, item: int) -> Neighborhoods:
        """The edges of real rows: what becomes of padding rows carries no meaning."""
        return kept(bound, self.real, item)

    def _described(self, items: tuple[Neighborhoods, ...]) -> Relation | PerHead | Batch:
        rows = None
        if self.real is not None and self.real.shape[-1] == items[0].queries:
            rows = [None if row.all() else np.flatnonzero(row) for row in self.real]
        return describe(Support(tuple((bound,) for bound in items)), rows)

    def text(self, item: int = 0) -> str:
        """The measured dependence of one item in words."""
        if not self.flow.complete:
            return (
                f"a flow seen at {len(self.flow.positions or ())} of {self.flow.relations[0].keys} positions"
            )
        rows = None if self.real is None else np.flatnonzero(self.real[min(item, len(self.real) - 1)])
        return words(self.flow.relations[item], None, rows)

    @cached_property
    def bias(self) -> str | None:
        """The kind of the measured dependence, where items agree on one."""
        kinds = {kind_of(bound) for bound in set(self.flow.relations)}
        return kinds.pop() if len(kinds) == 1 else None

    @cached_property
    def future_edges(self) -> int | None:
        """On how many later positions rows depend, in any item; None between different sequences."""
        if not self.square:
            return None
        every = Support((self.flow.relations,)).of_item(0).edges()
        return int((every[:, 1] > every[:, 0]).sum())

    # -------------------------------------------------------------------------- settling

    @property
    def name(self) -> str:
        """The flow, in words."""
        return f"{self.flow.content} -> {self.flow.output or 'output'}"

    def held(self, what: str) -> None:
        """Compared, and as it must be."""
        self.settled.append((f"{self.name}: {what}", None, None))

    def broken(self, what: str, finding: Finding) -> None:
        """Compared, and not as it must be."""
        self.settled.append((f"{self.name}: {what}", finding, None))
        if self.counterexample is None and finding.kind in ("edge", "padding"):
            self.counterexample = finding

    def opened(self, what: str, reason: str) -> None:
        """Not compared."""
        self.settled.append((f"{self.name}: {what}", None, reason))

    def found(self, **fields: Any) -> Finding:
        """A finding about this flow."""
        usual: dict[str, Any] = {"kind": "edge", "module": WHOLE, "where": self.where}
        return Finding(**(usual | fields), content=self.flow.content, output=self.flow.output or None)


@dataclass(frozen=True, eq=False)
class Scene:
    """Everything that flows of one feeding are judged by."""

    label: str
    calls: list[Measured]
    covered: bool
    """Whether every attention call was explained and is one of positions."""
    contents: list[Content]
    expect: Expectation
    real: dict[str, np.ndarray | None]
    exact: bool = True
    """Whether missing edges count: not in low precision, where a small dependence vanishes."""
    steps: Callable[[Content, Neighborhoods], tuple[str, Any] | None] | None = None
    """Looks inside the model for the steps in which a hidden stack reads: see `erlangen.audit.inside`."""
    own_padding: bool = False
    """Whether the padding was added by the audit, and not given."""
    base: list[Measured] = field(default_factory=list)
    """The calls on the given inputs: layers dropped in training are still expected to read no more than
    these."""
    seen: list[Neighborhoods] = field(default_factory=list)
    """For each item, what any output of this sequence reads: an output of inner states may read less."""
    awake: Callable[[Content, str], Flow | None] | None = None
    """The flow where nothing hides it: in double precision with small activations (a saturated softmax hides
    edges) and with parameters that are all zero filled (a gate that starts at zero hides what it gates)."""


def role_of(flow: Flow, content: Content, contents: list[Content], output_rows: int) -> str:
    """What the rows of an output are to an input.

    Rows as many as positions are the same sequence, unless another input of that length fits better: the rows
    that move most with position j are then not rows j.
    """
    if flow.pooled or (output_rows == 1 and content.length > 1):
        return "pooled"
    if content.axis is None:
        return "foreign"
    n = content.length
    rivals = [
        one for one in contents if one.axis is not None and one.length == output_rows and one is not content
    ]
    if output_rows == n:
        return "own" if not rivals or _diagonal(flow) else "foreign"
    if rivals:
        return "foreign"
    if content is not next(one for one in contents if one.axis is not None):
        return "foreign"
    return "own" if content.patch is not None and 0 < output_rows - n <= 4 else "mapped"


def _diagonal(flow: Flow) -> bool:
    """Whether most rows move most with their own position."""
    if flow.sizes is None:
        return True
    sizes = np.nan_to_num(flow.sizes, posinf=1e300).max(axis=0)
    columns = np.arange(sizes.shape[1]) if flow.positions is None else np.asarray(flow.positions)
    moved = sizes[:, columns].any(axis=0)
    hits = sizes[:, columns].argmax(axis=0) == columns
    return bool(moved.any()) and float(hits[moved].mean()) > 0.5


def judge_flow(flow: Flow, content: Content, role: str, scene: Scene) -> FlowVerdict:
    """Hold a flow against the product of the calls' relations and against the expectation."""
    verdict = FlowVerdict(flow, role, scene.label)
    keys = scene.real.get(content.name)
    verdict.real_keys = keys if keys is not None and keys.shape[-1] == content.length else None
    if role in ("own", "inner"):
        verdict.real = verdict.real_keys
    elif role == "foreign":
        verdict.real = _rows_of_others(flow, content, scene)
    _compose(verdict, content, scene)
    _padding(verdict, scene)
    if role == "labels":
        _labels(verdict, scene)
    elif scene.expect is not None:
        if role in ("own", "inner"):
            _judge_own(verdict, content, scene)
        elif role == "mapped":
            _judge_mapped(verdict, scene)
        elif role == "foreign":
            _judge_foreign(verdict, content, scene)
    return verdict


def _rows_of_others(flow: Flow, content: Content, scene: Scene) -> np.ndarray | None:
    rows = flow.relations[0].queries
    return next(
        (
            scene.real[one.name]
            for one in scene.contents
            if one is not content
            and one.axis is not None
            and one.length == rows
            and scene.real.get(one.name) is not None
        ),
        None,
    )


def _compose(verdict: FlowVerdict, content: Content, scene: Scene) -> None:
    """What the measured calls predict, what flows beside them, and what they predict that is not seen."""
    flow, calls = verdict.flow, scene.calls
    if not (scene.covered and calls and flow.complete) or verdict.role in ("pooled", "labels", "mapped"):
        return

    def product(b: int, residual: bool) -> Neighborhoods | None:
        size = flow.relations[b].queries
        return predict(
            calls,
            scene.contents,
            content,
            size,
            lambda call: call.kernel.of_item(b),
            residual=residual,
            owner=content.name if verdict.role in ("own", "inner") else None,
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
    if verdict.role == "pooled" and scene.own_padding:
        return  # which row is pooled may follow the tokens and not the mask
    for b, seen in enumerate(verdict.flow.relations):
        padding = ~keys[min(b, len(keys) - 1)]
        edges = kept(seen, verdict.real, b).edges()
        if verdict.role == "mapped":
            edges = edges[_surely_real(verdict, b, seen.queries, seen.keys)[0][edges[:, 0]]]
        edges = edges[padding[edges[:, 1]]] if len(edges) else edges
        if len(edges):
            i, j = edges[0].tolist()
            row = "the output" if verdict.role == "pooled" else f"output row {i}"
            text = f"{row} depends on padding position {j}"
            finding = verdict.found(
                kind="padding", item=b, query=i, key=j, size=_size(verdict, b, i, j), detail=text
            )
            verdict.broken("padding", finding)
            return
    verdict.held("padding")


def _labels(verdict: FlowVerdict, scene: Scene) -> None:
    """Rows may not depend on labels at or behind them; a decoder is fed earlier ones (teacher forcing)."""
    flow = verdict.flow
    pooled = flow.pooled or flow.relations[0].queries == 1
    if pooled and (flow.whole_batch or flow.features == 1):
        verdict.held("labels")  # a loss, of the batch or of each item
        return
    if pooled:
        moved = next((b for b, seen in enumerate(flow.relations) if seen.num_edges), None)
        finding = None
        if moved is not None:
            text = f"{flow.output or 'the output'} depends on {flow.content}"
            finding = verdict.found(kind="labels", item=moved, detail=text)
        _settle(verdict, "labels", finding)
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
                "labels",
                verdict.found(
                    kind="labels", item=b, query=i, key=j, size=_size(verdict, b, i, j), detail=text
                ),
            )
            return
    verdict.held("labels")


# ------------------------------------------------------------------------------- own sequence


def _judge_own(verdict: FlowVerdict, content: Content, scene: Scene) -> None:
    flow = verdict.flow
    extra: Finding | None = None
    missing: Finding | None = None
    reason: str | None = None
    exact, text, by_calls = scene.exact, "", False
    for b, seen in enumerate(flow.relations):
        bound = _bounds(verdict, content, scene, b)
        if isinstance(bound, str):
            verdict.opened("extra and missing edges", bound)
            return
        upper, lower, expected, text, by_calls = bound
        exact = exact and not isinstance(expected, AtMost)
        over = kept(seen - upper, verdict.real, b)
        if over.num_edges and extra is None:
            extra = _edge(verdict, b, over, text, True)
        if lower is None or not exact or missing is not None:
            continue
        if b < len(scene.seen) and (scene.seen[b].queries, scene.seen[b].keys) == (seen.queries, seen.keys):
            seen = scene.seen[b]
        under = kept(_columns(lower, flow) - seen, verdict.real, b)
        if under.num_edges:
            found, why = _missing(verdict, content, scene, b, under, lower, text)
            missing, reason = found, reason or why
    # Beyond what the seen calls carry there may be a layer that was not seen and is right.
    step = _stepwise(verdict, content, scene, text, by_calls and extra is not None)
    if extra is not None and (step is not None or not _within_closure(verdict, content, scene)):
        _settle(verdict, "extra edges", step if isinstance(step, Finding) else extra)
    elif isinstance(step, str):
        verdict.opened("extra edges", step)
    else:
        _settle(verdict, "extra edges", step)
    if not exact:
        return
    # Missing edges of calls that were seen are found call by call; the flow shows whether they arrive at all.
    what = "attention reaches it" if by_calls else "missing edges"
    if missing is not None or reason is None:
        _settle(verdict, what, missing)
    else:
        verdict.opened(what, reason)


def _within_closure(verdict: FlowVerdict, content: Content, scene: Scene) -> bool:
    """Whether some number of steps of the one relation that is expected reads all that is seen."""
    for item, seen in enumerate(verdict.flow.relations):
        bound = _by_whole(verdict, content, scene, item)
        if isinstance(bound, str) or kept(seen - bound[0], verdict.real, item).num_edges:
            return False
    return True


def _settle(verdict: FlowVerdict, what: str, finding: Finding | None) -> None:
    if finding is None:
        verdict.held(what)
    else:
        verdict.broken(what, finding)


def _bounds(
    verdict: FlowVerdict, content: Content, scene: Scene, item: int
) -> tuple[Neighborhoods, Neighborhoods | None, Expected | None, str, bool] | str:
    """(what may be read, what must be read, the expectation, its text, whether from calls), or why not."""
    if scene.covered:
        found = _by_calls(verdict, content, scene, item, scene.calls)
        if found is None and scene.base is not scene.calls:
            found = _by_calls(verdict, content, scene, item, scene.base)
            # Layers may be dropped in training: then less is read.
            found = None if found is None else (found[0], None, *found[2:])
        if found is not None:
            return found
    return _by_whole(verdict, content, scene, item)


def _by_calls(
    verdict: FlowVerdict, content: Content, scene: Scene, item: int, calls: list[Measured]
) -> tuple[Neighborhoods, Neighborhoods | None, Expected | None, str, bool] | None:
    """What a stack of calls may read that are each as expected; None where they do not compose."""
    rows = verdict.flow.relations[item].queries
    relations = {call.index: expected_of(scene.expect, call) for call in calls}
    spoken = [relation for relation in relations.values() if relation is not None]
    if spoken:

        def union(call: Measured) -> Neighborhoods:
            relation = relations[call.index]
            if relation is None:
                return Full().on(call.queries, call.keys)
            mask = real_of(call.key_owner, call.keys, scene.real)
            keys = None if mask is None else mask[min(item, len(mask) - 1)]
            result = bind_expected(relation, call, item, 0, keys)
            for head in range(1, call.heads):
                result = result | bind_expected(relation, call, item, head, keys)
            return result

        product = predict(calls, scene.contents, content, rows, union, owner=content.name)
        if product is not None:
            names = list(dict.fromkeys(str(relation) for relation in spoken))
            text = f"layers of {', '.join(names)}"
            lower = None if verdict.role == "inner" else _some_reading(verdict, scene, product, item)
            return product, lower, spoken[0], text, True
    return None


def _by_whole(
    verdict: FlowVerdict, content: Content, scene: Scene, item: int
) -> tuple[Neighborhoods, Neighborhoods | None, Expected | None, str, bool] | str:
    """What any number of layers may read that are each as expected: their number is unknown."""
    rows = verdict.flow.relations[item].queries
    relation = overall(scene.expect)
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
        bound = _single(relation, item).on(rows, content.length)
        keys = verdict.real_keys
        closed = _closed(bound, _single(relation, item), rows)
    except ErlangenError as error:
        return f"{relation} cannot be held against {rows} rows of {verdict.flow.content}: {error}"
    if keys is not None:
        real = keys[min(item, len(keys) - 1)][None, :]
        closed = Neighborhoods.from_dense(closed.dense() & real) if closed.queries == rows else closed
        bound = Neighborhoods.from_dense(bound.dense() & real)
    text = f"layers of {relation}" if scene.calls else str(relation)
    return closed, bound, relation, text, False


def allowed(verdict: FlowVerdict, content: Content, scene: Scene, item: int) -> Neighborhoods | None:
    """What the rows of one item may read; None where that cannot be said."""
    bound = _bounds(verdict, content, scene, item)
    return None if isinstance(bound, str) else bound[0]


def _some_reading(
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


def _single(relation: Expected, item: int) -> Relation:
    """The relation of one item over all heads."""
    member: Any = bound_of(relation)
    if isinstance(member, Batch):
        member = member.members[item if len(member) > 1 else 0]
    if isinstance(member, PerHead):
        first, *rest = member.members
        for other in rest:
            first = first | other
        member = first
    return member


def _closed(bound: Neighborhoods, relation: Relation, rows: int) -> Neighborhoods:
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


def _columns(bound: Neighborhoods, flow: Flow) -> Neighborhoods:
    """The edges to positions that were changed."""
    if flow.positions is None:
        return bound
    tried = np.zeros(bound.keys, bool)
    tried[list(flow.positions)] = True
    return Neighborhoods.from_dense(bound.dense() & tried[None, :])


def _size(verdict: FlowVerdict, item: int, row: int, key: int) -> float | None:
    sizes = verdict.flow.sizes
    return None if sizes is None else float(sizes[item, row, key])


def _edge(verdict: FlowVerdict, item: int, edges: Neighborhoods, text: str, extra: bool) -> Finding:
    """The finding of the edge that moves most, for a leak of 1e-1 tells more than one of 1e-6."""
    pairs = edges.edges()
    best = 0
    if extra and verdict.flow.sizes is not None and not np.isnan(verdict.flow.sizes).any():
        sizes = verdict.flow.sizes[item][pairs[:, 0], pairs[:, 1]]
        best = 0 if sizes[0] > 1e-3 * sizes.max() else int(sizes.argmax())
    i, j = pairs[best].tolist()
    return verdict.found(
        expected=text,
        measured=verdict.text(item),
        item=item,
        query=i,
        key=j,
        extra=extra,
        size=_size(verdict, item, i, j) if extra else None,
    )


def _missing(
    verdict: FlowVerdict,
    content: Content,
    scene: Scene,
    item: int,
    under: Neighborhoods,
    lower: Neighborhoods,
    text: str,
) -> tuple[Finding | None, str | None]:
    """Whether edges that are not seen are missing (a finding), merely too small (a reason), or asleep
    (neither)."""
    flow = verdict.flow
    if verdict.role == "inner":
        return None, (
            f"{flow.output} is pooled, and the rows before it do not show all that is read: give a model "
            "that returns rows"
        )
    if scene.awake is not None:
        awake = scene.awake(content, flow.output)
        if awake is not None:
            left = kept(
                _columns(lower, flow) - awake.relations[min(item, len(awake.relations) - 1)],
                verdict.real,
                item,
            )
            if not left.num_edges:
                verdict.notes.append(
                    "not all that is expected is seen at these values; with small activations in double "
                    "precision, and other values for parameters that are zero, it is"
                )
                return None, None
            under = left
    seen = flow.relations[item]
    if not seen.num_edges:
        detail = f"{flow.output or 'the output'} depends on no position of {flow.content}"
        return verdict.found(kind="silent", item=item, expected=text, measured="Empty()", detail=detail), None
    if flow.sizes is not None and not _sharp(flow.sizes[item], seen, under):
        i, j = under.edges()[0].tolist()
        return None, (
            f"row {i} should depend on position {j} and is not seen to: dependences fade out there, smaller "
            "than rounding; try a shorter sequence, or double precision"
        )
    return _edge(verdict, item, under, text, False), None


def _sharp(sizes: np.ndarray, seen: Neighborhoods, under: Neighborhoods) -> bool:
    """Whether a missing edge lies beside one that is plainly seen, in its row or its column."""
    dense, scale = seen.dense(), float(np.nan_to_num(sizes, posinf=0).max()) or 1.0
    for i, j in under.edges()[:64].tolist():
        row = np.flatnonzero(dense[i])
        column = np.flatnonzero(dense[:, j])
        beside = [sizes[i, row[np.abs(row - j).argmin()]]] if row.size else [0.0]
        beside += [sizes[column[np.abs(column - i).argmin()], j]] if column.size else [0.0]
        if min(beside) > SHARP * scale:
            return True
    return False


def _stepwise(
    verdict: FlowVerdict, content: Content, scene: Scene, text: str, beyond: bool
) -> Finding | str | None:
    """Whether a hidden stack reads no more than the expected relation in each of its steps.

    Layers that could not be seen may be many: any power of the relation is then allowed of the outputs. How
    many steps the model takes is looked up inside it. None: as expected; a text: why that cannot be said.
    """
    relation = overall(scene.expect)
    spoken = any(expected_of(scene.expect, call) is not None for call in scene.calls)
    if (
        relation is None
        or (scene.covered and spoken and not beyond)
        or verdict.flow.relations[0].queries != content.length
    ):
        return None
    for item, seen in enumerate(verdict.flow.relations):
        one = _single(relation, item).on(content.length) | Identity().on(content.length)
        if kept(seen - one, verdict.real, item).num_edges == 0:
            continue
        if one.compose(one) == one:
            continue
        found = None if scene.steps is None else scene.steps(content, one)
        if found is None:
            return (
                f"the outputs read further than {relation} in one step, and how many layers there are could "
                "not be seen"
            )
        state, what = found
        if state == "open":
            return str(what)
        if state == "broken":
            event, row, key = what
            return verdict.found(
                expected=text, measured=verdict.text(item), item=item, query=row, key=key,
                origin=f"{event.module or 'the model'} ({event.kind})", source=event.source,
                detail=f"one step ({event.label}) reads further than {relation}",
            )  # fmt: skip
        return None
    return None


# ------------------------------------------------------------------------- other rates, other inputs


def _judge_mapped(verdict: FlowVerdict, scene: Scene) -> None:
    """Rows at another rate than positions: held against the relation of rows, position by the row it falls
    into."""
    flow, relation = verdict.flow, overall(scene.expect)
    if relation is None:
        spoken = [r for r in (expected_of(scene.expect, call) for call in scene.calls) if r is not None]
        relation = spoken[0] if spoken and all(r == spoken[0] for r in spoken) else None
    rows, n = flow.relations[0].queries, flow.relations[0].keys
    if relation is None:
        verdict.opened(
            "extra and missing edges", f"{rows} rows for {n} positions: expect one relation of all calls"
        )
        return
    if not _follows_ratio(flow):
        verdict.opened(
            "extra and missing edges",
            f"{rows} rows for {n} positions, and which row belongs to which position could not be told: "
            "return one row for each position",
        )
        return
    for b, seen in enumerate(flow.relations):
        try:
            one = _single(relation, b).on(rows)
            allowed = _closed(one, _single(relation, b), rows).dense()
        except ErlangenError as error:
            verdict.opened(
                "extra and missing edges", f"{relation} cannot be held against {rows} rows: {error}"
            )
            return
        real_rows, real_keys = _surely_real(verdict, b, rows, n)
        over = (seen.dense() & ~allowed[:, np.arange(n) * rows // n]) & real_rows[:, None]
        if over.any():
            finding = _edge(verdict, b, Neighborhoods.from_dense(over), str(relation), True)
            verdict.broken("extra edges", finding)
            return
        if isinstance(relation, AtMost) or not scene.exact or one.num_edges != rows * rows:
            continue
        under = _columns(Neighborhoods.from_dense(real_rows[:, None] & real_keys[None, :]), flow) - seen
        if under.num_edges and not _all_reached(seen, real_rows, flow):
            verdict.broken("missing edges", _edge(verdict, b, under, str(relation), False))
            return
    verdict.held(f"extra edges, {rows} rows for {n} positions")


def _follows_ratio(flow: Flow) -> bool:
    """Whether most positions move the row most that they fall into, where all rows are spread evenly."""
    if flow.sizes is None:
        return False
    sizes = np.nan_to_num(flow.sizes, posinf=1e300).max(axis=0)
    rows, n = sizes.shape
    columns = np.arange(n) if flow.positions is None else np.asarray(flow.positions)
    moved = sizes[:, columns].any(axis=0)
    at = sizes[:, columns].argmax(axis=0)
    near = np.abs(at - columns * rows // n) <= (rows // n if rows > n else 0) + (
        n % rows != 0 if n > rows else 0
    )
    return bool(moved.any()) and float(near[moved].mean()) > 0.5


def _surely_real(verdict: FlowVerdict, item: int, rows: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and positions that are real and do not border on padding, where a row may see both."""
    keys = verdict.real_keys
    if keys is None:
        return np.ones(rows, bool), np.ones(n, bool)
    real = keys[min(item, len(keys) - 1)]
    by_row = np.array(
        [real[r * n // rows : max((r + 1) * n // rows, r * n // rows + 1)].all() for r in range(rows)]
    )
    if by_row.all():
        return by_row, real
    inner = by_row.copy()
    inner[:-1] &= by_row[1:]
    inner[1:] &= by_row[:-1]
    return inner, real & np.repeat(inner, n // rows) if n % rows == 0 else real


def _all_reached(seen: Neighborhoods, rows: np.ndarray, flow: Flow) -> bool:
    """Whether the rows agree on what they read, and read most of it: at another rate a few positions (a rest,
    a border) may be read by nobody."""
    columns = np.arange(seen.keys) if flow.positions is None else np.asarray(flow.positions)
    dense = seen.dense()[rows][:, columns]
    agree = bool((dense.all(axis=0) | ~dense.any(axis=0)).all())
    return agree and float(dense.mean()) > 0.5


def _read_across(content: Content, scene: Scene) -> bool:
    """Whether a cross-attention call was seen to read this input."""
    return any(call.kind == "cross" and content.name in call.key_inputs for call in scene.calls)


def _judge_ambiguous(verdict: FlowVerdict, content: Content, scene: Scene) -> None:
    """As many positions as rows, yet rows do not follow them: another sequence, or this one, read wrongly."""
    if _within_closure(verdict, content, scene):
        verdict.held("extra edges")
        return
    verdict.opened(
        "extra edges",
        f"{content.name} has as many positions as there are rows, which read it otherwise than expected: if "
        f"it is another sequence, of which anything may be read, say content=[...] without {content.name!r}",
    )


def _judge_foreign(verdict: FlowVerdict, content: Content, scene: Scene) -> None:
    """Rows of another sequence: what cross-attention may read, where the expectation speaks of it."""
    relations = {call.index: expected_of(scene.expect, call) for call in scene.calls}
    crossing = [call for call in scene.calls if call.kind == "cross" and relations[call.index] is not None]
    rows = verdict.flow.relations[0].queries
    if content.axis is not None and content.length == rows and not _read_across(content, scene):
        _judge_ambiguous(verdict, content, scene)
        return
    if not (scene.covered and crossing) or content.axis is None:
        verdict.notes.append(f"nothing is expected of reading {content.name}, which is another sequence")
        return
    for b, seen in enumerate(verdict.flow.relations):

        def union(call: Measured, b: int = b) -> Neighborhoods:
            relation = relations[call.index]
            if relation is None:
                return Full().on(call.queries, call.keys)
            result = bind_expected(relation, call, b, 0, None)
            for head in range(1, call.heads):
                result = result | bind_expected(relation, call, b, head, None)
            return result

        product = predict(scene.calls, scene.contents, content, seen.queries, union)
        if product is None:
            verdict.notes.append(f"the calls between {content.name} and the output do not compose")
            return
        over = kept(seen - product, verdict.real, b)
        if over.num_edges:
            names = ", ".join(dict.fromkeys(str(r) for r in relations.values() if r is not None))
            verdict.broken("extra edges", _edge(verdict, b, over, f"layers of {names}", True))
            return
    verdict.held("extra edges")

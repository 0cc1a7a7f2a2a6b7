"""One architecture, measured: what its attention calls read, and whether that is what it is said to be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import numpy as np
from torch import nn

from erlangen.audit.api import audit
from erlangen.audit.report import Report
from erlangen.audit.verdict import CallVerdict
from erlangen.errors import DataError, ParameterError
from erlangen.relations import FromMask, Neighborhoods, Relation
from erlangen.taxonomy import classify
from erlangen.taxonomy.table1 import TABLE1

CLAIMS = {
    "graph-based": "graph",
    "self-attention": "full",
    "masked": "total-order",
    "sparse": "sparse",
    "strided": "previous",
    "encoder-decoder": "bipartite",
}
"""The types of attention that Table 2 names, and the kinds of relation that Table 1 says they are."""

YES_NO = {True: "yes", False: "no", None: "open"}
"""Whether a claim agrees with what was measured, in a word."""
CHANGES = "dynamic"
"""Table 1's word for the symmetry of a relation that changes with the instance."""


@dataclass(frozen=True)
class Implementation:
    """An implementation of an architecture; `build` gives a small model and the inputs to audit it on."""

    name: str
    library: str
    build: Callable[[], tuple[nn.Module, Any]]


@dataclass(frozen=True)
class Architecture:
    """A row of Table 2: the model, the type of attention it is said to have, and who implements it."""

    model: str
    claimed: str
    implementations: tuple[Implementation, ...]

    def __post_init__(self) -> None:
        if self.claimed not in CLAIMS:
            raise ParameterError(
                f"{self.model}: claimed must be one of {', '.join(CLAIMS)}; got {self.claimed!r}"
            )


@dataclass(frozen=True, eq=False)
class Call:
    """One attention call of a model, on every instance it was given."""

    module: str
    between: str
    """`self`, or `cross` when the keys come from another sequence than the queries."""
    relations: tuple[str, ...]
    """What is read, on each instance: the simplest expression equal at this size."""
    kind: str | None
    """The row of Table 1 (`full`, `total-order`, ...); None where the heads are of different kinds."""
    symmetry: str | None
    heads: int
    varies: str | None
    """What the relation depends on besides the sizes; None if nothing."""
    bounds: tuple[Neighborhoods, ...]
    """On each instance the relation of the first item and head, for the picture."""
    by_head: tuple[Neighborhoods, ...]
    """On the first instance the relation of every head of the first item."""

    @property
    def relation(self) -> str:
        """What is read; of a relation that varies, on each instance."""
        listed = " or ".join(dict.fromkeys(self.relations))
        return f"{listed}, by instance" if self.varies else listed

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "module": self.module,
            "between": self.between,
            "queries": self.bounds[0].queries,
            "keys": self.bounds[0].keys,
            "heads": self.heads,
            "relations": list(self.relations),
            "kind": self.kind,
            "symmetry": self.symmetry,
            "depends": self.varies,
        }


@dataclass(frozen=True, eq=False)
class Measurement:
    """What the audit of one implementation measured, or why there is none."""

    name: str
    calls: tuple[Call, ...] = ()
    unexplained: tuple[str, ...] = ()
    missing: str | None = None
    """Why the implementation was not measured."""
    strides: tuple[str, ...] = ()
    """Modules that take steps of more than one: where a stride may really be."""

    @property
    def kinds(self) -> Counter[str]:
        """How many calls are of each kind."""
        return Counter(str(call.kind) for call in self.calls)

    def lines(self) -> list[tuple[str, str, str]]:
        """(calls, relation, symmetry) in words, equal calls together: `2 self`, `Full()`, `S12`."""
        if self.missing is not None:
            return [("", self.missing, "")]
        counted = Counter((call.between, call.relation, str(call.symmetry)) for call in self.calls)
        listed = [(f"{n} {between}", relation, group) for (between, relation, group), n in counted.items()]
        return listed + [("1 not explained", text, "") for text in self.unexplained]

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "name": self.name,
            "calls": [call.as_dict() for call in self.calls],
            "kinds": dict(self.kinds),
            "unexplained": list(self.unexplained),
            "missing": self.missing,
        }


@dataclass(frozen=True, eq=False)
class Outcome:
    """A row of Table 2 with what was measured; `agrees` is None where too little was seen to say."""

    architecture: Architecture
    implementations: tuple[Measurement, ...]
    agrees: bool | None = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "agrees", agreement(self.architecture.claimed, self.implementations))

    @property
    def measured(self) -> tuple[str, ...]:
        """The distinct relations of all calls, as `self: Full()`."""
        calls = [call for one in self.implementations for call in one.calls]
        return tuple(dict.fromkeys(f"{call.between}: {call.relation}" for call in calls))

    @property
    def why(self) -> str:
        """The verdict in words, from what was counted."""
        return reason(self.architecture.claimed, self.implementations, self.agrees)

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "model": self.architecture.model,
            "claimed": self.architecture.claimed,
            "claimed_kind": CLAIMS[self.architecture.claimed],
            "measured": list(self.measured),
            "agrees": self.agrees,
            "why": self.why,
            "implementations": [one.as_dict() for one in self.implementations],
        }


def agreement(claimed: str, measurements: tuple[Measurement, ...]) -> bool | None:
    """Whether every attention call of every measured implementation is of the claimed kind.

    One call of another kind refutes the claim. A call that was seen but not explained, or no call at all,
    leaves it open.

    >>> agreement("masked", (Measurement("a model that is not installed", missing="not installed"),)) is None
    True
    """
    seen = [m for m in measurements if m.missing is None]
    kinds = {call.kind for m in seen for call in m.calls}
    if kinds - {CLAIMS[claimed]}:
        return False
    return True if kinds and not any(m.unexplained or not m.calls for m in seen) else None


def reason(claimed: str, measurements: tuple[Measurement, ...], agrees: bool | None) -> str:
    """Why a claim holds, does not, or stays open, in numbers of calls."""
    seen = [m for m in measurements if m.missing is None]
    counts = sum((m.kinds for m in seen), Counter[str]())
    total, right = sum(counts.values()), counts[CLAIMS[claimed]]
    if agrees:
        return f"all {total} attention calls are {_told(CLAIMS[claimed])}"
    if agrees is None:
        open_calls = sum(len(m.unexplained) for m in seen)
        return (
            f"{open_calls} attention calls were seen and not explained"
            if open_calls
            else "nothing was measured"
        )
    others = ", ".join(
        f"{n} {'is' if n == 1 else 'are'} {_told(kind)}"
        for kind, n in counts.items()
        if kind != CLAIMS[claimed]
    )
    text = f"{right or 'none'} of {total} attention calls {'are' if right > 1 else 'is'} {claimed}: {others}"
    strides = dict.fromkeys(s for m in seen for s in m.strides)
    if claimed == "strided" and strides:
        text += f"; the stride is in {', '.join(strides)}, not in attention"
    return text


def _told(kind: str) -> str:
    row = TABLE1.get(kind)
    return "of several kinds" if row is None else f"{row.mechanism} ({row.relations})"


def measure(implementation: Implementation) -> Measurement:
    """Audit one implementation; a library that is not installed is said, not guessed about."""
    return examine(implementation, flow=False)[0]


def examine(implementation: Implementation, *, flow: bool = True) -> tuple[Measurement, Report | None]:
    """What `measure` says, and the report of the audit that it was read from; None where nothing was audited.

    With `flow` the report also has what the outputs depend on.
    """
    if find_spec(implementation.library) is None:
        return Measurement(implementation.name, missing=f"{implementation.library} is not installed"), None

    try:
        model, inputs = implementation.build()
    except DataError as error:
        return Measurement(implementation.name, missing=str(error)), None
    report = audit(model, inputs, variants=False, flow=flow)
    instances = [report.calls, *(trial.calls for trial in report.trials if trial.skipped is None)]
    found = Measurement(
        implementation.name,
        tuple(_call(calls, report.data_dependent) for calls in zip(*instances, strict=True)),
        tuple(f"{one.module}: {one.reason}" for one in report.coverage.unexplained),
        strides=_strides(model),
    )
    return found, report


def _call(calls: tuple[CallVerdict, ...], varying: dict[str, str]) -> Call:
    first = calls[0]
    varies = varying.get(first.module)
    classified = [classify(_joint(bound, first.kind)) for bound in first.measured.kernel.unique]
    kinds, groups = {one.kind for one in classified}, {_group(one.symmetry) for one in classified}
    return Call(
        first.module,
        first.kind,
        tuple(_text(call) for call in calls),
        # Table 1: what changes with the instance is graph attention, whatever it is for one of them.
        "graph" if varies else kinds.pop() if len(kinds) == 1 else None,
        CHANGES if varies else groups.pop() if len(groups) == 1 else None,
        first.heads,
        varies,
        tuple(call.measured.kernel.items[0][0] for call in calls),
        tuple(first.measured.kernel.items[0]),
    )


def _text(call: CallVerdict) -> str:
    """The relation; where it is no expression, how many keys its queries read."""
    if isinstance(call.kernel, Relation) and not isinstance(call.kernel, FromMask):
        return str(call.kernel)
    degrees = {int(d) for bound in call.measured.kernel.unique for d in bound.degrees}
    counted = " to ".join(str(d) for d in sorted({min(degrees), max(degrees)}))
    return f"{counted} of {call.keys} keys for each query"


def _group(symmetry: Any) -> str | None:
    name = getattr(symmetry, "name", None)
    return "trivial" if name == "1" else name


def _joint(bound: Neighborhoods, between: str) -> Neighborhoods:
    """Between two sequences: the relation on both together, keys first, as Table 1 has encoder-decoder."""
    if between == "self":
        return bound
    size = bound.keys + bound.queries
    return Neighborhoods.from_edges(size, size, bound.edges() + np.array([bound.keys, 0]))


def _strides(model: nn.Module) -> tuple[str, ...]:
    found = []
    for name, module in model.named_modules():
        steps = getattr(module, "stride", None)
        if isinstance(steps, tuple) and max(steps) > 1:
            found.append(f"{name} ({type(module).__name__}, stride {max(steps)})")
    return tuple(found)

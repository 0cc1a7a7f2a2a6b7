"""`compare`: do two models, backends or modes compute the same relations? If not, the edges that differ."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from erlangen.audit.decoding import cached_sides
from erlangen.audit.inputs import Inputs, contents, real_positions
from erlangen.audit.measure import Measured, observe
from erlangen.audit.state import untouched
from erlangen.audit.verdict import CallVerdict, judge_call
from erlangen.audit.witnesses.flow import flow as measure_flow
from erlangen.errors import ParameterError
from erlangen.relations import Neighborhoods

BACKENDS = {"flex": "flex_attention"}
"""Short names of backends -> the names that transformers gives them."""
MODES = {"eval": False, "train": True}


@dataclass(frozen=True)
class Difference:
    """Where two sides compute different relations: the first edge, and how many there are."""

    module: str
    sides: tuple[str, str]
    item: int
    head: int | None
    query: int
    key: int
    reader: str
    """The side that reads the edge; the other one does not."""
    edges: int

    def __str__(self) -> str:
        head = "" if self.head is None else f", head {self.head}"
        other = self.sides[self.sides[0] == self.reader]
        return (
            f"{self.module or 'the model'}, item {self.item}{head}: edge ({self.query}, {self.key}) "
            f"is read by {self.reader}, not by {other}; {self.edges} edges differ"
        )


@dataclass(frozen=True)
class Comparison:
    """What `compare` found: true when all sides compute the same relations; its text shows what differs."""

    sides: tuple[str, ...]
    calls: int
    differences: tuple[Difference, ...]
    unmatched: tuple[str, ...]
    """What could not be compared: calls without a counterpart of the same shape, calls not explained."""

    @property
    def same(self) -> bool:
        """Whether every call was matched and every relation is the same."""
        return not self.differences and not self.unmatched

    def __bool__(self) -> bool:
        return self.same

    def __str__(self) -> str:
        head = f"{' / '.join(self.sides)}: {'the same relations' if self.same else 'not the same relations'}"
        return "\n".join(
            [
                f"{head} ({self.calls} attention call{'s' * (self.calls != 1)})",
                *map(str, self.differences),
                *self.unmatched,
            ]
        )


def compare(
    model: nn.Module,
    *given: Any,
    backends: Sequence[str] | None = None,
    modes: Sequence[str] | None = None,
    decode: int | None = None,
    flow: bool = True,
) -> Comparison:
    """Do two sides compute the same relations, call by call, head by head? One of four questions:

    - `compare(model_a, model_b, inputs)`: two models, matched call by call in the order of execution;
    - `compare(model, inputs, backends=["eager", "sdpa", "flex"])`: one transformers model, rebuilt with each
      backend and the same weights;
    - `compare(model, inputs, modes=["eval", "train"])`: one model in both modes;
    - `compare(model, inputs, decode=p)`: a causal model read at once, against p positions first and the rest
      behind its cache, both in one chunk and one position at a time.

    The relation of a call is what its kernel reads (see `audit`). Rows of padding queries do not count. With
    `flow` the dependence of the outputs on the inputs is compared as well, which also sees what lies outside
    attention. The first side is the one that the others are held against.

    >>> class Masked(nn.Module):
    ...     def __init__(self, lookback):
    ...         super().__init__()
    ...         self.mask = torch.ones(5, 5, dtype=torch.bool).tril().triu(-lookback)
    ...     def forward(self, x):
    ...         return nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=self.mask)
    >>> print(compare(Masked(2), Masked(3), torch.randn(1, 5, 8), flow=False))
    first / second: not the same relations (1 attention call)
    the model, item 0: edge (3, 0) is read by second, not by first; 2 edges differ
    """
    asked = [backends is not None, modes is not None, decode is not None]
    if sum(asked) > 1 or len(given) != (1 if any(asked) else 2) or not isinstance(model, nn.Module):
        raise ParameterError(
            "compare takes (model_a, model_b, inputs), or (model, inputs) and one of backends, modes, decode"
        )
    inputs = Inputs.of(given[-1])
    if decode is not None:
        return _judge(cached_sides(model, inputs, decode), [], [])
    sides: list[tuple[str, nn.Module, bool]]
    if backends is not None:
        sides = [(name, _with_backend(model, name), False) for name in backends]
    elif modes is not None:
        unknown = [mode for mode in modes if mode not in MODES]
        if unknown:
            raise ParameterError(f"modes are 'eval' and 'train', got {unknown[0]!r}")
        sides = [(mode, model, MODES[mode]) for mode in modes]
    else:
        if not isinstance(given[0], nn.Module):
            raise ParameterError(f"compare: model_b must be a torch.nn.Module, got {type(given[0]).__name__}")
        sides = [("first", model, False), ("second", given[0], False)]
    if len(sides) < 2:
        raise ParameterError(f"compare needs two sides at least, got {[side[0] for side in sides]}")
    measured, unexplained = [], []
    for name, one, train in sides:
        calls, problems = _observed(one, inputs, train)
        measured.append((name, calls))
        unexplained += [f"{name}: {problem}" for problem in problems]
    flows = []
    if flow and modes is None:
        flows = [(name, _flow(one, inputs)) for name, one, _ in sides]
    return _judge(measured, flows, unexplained)


def _observed(model: nn.Module, inputs: Inputs, train: bool) -> tuple[list[CallVerdict], list[str]]:
    """The calls of one side, and what was seen but could not be explained."""
    found = contents(model, inputs)
    batch = found[0].batch if found else 1
    real = {content.name: real_positions(model, inputs, content) for content in found}
    with untouched(model) as snapshot:
        model.train(train)
        seen = observe(model, inputs, batch, snapshot.random)
    return [judge_call(call, None, real, "given") for call in seen.calls], [
        f"{one.module or 'the model'}: {one.reason}" for one in seen.unexplained
    ]


def _flow(model: nn.Module, inputs: Inputs) -> list[tuple[str, tuple[Neighborhoods, ...], Any]]:
    """(input, what each item's rows depend on, real rows) for every input with positions."""
    with untouched(model):
        model.eval()
        return [
            (
                content.name,
                measure_flow(model, inputs, content).relations,
                real_positions(model, inputs, content),
            )
            for content in contents(model, inputs)
        ]


def _with_backend(model: nn.Module, name: str) -> nn.Module:
    """A copy of a transformers model that uses another attention backend."""
    config: Any = getattr(model, "config", None)
    build: Any = getattr(type(model), "_from_config", None)
    if config is None or build is None:
        raise ParameterError(
            f"backends is for transformers models; {type(model).__name__} has no configuration to rebuild it "
            "from. Build both and call compare(model_a, model_b, inputs)"
        )
    wanted = BACKENDS.get(name, name)
    with torch.random.fork_rng(devices=[]):
        try:
            other = build(copy.deepcopy(config), attn_implementation=wanted)
        except (ValueError, ImportError, TypeError) as error:
            raise ParameterError(f"{type(model).__name__} has no backend {name!r}: {error}") from error
    used = getattr(other.config, "_attn_implementation", None)
    if used != wanted:
        # Comparing a backend with itself would prove nothing.
        raise ParameterError(f"{type(model).__name__} was asked for backend {name!r} and took {used!r}")
    first = next(model.parameters(), torch.zeros(()))
    other.to(device=first.device, dtype=first.dtype).load_state_dict(model.state_dict())
    return other.train(model.training)


def _judge(
    sides: list[tuple[str, list[CallVerdict]]], flows: list[tuple[str, Any]], unexplained: list[str]
) -> Comparison:
    differences: list[Difference] = []
    unmatched = list(unexplained)
    (first, base), *others = sides
    if not base and not any(parts for _, parts in flows):
        unmatched.append("nothing was compared: no attention call was seen and no flow measured")
    for name, calls in others:
        if len(calls) != len(base):
            unmatched.append(f"{first} has {len(base)} attention calls, {name} has {len(calls)}")
            continue
        for mine, theirs in zip(base, calls, strict=True):
            if _shape(mine.measured) != _shape(theirs.measured):
                unmatched.append(
                    f"{_named(mine, theirs)}: {first} has heads x queries x keys {_shape(mine.measured)}, "
                    f"{name} has {_shape(theirs.measured)}"
                )
                continue
            found = _first(mine, theirs, (first, name))
            differences += [found] if found is not None else []
    for name, theirs in flows[1:]:
        for (content, a, real), (_, b, _) in zip(flows[0][1], theirs, strict=True):
            pairs = [((x,), (y,)) for x, y in zip(a, b, strict=True)]
            found = _first_edge(f"the flow from {content}", (first, name), pairs, real)
            differences += [found] if found is not None else []
    return Comparison(tuple(name for name, _ in sides), len(base), tuple(differences), tuple(unmatched))


def _shape(call: Measured) -> tuple[int, int, int]:
    return call.heads, call.queries, call.keys


def _named(mine: CallVerdict, theirs: CallVerdict) -> str:
    return mine.module if mine.module == theirs.module else f"{mine.module} / {theirs.module}"


def _first(mine: CallVerdict, theirs: CallVerdict, sides: tuple[str, str]) -> Difference | None:
    a, b = mine.measured.kernel.items, theirs.measured.kernel.items
    count = max(len(a), len(b))
    pairs = [(a[min(i, len(a) - 1)], b[min(i, len(b) - 1)]) for i in range(count)]
    return _first_edge(_named(mine, theirs), sides, pairs, mine.real_queries)


def _first_edge(
    module: str,
    sides: tuple[str, str],
    pairs: Sequence[tuple[tuple[Neighborhoods, ...], tuple[Neighborhoods, ...]]],
    real: np.ndarray | None,
) -> Difference | None:
    """The first edge that only one side reads, in a row of a real query; all such edges are counted."""
    first: tuple[int, int, int, int, str] | None = None
    count, heads_differ = 0, False
    for item, (mine, theirs) in enumerate(pairs):
        heads_differ = heads_differ or len(set(mine)) > 1 or len(set(theirs)) > 1
        for head, (a, b) in enumerate(zip(mine, theirs, strict=True)):
            if a == b:
                continue
            edges = (a ^ b).edges()
            if real is not None and real.shape[-1] == a.queries:
                edges = edges[real[min(item, len(real) - 1)][edges[:, 0]]]
            count += len(edges)
            if len(edges) and first is None:
                i, j = edges[0].tolist()
                first = item, head, i, j, sides[0] if bool(a.contains(i, j)) else sides[1]
    if first is None:
        return None
    item, head, i, j, reader = first
    return Difference(module, sides, item, head if heads_differ else None, i, j, reader, count)

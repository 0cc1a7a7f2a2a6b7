"""`compare`: do two models, backends, modes or ways of reading compute the same? If not, what differs."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from erlangen.audit.arguments.reading import contents, read, real_positions
from erlangen.audit.comparing.closeness import OutputDifference, Outputs, Rows, difference_of, nudged, rows_of
from erlangen.audit.comparing.decoding import Step, decoded, transformers_step
from erlangen.audit.comparing.differences import (
    ITEMS,
    ROWS_BEFORE,
    ROWS_INSIDE,
    Comparison,
    Difference,
    Flows,
    FlowSide,
    Side,
    judge,
)
from erlangen.audit.flow_rules.inside import Inside
from erlangen.audit.inputs import Content, Inputs
from erlangen.audit.observed import Measured, observe
from erlangen.audit.outputs import output_tensors
from erlangen.audit.state import untouched
from erlangen.audit.witnesses.flow import batch_leaks, measure
from erlangen.audit.witnesses.runs import Mode, Runner
from erlangen.errors import ErlangenError, ParameterError
from erlangen.relations import Full, Identity, Neighborhoods

__all__ = ["Comparison", "Difference", "compare"]

BACKENDS = {"flex": "flex_attention"}
"""Short names of backends -> the names that transformers gives them."""
MODES = {"eval": False, "train": True}
UNSEEN = "the output has no rows, and no tensor with rows was seen before it: give models that return rows"


def compare(
    model: nn.Module,
    *given: Any,
    backends: Sequence[str] | None = None,
    modes: Sequence[str] | None = None,
    decode: int | Step | None = None,
    prompt: int | None = None,
    flow: bool = True,
) -> Comparison:
    """Do two sides compute the same relations, call by call, head by head? One of four questions:

    - `compare(model_a, model_b, inputs)`: two models, matched call by call in the order of execution;
    - `compare(model, inputs, backends=["eager", "sdpa", "flex"])`: one transformers model, rebuilt with each
      backend and the same weights;
    - `compare(model, inputs, modes=["eval", "train"])`: one model in both modes;
    - `compare(model, inputs, decode=p)`: a causal model read at once, against p positions first and the rest
      behind its cache, both in one chunk and one position at a time. The cache is that of transformers:
      `past_key_values` with `use_cache=True`. For any other model `decode` is a function,
      `step(model, part, state) -> (output, state)`: `part` are the inputs cut to the positions of this step
      (masks reach back to the first key), `state` is None where a sequence begins and otherwise what the last
      step returned. `prompt` positions come first, half of the sequence unless it says otherwise.

    The relation of a call is what its kernel reads (see `audit`); the finite biases that it adds are compared
    too, by their form, slopes and lowest log-weight. Rows of padding queries do not count. With `flow` the
    dependence of the outputs on the inputs is compared, in each mode, which also sees what lies outside
    attention. Backends, and reading at once and in steps, must also give the same outputs up to rounding. The
    first side is the one that the others are held against.

    >>> class Masked(nn.Module):
    ...     def __init__(self, lookback):
    ...         super().__init__()
    ...         self.mask = torch.ones(5, 5, dtype=torch.bool).tril().triu(-lookback)
    ...     def forward(self, x):
    ...         return nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=self.mask)
    >>> print(compare(Masked(2), Masked(3), torch.randn(1, 5, 8), flow=False))
    first / second: not the same relations (1 attention call)
    the model, item 0: edge (3, 0) is read by second, not by first; 2 edges differ

    A model with a cache of its own, and the function that reads on behind it:

    >>> class Reader(nn.Module):
    ...     def forward(self, x, before=None):
    ...         keys = x if before is None else torch.cat([before, x], dim=1)
    ...         new, every = x.shape[1], keys.shape[1]
    ...         mask = torch.ones(new, every, dtype=torch.bool).tril(every - new)
    ...         return nn.functional.scaled_dot_product_attention(x, keys, keys, attn_mask=mask), keys
    >>> def step(model, part, state):
    ...     return model(*part.args, before=state)                                   # (output, keys so far)
    >>> result = compare(Reader(), torch.randn(1, 6, 8), decode=step)
    >>> result.same, result.sides
    (True, ('prefill', 'decode in one chunk', 'decode one by one'))
    """
    asked = [backends is not None, modes is not None, decode is not None]
    if sum(asked) > 1 or len(given) != (1 if any(asked) else 2) or not isinstance(model, nn.Module):
        raise ParameterError(
            "compare takes (model_a, model_b, inputs), or (model, inputs) and one of backends, modes, decode"
        )
    inputs = Inputs.of(given[-1])
    if prompt is not None and (decode is None or not callable(decode)):
        raise ParameterError("prompt= belongs to decode=step; with a number, decode= itself is the prompt")
    if decode is not None:
        return _decoded(model, inputs, decode, prompt)
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
    measured: list[Side] = []
    flows: list[FlowSide] = []
    unmatched: list[str] = []
    masks = {content.name: real_positions(model, inputs, content) for content in contents(model, inputs)}
    for name, one, train in sides:
        calls, problems = _observed(one, inputs, train)
        measured.append((name, calls))
        if flow:
            found, more = _flows(one, inputs, train)
            flows.append((name, found))
            problems += more
        unmatched += [f"{name}: {problem}" for problem in problems]
    outputs: list[OutputDifference] = []
    if backends is not None:
        outputs, problems = _outputs([(name, one) for name, one, _ in sides], inputs)
        unmatched += problems
    return judge(measured, masks, flows, outputs, unmatched)


def _decoded(model: nn.Module, inputs: Inputs, decode: int | Step, prompt: int | None) -> Comparison:
    if callable(decode):
        found = decoded(model, inputs, decode, prompt)
    elif isinstance(decode, int) and not isinstance(decode, bool):
        found = decoded(model, inputs, transformers_step, decode)
    else:
        raise ParameterError(
            "decode= is the number of positions read before the cache is used, or a function "
            f"step(model, part, state) -> (output, state); got {type(decode).__name__}"
        )
    return judge(found.sides, {"": found.real}, [], found.outputs, found.unmatched, found.notes)


def _observed(model: nn.Module, inputs: Inputs, train: bool) -> tuple[list[Measured], list[str]]:
    """The calls of one side, and what was seen but could not be explained."""
    found = contents(model, inputs)
    with untouched(model) as snapshot:
        model.train(train)
        seen = observe(model, inputs, found[0].batch if found else 1, snapshot.random)
    return seen.calls, [f"{one.module or 'the model'}: {one.reason}" for one in seen.unexplained]


def _flows(model: nn.Module, inputs: Inputs, train: bool) -> tuple[Flows, list[str]]:
    """For every input with positions what each item's rows of every output depend on, in one mode; and what
    failed. Rows inside the model stand for those of an output that has none."""
    found: dict[str, dict[str, tuple[Neighborhoods, ...]]] = {}
    problems: list[str] = []
    with untouched(model) as snapshot:
        mode = Mode("as it is", train=train)
        for content in contents(model, inputs):
            runner = Runner(model, inputs, read(model, inputs), snapshot, mode)
            try:
                flows = measure(runner, content)
                mine = found.setdefault(content.name, {})
                mine |= {one.output: one.relations for one in flows}
                if content.batch > 1:
                    leak = any(one.batch_leak is not None for one in flows)
                    if leak and train:  # batch statistics are meant to read all sequences in training
                        runner = Runner(
                            model, inputs, runner.reading, snapshot, replace(mode, statistics=False)
                        )
                        leak = any(batch_leaks(runner, content, runner.places(), runner.base()))
                    mine[ITEMS] = ((Full() if leak else Identity()).on(content.batch),)
                pooled = [one for one in flows if one.pooled or one.relations[0].queries == 1]
                if len(pooled) == len(flows) and content.axis is not None and content.length > 1:
                    inner = Inside(runner, content, None).before_pooling(pooled[0].output)
                    if inner is not None:
                        mine[ROWS_BEFORE] = inner.relations
                    elif any(bound.num_edges for bound in pooled[0].relations):
                        problems.append(f"the flow from {content.name}: {UNSEEN}")
                elif pooled and content.axis is not None and content.length > 1:
                    # What is pooled may be made of other rows than those that come out beside it.
                    inside = Inside(runner, content, None).all_rows()
                    if inside is not None:
                        mine[ROWS_INSIDE] = inside
            except Exception as error:
                first = (str(error).splitlines() or [""])[0]
                kind = "" if isinstance(error, ErlangenError) else f"{type(error).__name__}: "
                problems.append(f"the flow from {content.name} could not be measured: {kind}{first}")
    return found, problems


def _outputs(sides: list[tuple[str, nn.Module]], inputs: Inputs) -> tuple[list[OutputDifference], list[str]]:
    """The outputs of models that must agree, each held against the first."""
    found = contents(sides[0][1], inputs)
    content = found[0] if found else None
    real = None if content is None else real_positions(sides[0][1], inputs, content)

    def run(model: nn.Module, given: Inputs) -> Outputs:
        with untouched(model):
            model.eval()
            return _all_rows(given.run(model), content)

    def noise() -> Outputs | None:
        moved = nudged(sides[0][1], inputs)
        return None if moved is None else run(*moved)

    (first, base), *others = [(name, run(model, inputs)) for name, model in sides]
    differences, problems = [], []
    for name, theirs in others:
        one = difference_of((first, name), base, theirs, noise, real)
        if one is None:
            problems.append(f"{first} and {name} have no output of the same name and shape to compare")
        else:
            differences.append(one)
    return differences, problems


def _all_rows(output: Any, content: Content | None) -> Outputs:
    """Every floating output, those with a row for each position by their rows."""
    rows = {} if content is None else rows_of(output, content, 0, content.length)
    return {
        name: rows[name] if name in rows else Rows(tensor.detach().reshape(1, 1, -1), None)
        for name, tensor in output_tensors(output)
        if tensor.is_floating_point() and tensor.numel()
    }


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
    first = next(model.parameters(), torch.zeros((), device="cpu"))
    other.to(device=first.device, dtype=first.dtype).load_state_dict(model.state_dict())
    return other.train(model.training)

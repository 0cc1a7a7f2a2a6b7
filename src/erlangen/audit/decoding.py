"""Reading at once against reading behind a cache: the same positions must read the same keys."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from erlangen.audit.inputs import Content, Inputs, contents, with_content
from erlangen.audit.measure import Measured, observe
from erlangen.audit.state import untouched
from erlangen.audit.support import Support
from erlangen.audit.verdict import CallVerdict, judge_call
from erlangen.errors import DataError, ParameterError

Side = tuple[str, list[CallVerdict]]


def cached_sides(model: nn.Module, inputs: Inputs, prompt: int) -> list[Side]:
    """The last positions of a sequence, read at once and behind a cache of the first `prompt` ones.

    The cache is what the model returns as `past_key_values` when called with `use_cache=True`. A cache that
    has dropped old keys is aligned at its newest key: a dropped key is one that is not read.
    """
    found = contents(model, inputs)
    if len(found) != 1:
        raise ParameterError(
            f"decode= compares models with one sequence as input, got {[c.name for c in found]}"
        )
    content = found[0]
    n = content.length
    if not 0 < prompt < n:
        raise ParameterError(f"decode= must lie between 1 and {n - 1} for a sequence of {n}, got {prompt}")
    with untouched(model) as snapshot:
        model.eval()
        seen = observe(model, inputs, content.batch, snapshot.random)
        prefill = [_rows(call, prompt, n) for call in seen.calls if (call.queries, call.keys) == (n, n)]
        chunk = _steps(model, inputs, content, [prompt, n])
        single = _steps(model, inputs, content, list(range(prompt, n + 1)))
    sides = [("prefill", prefill), ("decode in one chunk", chunk), ("decode one by one", single)]
    return [(name, [judge_call(call, None, {}, "given") for call in calls]) for name, calls in sides]


def _steps(model: nn.Module, inputs: Inputs, content: Content, stops: list[int]) -> list[Measured]:
    """The calls of the positions from stops[0] on, read in steps behind the cache of those before."""
    n, prompt = content.length, stops[0]
    past: Any = None
    rows: list[list[Measured]] = []
    for start, stop in zip([0, *stops], stops, strict=False):
        part = _part(inputs, content, start, stop, past)
        if past is None:
            output = part.run(model)
        else:
            with untouched(model) as snapshot:
                seen = observe(model, part, content.batch, snapshot.random)
            output = seen.output
            rows.append(seen.calls)
        past = getattr(output, "past_key_values", None)
        if past is None:
            raise DataError(
                f"{type(model).__name__} returns no past_key_values: there is no cache to decode behind"
            )
    if len({len(calls) for calls in rows}) != 1:
        raise DataError(f"{type(model).__name__} makes another number of attention calls from step to step")
    return [_joined(list(steps), n - prompt, n) for steps in zip(*rows, strict=True)]


def _part(inputs: Inputs, content: Content, start: int, stop: int, past: Any) -> Inputs:
    part = with_content(inputs, content, content.tensor.narrow(content.axis, start, stop - start))
    kwargs = {**part.kwargs, "use_cache": True}
    mask = kwargs.get("attention_mask")
    if isinstance(mask, torch.Tensor) and mask.dim() == 2:
        kwargs["attention_mask"] = mask[:, :stop]
    if past is not None:
        kwargs["past_key_values"] = past
    return Inputs(part.args, kwargs, part.label)


def _rows(call: Measured, start: int, n: int) -> Measured:
    """The rows of a call from position `start` on."""
    dense = _dense(call)[:, :, start:]
    return _measured(call, dense)


def _joined(steps: list[Measured], queries: int, keys: int) -> Measured:
    """The rows of several steps, one below the other, over all keys."""
    first = steps[0]
    dense = np.zeros((first.kernel.batch, first.heads, queries, keys), bool)
    row = 0
    for number, step in enumerate(steps):
        done = sum(other.queries for other in steps[: number + 1])
        stop = keys - queries + done
        # More keys than positions so far: a static cache, whose keys sit where they belong.
        at = max(stop - step.keys, 0)
        width = min(step.keys, keys - at)
        dense[:, :, row : row + step.queries, at : at + width] = _dense(step)[..., :width]
        row += step.queries
    return _measured(first, dense)


def _dense(call: Measured) -> np.ndarray:
    return np.array([[bound.dense() for bound in heads] for heads in call.kernel.items])


def _measured(call: Measured, dense: np.ndarray) -> Measured:
    return Measured(
        call.index, call.module, call.api, call.batch, call.heads, dense.shape[-2], dense.shape[-1], None,
        Support.from_dense(dense), (), None,
    )  # fmt: skip

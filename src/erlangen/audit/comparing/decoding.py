"""Reading at once against reading in steps behind a cache: the same positions must read the same keys.

The steps are a function, `step(model, part, state) -> (output, state)`: `part` are the inputs cut to the
positions of this step, `state` is None for the first part of a sequence and then what the last step returned.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import nn

from erlangen.audit.arguments.reading import contents, real_positions
from erlangen.audit.comparing.behind_cache import joined
from erlangen.audit.comparing.closeness import (
    OutputDifference,
    Outputs,
    Rows,
    difference_of,
    nudged,
    place_within,
    rows_of,
    within,
)
from erlangen.audit.inputs import Content, Inputs
from erlangen.audit.observed import Measured, Pass, observe
from erlangen.audit.state import RandomState, untouched
from erlangen.errors import DataError, ErlangenError, ParameterError

Step = Callable[[nn.Module, Inputs, Any], tuple[Any, Any]]


@dataclass(eq=False)
class Decoded:
    """A sequence read at once and in steps: the calls of each side over all positions, and the outputs."""

    sides: list[tuple[str, list[Measured]]]
    real: np.ndarray | None
    """Which positions are real, (batch, positions); None without padding."""
    outputs: list[OutputDifference] = field(default_factory=list)
    unmatched: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def transformers_step(model: nn.Module, part: Inputs, state: Any) -> tuple[Any, Any]:
    """One step by the protocol of transformers: `past_key_values` in, and out where `use_cache=True`.

    >>> transformers_step(nn.Linear(2, 2), Inputs.of(torch.zeros(1, 3, 2)), None)
    Traceback (most recent call last):
    ...
    erlangen.errors.ParameterError: decode= with a number is for models that keep a cache as those of
    transformers do: forward(..., past_key_values=..., use_cache=True) returns past_key_values.
    Linear.forward(input) does not take past_key_values and use_cache. For any other model pass a function,
    decode=step with step(model, part, state) -> (output, state)
    """
    _require_cache_protocol(model)
    extra = {"use_cache": True} | ({} if state is None else {"past_key_values": state})
    output = replace(part, kwargs={**part.kwargs, **extra}).run(model)
    past = getattr(output, "past_key_values", None)
    if past is None and isinstance(output, dict):
        past = output.get("past_key_values")
    if past is None:
        raise DataError(
            f"{type(model).__name__} returns no past_key_values: there is no cache to decode behind. If it "
            "keeps its cache otherwise, pass decode=step with step(model, part, state) -> (output, state)"
        )
    return output, past


def decoded(model: nn.Module, inputs: Inputs, step: Step, prompt: int | None = None) -> Decoded:
    """Read a sequence at once, and `prompt` positions first and the rest in one chunk or one by one.

    The prompt is half of the sequence unless it is given. A relation behind the cache is made of the calls of
    all steps, one below the other. A cache may have dropped keys; which positions the others hold is then
    told by their order if that agrees with reading at once, in order or as a ring buffer, and said to be open
    otherwise.
    """
    content, found = _decoded_content(model, inputs)
    n = content.length
    prompt = n // 2 if prompt is None else prompt
    if isinstance(prompt, bool) or not isinstance(prompt, int) or not 0 < prompt < n:
        raise ParameterError(f"decode= must lie between 1 and {n - 1} for a sequence of {n}, got {prompt}")
    real = real_positions(model, inputs, content)
    with untouched(model) as snapshot:
        model.eval()
        random = snapshot.random
        random.set()
        whole = rows_of(inputs.run(model), content, 0, n)
        seen = observe(model, inputs, content.batch, random)
        # The weights of a few rows are not those of all; the outputs tell whether they agree.
        calls = [replace(call, weights=None) for call in seen.calls]
        result = Decoded([("prefill", calls)], real, unmatched=_unexplained("prefill", seen))
        ways = {"decode in one chunk": [prompt, n], "decode one by one": list(range(prompt, n + 1))}
        if prompt == n - 1:
            del ways["decode in one chunk"]  # it would be the same step
        for name, stops in ways.items():
            reader = _Reader(model, inputs, content, found, step, stops, random)
            try:
                outputs = reader.outputs()
            except _StepFailed as failed:
                if name == "decode in one chunk" and step is not transformers_step:
                    # Many decoders take one position at a time, which is a protocol of its own.
                    result.notes.append(f"{name} was not tried: {failed}")
                    continue
                raise DataError(str(failed)) from failed.__cause__
            _hold(result, name, whole, outputs, reader)
            _join(result, name, calls, reader)
    return result


def _decoded_content(model: nn.Module, inputs: Inputs) -> tuple[Content, list[Content]]:
    found = contents(model, inputs)
    told = ", ".join(f"{one.name} ({one.length})" for one in found) or "none"
    if not found or any(one.axis is None or one.patch is not None for one in found):
        raise ParameterError(f"decode= cuts a sequence into steps; inputs with positions: {told}")
    if len({one.length for one in found}) > 1:
        raise ParameterError(
            f"decode= cuts one sequence into steps, and these inputs have several lengths: {told}. Name the "
            "one that is decoded: Inputs(..., content=[...])"
        )
    return found[0], found


def _require_cache_protocol(model: nn.Module) -> None:
    try:
        takes = inspect.signature(model.forward).parameters
    except (TypeError, ValueError):
        return  # nothing is known of it, so the call itself tells
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in takes.values()):
        return
    missing = [name for name in ("past_key_values", "use_cache") if name not in takes]
    if missing:
        raise ParameterError(
            "decode= with a number is for models that keep a cache as those of transformers do: "
            "forward(..., past_key_values=..., use_cache=True) returns past_key_values. "
            f"{type(model).__name__}.forward({', '.join(takes)}) does not take {' and '.join(missing)}. "
            "For any other model pass a function, decode=step with step(model, part, state) -> "
            "(output, state)"
        )


class _StepFailed(Exception):
    """A step raised; its cause is what it raised."""


@dataclass(frozen=True, eq=False)
class _StepInputs(Inputs):
    """One step as the inputs of a forward pass, so that it can be observed like one."""

    step: Step | None = None
    state: Any = None
    made: list[Any] = field(default_factory=list)

    def run(self, model: nn.Module) -> Any:
        assert self.step is not None
        part = Inputs(self.args, self.kwargs, self.label, **self._said())
        made = self.step(model, part, self.state)
        if not isinstance(made, tuple) or len(made) != 2:
            raise DataError(
                "a step of decode= must return (output, state), the outputs of its positions and what the "
                f"next step needs; got {type(made).__name__}"
                + (f" of {len(made)}" if isinstance(made, tuple) else "")
            )
        self.made.append(made[1])
        return made[0]

    def _said(self) -> dict[str, Any]:
        """What the user said about the inputs."""
        own = {"args", "kwargs", "label", "step", "state", "made"}
        return {name: getattr(self, name) for name in self.__dataclass_fields__ if name not in own}


class _Reader:
    """One way of reading a sequence in steps: up to stops[0], then up to each next stop."""

    def __init__(
        self,
        model: nn.Module,
        inputs: Inputs,
        content: Content,
        found: list[Content],
        step: Step,
        stops: list[int],
        random: RandomState,
    ) -> None:
        self.model, self.inputs, self.content, self.found = model, inputs, content, found
        self.step, self.random = step, random
        self.parts = list(zip([0, *stops], stops, strict=False))
        self.plain: list[Any] = []

    def outputs(self) -> Outputs:
        """The rows of every output, the steps joined; an output that some step does not give is left out."""
        self.plain = self._read(self.model, self.inputs)
        return self._rows(self.plain)

    def nudged(self) -> Outputs | None:
        """The outputs of reading at once with every number moved in its last place."""
        moved = nudged(self.model, self.inputs)
        if moved is None:
            return None
        self.random.set()
        return rows_of(moved[1].run(moved[0]), self.content, 0, self.content.length)

    def observed(self) -> list[Pass]:
        """Every part under observation, in order."""
        passes: list[Pass] = []
        state: Any = None
        for start, stop in self.parts:
            part = self._part(self.inputs, start, stop, state)
            with self._told(start, stop):
                passes.append(observe(self.model, part, self.content.batch, self.random))
            state = part.made[-1] if part.made else None
        return passes

    def _read(self, model: nn.Module, inputs: Inputs) -> list[Any]:
        self.random.set()
        made: list[Any] = []
        state: Any = None
        for start, stop in self.parts:
            part = self._part(inputs, start, stop, state)
            with self._told(start, stop):
                made.append(part.run(model))
            state = part.made[-1]
        return made

    def _rows(self, outputs: list[Any]) -> Outputs:
        pieces = [
            rows_of(output, self.content, start, stop)
            for output, (start, stop) in zip(outputs, self.parts, strict=True)
        ]
        return {
            name: Rows(
                torch.cat([piece[name].values for piece in pieces], dim=1),
                np.concatenate([np.asarray(piece[name].positions) for piece in pieces]),
            )
            for name in pieces[0]
            if all(name in piece and _features(piece[name]) == _features(pieces[0][name]) for piece in pieces)
        }

    def _part(self, inputs: Inputs, start: int, stop: int, state: Any) -> _StepInputs:
        names = {id(tensor): name for name, tensor in inputs.named(self.model).items()}
        content, n = self.content, self.content.length
        held = {id(one.tensor): one for one in self.found}

        def cut(tensor: torch.Tensor) -> torch.Tensor:
            one = held.get(id(tensor))
            if one is not None and one.axis is not None:
                return tensor.narrow(one.axis, start, stop - start)
            mask = tensor.dtype == torch.bool or "mask" in names.get(id(tensor), "")
            return _cut(tensor, content, n, start, stop, mask)

        part = inputs.map(cut)
        said = {
            name: getattr(part, name)
            for name in part.__dataclass_fields__
            if name not in ("args", "kwargs", "label")
        }
        return _StepInputs(part.args, part.kwargs, part.label, **said, step=self.step, state=state)

    def _told(self, start: int, stop: int) -> _Told:
        return _Told(f"{getattr(self.step, '__name__', 'the step')} at positions {start}..{stop - 1}")


class _Told:
    """What a step raises, as a sentence; errors that are sentences already pass."""

    def __init__(self, what: str) -> None:
        self.what = what

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, Exception) and not isinstance(error, ErlangenError):
            first = (str(error).splitlines() or [""])[0]
            hint = ": inputs that are a mapping are in part.kwargs" if isinstance(error, IndexError) else ""
            raise _StepFailed(f"{self.what} failed: {type(error).__name__}: {first}{hint}") from error


def _cut(tensor: torch.Tensor, content: Content, n: int, start: int, stop: int, mask: bool) -> torch.Tensor:
    """What belongs to the positions of a step: its own entries, or for masks all keys up to its last one."""
    shape = tuple(tensor.shape)
    square = len(shape) >= 2 and shape[-2:] == (n, n)
    if square and (mask or tensor.is_floating_point()):
        return tensor[..., start:stop, :stop]
    if mask:
        return tensor[..., :stop] if shape and shape[-1] == n else tensor
    axis = content.axis
    if axis is None:
        return tensor
    if len(shape) == 1:
        return tensor[start:stop] if shape[0] == n else tensor
    if content.batch_axis is not None and len(shape) > max(axis, content.batch_axis):
        if shape[axis] == n and shape[content.batch_axis] in (1, content.batch):
            return tensor.narrow(axis, start, stop - start)
    elif len(shape) > axis and shape[axis] == n:
        return tensor.narrow(axis, start, stop - start)
    return tensor


def _features(rows: Rows) -> int:
    return rows.values.shape[-1]


def _hold(result: Decoded, name: str, whole: Outputs, steps: Outputs, reader: _Reader) -> None:
    """Hold the outputs of the steps against those of reading at once."""
    above = place_within(whole, steps)
    if above is not None:
        steps = {within(above, one): rows for one, rows in steps.items()}
        missing = [
            one for one in whole if one not in steps and f"{one}.".startswith(f"{above}." * bool(above))
        ]
    else:  # names that say nothing: those of one size in their order
        steps, missing = _in_order(whole, steps)
    if steps:
        result.unmatched += [f"{name}: {one} was not compared, no step gives all its rows" for one in missing]
    found = difference_of(("prefill", name), whole, steps, reader.nudged, result.real)
    if found is None:
        result.unmatched.append(
            f"{name}: its outputs were not compared, none of them has the rows that reading at once has"
        )
    else:
        result.outputs.append(found)


def _in_order(whole: Outputs, steps: Outputs) -> tuple[Outputs, list[str]]:
    """The outputs of the steps by the names that outputs of their width have at once, in their order; and
    those for which there is none."""
    found: Outputs = {}
    missing: list[str] = []
    for name, rows in steps.items():
        fitting = [one for one in whole if one not in found and _features(whole[one]) == _features(rows)]
        if fitting:
            found[fitting[0]] = rows
        else:
            missing.append(name)
    return found, missing


def _unexplained(name: str, seen: Pass) -> list[str]:
    return [f"{name}: {one.module or 'the model'}: {one.reason}" for one in seen.unexplained]


def _join(result: Decoded, name: str, whole: list[Measured], reader: _Reader) -> None:
    """Join the calls of the steps to relations over all positions, call by call."""
    passes = reader.observed()
    for one in passes:
        result.unmatched += [text for text in _unexplained(name, one) if text not in result.unmatched]
    if not _undisturbed(reader, [one.output for one in passes]):
        result.unmatched.append(
            f"{name}: being observed changes its outputs; its relations were not compared"
        )
        return
    counts = {len(one.calls) for one in passes}
    if counts != {len(whole)}:
        result.unmatched.append(
            f"prefill has {len(whole)} attention calls, the steps of {name} have "
            f"{' or '.join(map(str, sorted(counts)))}"
        )
        return
    agree = all(one.rounding for one in result.outputs if one.sides[1] == name) and any(
        one.sides[1] == name for one in result.outputs
    )
    found: list[Measured] = []
    for base, *steps in zip(whole, *(one.calls for one in passes), strict=True):
        call, problem = joined(base, steps, reader.content.length, result.real)
        found.append(call)
        if problem is not None:
            place = f"{name}: {base.module or 'the model'}: {problem.reason}"
            # What is open is settled by outputs that agree; another number of keys is another relation.
            if agree and not problem.broken:
                result.notes.append(f"{place}; the outputs agree with reading at once")
            else:
                result.unmatched.append(place)
    result.sides.append((name, found))


def _undisturbed(reader: _Reader, outputs: list[Any]) -> bool:
    """Whether the steps gave what they gave unobserved, but for rounding."""
    if any(output is None for output in outputs):
        return True  # it failed under observation, which is reported as such
    plain, seen = reader._rows(reader.plain), reader._rows(outputs)
    found = difference_of(("plain", "observed"), plain, seen, reader.nudged)
    return found is None or found.rounding or found.relative < 1e-4

"""The trace witness: the rows of every tensor inside a model, so that a dependence can be followed to its
origin.

Under a function mode and module hooks each tensor that has one row for each position is reduced to one number
a row (a fixed random projection in double precision). Two runs then tell which rows of which tensors moved.
It serves where the outputs alone cannot speak: an output that is pooled, the module in which a forbidden
dependence enters, and how many steps a hidden stack of layers takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from erlangen.audit.arguments.containers import leaves
from erlangen.audit.capture.source import source_line
from erlangen.audit.capture.tape import ADDING, name_of
from erlangen.audit.inputs import Content
from erlangen.audit.support import of_item
from erlangen.audit.witnesses.runs import Runner

BY_RANGE = "quantised by the range of the whole tensor"


def by_range(module: nn.Module) -> bool:
    """Whether a module is dynamically quantised, as `torch.ao.quantization.quantize_dynamic` makes it."""
    return ".quantized.dynamic" in type(module).__module__ and type(module).__module__.startswith("torch.")


def kind_of(module: nn.Module) -> str:
    """The type of a module as a finding names it.

    >>> kind_of(nn.Linear(1, 1))
    'Linear'
    """
    name = type(module).__name__
    return f"{name}, {BY_RANGE}" if by_range(module) else name


def told_of_items(model: nn.Module) -> str:
    """What is to be said where items of a batch read each other: the first module that makes them do so."""
    name = next((name for name, module in model.named_modules() if by_range(module)), None)
    return "" if name is None else f" ({name or 'the model'} is {BY_RANGE}, over all items)"


EVENTS = 4096
"""At most so many tensors of one run are followed."""
_ROUNDING = {"round", "floor", "ceil", "trunc", "fix", "sign", "heaviside", "fake_quantize_per_tensor_affine"}
"""Operations whose floating results take few values."""
_NOISE = 1e-9
"""Changes of a projected row below this part of its tensor's size are rounding."""


@dataclass(frozen=True, eq=False)
class Event:
    """One tensor with rows: where it was made, and one number for each row."""

    label: str
    """The operation, "enters" or "leaves" for the tensors given to and returned by a module."""
    module: str
    """The module whose code was running."""
    kind: str
    """The type of that module, and how it quantises."""
    parent: str
    """The module around it."""
    source: str | None
    rows: np.ndarray
    """Shape (batch, rows)."""
    plain: bool = True
    """Whether the tensor is (batch, rows, features), and no axis could be rows by chance."""


def feature_sizes(model: nn.Module, tables: frozenset[str] = frozenset()) -> frozenset[int]:
    """The sizes of a model's parameters, which features may have. A table of positions, (1, positions,
    features) or one of the `tables`, says nothing about features by its positions."""
    shapes = [(name, tuple(parameter.shape)) for name, parameter in model.named_parameters()]
    kept = [
        shape[-1:] if name in tables or (len(shape) == 3 and shape[0] == 1) else shape
        for name, shape in shapes
    ]
    return frozenset(size for shape in kept for size in shape)


def added_tables(runner: Runner) -> frozenset[str]:
    """The parameters of (positions, features) that a run adds to rows, and uses for nothing else."""
    named = runner.model.named_parameters()
    tables = {id(one): name for name, one in named if one.dim() == 2 and not name.endswith("weight")}
    if not tables:
        return frozenset()
    watch = _Uses(tables)
    try:
        runner.on(runner.inputs, watch)
    except Exception:
        return frozenset()  # a model that runs only unobserved
    return frozenset(watch.added - watch.otherwise)


class _Uses(TorchFunctionMode):
    """Remembers which of some parameters are added to rows, and which are used otherwise."""

    def __init__(self, tables: dict[int, str]) -> None:
        super().__init__()
        self._tables = tables
        self.added: set[str] = set()
        self.otherwise: set[str] = set()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        taken = [tensor for _, tensor in leaves((args, kwargs or {}))]
        for one in taken:
            if id(one) in self._tables:
                rows = any(other.dim() > 2 and other.shape[-2:] == one.shape for other in taken)
                uses = self.added if rows and name_of(func) in ADDING else self.otherwise
                uses.add(self._tables[id(one)])
        return func(*args, **(kwargs or {}))


class Tracer(TorchFunctionMode):
    """Collects the events of one run."""

    def __init__(
        self,
        model: nn.Module,
        content: Content,
        rows: int,
        weights: dict[int, torch.Tensor],
        sources: bool = True,
        square: bool = False,
    ) -> None:
        super().__init__()
        self._rows, self._sources, self._square = rows, sources, square
        self.events: list[Event] = []
        self.rounded: list[Event] = []
        """The tensors of numbers that operations made integers or booleans of (argmax, topk, comparisons)."""
        self.made: list[torch.Tensor] = []
        """What each of them was made into."""
        self._content = content
        self._weights = weights
        self._stack: list[tuple[str, str]] = [("", kind_of(model))]
        self._handles: list[Any] = []
        self._model = model
        self._widths = feature_sizes(model)

    def __enter__(self) -> Any:
        for name, module in self._model.named_modules():
            if name and not isinstance(module, torch.jit.ScriptModule):
                self._handles.append(module.register_forward_pre_hook(self._entering(name), with_kwargs=True))
                self._handles.append(
                    module.register_forward_hook(self._leaving(name), with_kwargs=True, always_call=True)
                )
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        for handle in self._handles:
            handle.remove()
        super().__exit__(*error)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if len(self.events) < EVENTS:
            with torch._C.DisableTorchFunction():
                for tensor in (
                    [out] if isinstance(out, torch.Tensor) else out if isinstance(out, tuple) else ()
                ):
                    if isinstance(tensor, torch.Tensor):
                        self._note(name_of(func), tensor)
                        rounds = not tensor.is_floating_point() or name_of(func) in _ROUNDING
                        if rounds and len(self.rounded) < EVENTS:
                            self._note_rounded(name_of(func), tensor, args)
        return out

    def _note_rounded(self, label: str, made: torch.Tensor, args: Any) -> None:
        for taken in args if isinstance(args, tuple) else ():
            rows = self._project(taken) if isinstance(taken, torch.Tensor) else None
            if rows is not None:
                inner, parent = self._stack[-1], self._stack[-2][0] if len(self._stack) > 1 else ""
                self.rounded.append(Event(label, *inner, parent, source_line(), rows))
                self.made.append(made.detach().clone())

    def _entering(self, name: str) -> Any:
        def hook(module: nn.Module, args: Any, kwargs: Any) -> None:
            with torch._C.DisableTorchFunction():
                for _, tensor in leaves((args, kwargs)):
                    self._note("enters", tensor, name, kind_of(module))
            self._stack.append((name, kind_of(module)))

        return hook

    def _leaving(self, name: str) -> Any:
        def hook(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            with torch._C.DisableTorchFunction():
                for _, tensor in leaves(output):
                    self._note("leaves", tensor)
            while len(self._stack) > 1 and self._stack.pop()[0] != name:
                pass

        return hook

    def _note(self, label: str, tensor: torch.Tensor, module: str | None = None, kind: str = "") -> None:
        rows = self._project(tensor)
        if rows is None:
            return
        inner = self._stack[-1]
        parent = self._stack[-2][0] if len(self._stack) > 1 else ""
        if module is None:
            where = source_line() if self._sources and label not in ("enters", "leaves") else None
            self.events.append(Event(label, *inner, parent, where, rows, self._plain(tensor)))
        else:
            self.events.append(Event(label, module, kind, inner[0], None, rows, self._plain(tensor)))

    def _plain(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is (batch, rows, features), or (batch, channels, rows) with channels that the
        parameters have. Otherwise its last axis may be features of heads, as many as rows by chance."""
        shape, n = tensor.shape, self._rows
        return len(shape) == 3 and (n in shape[:2] or shape[1] in self._widths)

    def _project(self, tensor: torch.Tensor) -> np.ndarray | None:
        """One number for each row of a tensor that has exactly one axis of positions; None for others."""
        content, n = self._content, self._rows
        if not tensor.is_floating_point() or tensor.layout != torch.strided or tensor.dim() not in (2, 3, 4):
            return None
        batch, shape = content.batch, list(tensor.shape)
        axes = [axis for axis, size in enumerate(shape) if size == n]
        if content.batch_axis is None:
            if len(axes) != 1:
                return None
            moved = tensor.movedim(axes[0], 0).reshape(1, n, -1)
        elif content.axis == 0 and len(shape) >= 3 and shape[0] == n and shape[1] == batch:
            moved = tensor.transpose(0, 1).reshape(batch, n, -1)
        else:
            axes = [axis for axis in axes if axis > 0]
            if not axes or shape[0] % batch or shape[0] == 0:
                return None
            if len(axes) > 1 and not self._square:
                return None  # scores of queries and keys: whoever is masked later is still in them
            moved = tensor.reshape(batch, shape[0] // batch, *shape[1:]).movedim(axes[0] + 1, 1)
            moved = moved.reshape(batch, n, -1)
        flat = moved.detach().double().nan_to_num(posinf=0.0, neginf=0.0)
        width = flat.shape[-1]
        if width not in self._weights:
            generator = torch.Generator().manual_seed(width)
            self._weights[width] = (
                torch.rand(width, generator=generator, dtype=torch.float64, device="cpu") + 0.5
            )
        return (flat @ self._weights[width].to(flat.device)).cpu().numpy()


class Trace:
    """The events of a feeding, and which of their rows move with a change of content."""

    def __init__(
        self,
        runner: Runner,
        content: Content,
        rows: int | None = None,
        *,
        rounded: bool = False,
        square: bool = False,
    ) -> None:
        """`rounded`: the events are numbers that are made integers. `square`: a tensor with two axes of as
        many entries as rows has its rows along the first."""
        self._runner, self._content, self._rows = runner, content, rows or content.length
        self._rounded, self._square = rounded, square
        self.made: list[torch.Tensor] = []
        self._weights: dict[int, torch.Tensor] = {}
        self.base = self._events([], sources=True)

    def _events(self, positions: Any, item: int | None = None, sources: bool = False) -> list[Event]:
        """The events of one run; the lines of code are looked up in the base run alone."""
        tracer = Tracer(self._runner.model, self._content, self._rows, self._weights, sources, self._square)
        self._runner.changed(self._content, positions, item, within=tracer)
        self.made = self.made or tracer.made
        return tracer.rounded if self._rounded else tracer.events

    def moved(self, positions: Any, item: int | None = None) -> list[np.ndarray]:
        """For every event of the base run: which rows move, and by how much relative to the tensor's size.

        Events are matched in order for as long as both runs do the same; later ones did not move as far as
        anybody can tell, and are cut off.
        """
        found = []
        for before, after in zip(self.base, self._events(positions, item), strict=False):
            if (before.label, before.module) != (after.label, after.module):
                break
            scale = float(np.abs(before.rows).max()) or 1.0
            size = np.abs(after.rows - before.rows) / scale
            found.append(np.where(size > _NOISE, size, 0.0))
        return found

    def flows(self, positions: list[int]) -> np.ndarray:
        """Which rows of every event depend on which positions: (events, batch, rows, positions)."""
        columns = [self.moved([j]) for j in positions]
        count = min((len(column) for column in columns), default=0)
        return (
            np.stack([np.stack(column[:count]) > 0 for column in columns], axis=-1) if count else np.empty(0)
        )

    def origin(self, item: int, row: int, position: int) -> Event | None:
        """Where a dependence of one row on one position enters: the first tensor that has it and stays with
        it.

        A tensor given to a module that has it already was made by the code around that module.
        """
        moved = self.moved([position])
        for event, size in zip(self.base, moved, strict=False):
            if row < size.shape[1] and of_item(size, item)[row] > 0:
                return event
        return None

"""Running a model on changed content: always from the same random state, in one mode, with its state put
back."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn

from erlangen.audit.arguments.embedding import noise_behind
from erlangen.audit.arguments.reading import Reading
from erlangen.audit.inputs import Content, Inputs, changed_together
from erlangen.audit.outputs import Place, floating, output_tensors, places, unread
from erlangen.audit.state import RandomState, Snapshot
from erlangen.audit.witnesses.double import recast as to_precision

Zeros = dict[str, torch.Tensor]
"""Name of a parameter -> which of its entries, all of them zero, have other values."""
FILL = 0.02
"""The usual size of these values: that of a fresh weight, so that nothing overflows."""


@dataclass(frozen=True, eq=False)
class Mode:
    """How a model is run: what training, serving and mixed precision switch on and off."""

    name: str
    train: bool = False
    grad: bool = False
    autocast: bool = False
    zeros: Zeros = field(default_factory=dict)
    """Entries of parameters that are zero and are run with other values."""
    statistics: bool = True
    """Whether batch norms take the statistics of the batch in training, and not those they keep."""
    random: RandomState | None = None
    """The random state that runs begin from, where it is not that of the audit."""
    earlier: tuple[Inputs, ...] = ()
    """Inputs on which the model is called before, without putting its state back."""

    @contextmanager
    def called(self, model: nn.Module) -> Iterator[None]:
        """Call a model on the earlier inputs; random generators go on as if nothing had been called."""
        random = RandomState.now() if self.earlier else None
        double = any(p.dtype == torch.float64 for p in model.parameters())
        for one in self.earlier:
            one.map(lambda t: to_precision(t, torch.float64) if double else t.clone()).run(model)
        if random is not None:
            random.set()
        yield

    @contextmanager
    def on(self, model: nn.Module) -> Iterator[None]:
        """Run a block in this mode; the model's own training flag is put back."""
        device = next((p.device.type for p in model.parameters()), "cpu")
        before = [(module, module.training) for module in model.modules()]
        with ExitStack() as stack:
            stack.enter_context(torch.set_grad_enabled(self.grad))
            if self.autocast:
                stack.enter_context(torch.autocast(device, dtype=torch.bfloat16))
            if not _in_mode(before, self.train):
                model.train(self.train)
            for module, _ in () if self.statistics else before:
                if isinstance(module, BATCH_NORM):
                    module.eval()
            try:
                with _filled(model, self.zeros), self.called(model):
                    yield
            finally:
                for module, training in before:
                    if module.training != training:
                        module.training = training


def _in_mode(modules: list[tuple[nn.Module, bool]], train: bool) -> bool:
    """Whether switching would do nothing; a module that overrides `train` may do anything."""
    return all(now is train and type(module).train is nn.Module.train for module, now in modules)


BATCH_NORM = nn.modules.batchnorm._BatchNorm


@contextmanager
def _filled(model: nn.Module, zeros: Zeros) -> Iterator[None]:
    """Give entries of parameters that are zero other values, and zero them again."""
    generator = torch.Generator().manual_seed(11)
    held = [(parameter.data, zeros[name]) for name, parameter in model.named_parameters() if name in zeros]
    try:
        for data, entries in held:
            drawn = torch.randn(int(entries.sum()), generator=generator, device="cpu")
            data[entries] = (drawn * FILL).to(data)
        yield
    finally:
        for data, entries in held:
            data[entries] = 0


EVAL = Mode("eval")
TRAINING = Mode("training", train=True, grad=True)
GRADIENTS = Mode("with gradients", grad=True)
AUTOCAST = Mode("autocast", autocast=True)
TRAINING_AUTOCAST = Mode("training under autocast", train=True, grad=True, autocast=True)


def now() -> float:
    """Seconds on the clock that budgets are measured by."""
    return time.monotonic()


class Budget:
    """Seconds that an audit may take, and how many are left.

    >>> budget = Budget(60.0)
    >>> 59 < budget.left <= 60, budget.end(0.5) - now() > 29
    (True, True)
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._start = now()

    @property
    def left(self) -> float:
        """The seconds that are left; never below zero."""
        return max(0.0, self.seconds - (now() - self._start))

    def end(self, share: float) -> float:
        """When a share of what is left will be spent."""
        return now() + self.left * share

    @staticmethod
    def part(end: float, parts: int) -> float:
        """When one of so many equal parts of the time until `end` will be spent."""
        return now() + (end - now()) / parts


class Runner:
    """Runs one model on one feeding and on changes of its content."""

    def __init__(
        self,
        model: nn.Module,
        inputs: Inputs,
        reading: Reading,
        snapshot: Snapshot,
        mode: Mode = EVAL,
        *,
        observed: bool = False,
    ) -> None:
        self.model, self.inputs, self.reading = model, inputs, reading
        self.snapshot, self.mode, self.observed = snapshot, mode, observed
        self.random: RandomState = mode.random or snapshot.random
        self.runs, self._spent = 0, 0.0
        self.end = math.inf
        """When this runner's share of the budget is spent: those who run it many times then stop."""
        self.unread: dict[str, str] = {}
        """Parts of the output that were not looked into, and what they are."""
        self._places: list[Place] | None = None
        self._bases: list[Any] = []
        self._items: dict[str, Any] = {}
        self.fixed: dict[str, frozenset[int]] = {}
        """Axes of outputs that do not follow the length of the input."""
        self.like: dict[str, Place] = {}
        """The places of outputs that are known from another feeding."""

    def on(
        self,
        inputs: Inputs,
        within: AbstractContextManager[Any] | None = None,
        model: nn.Module | None = None,
    ) -> Any:
        """The output on other inputs, run inside the context `within`; of another model, where one is
        given."""
        return self._run(inputs, nullcontext(), model, within=within)

    def takes(self, inputs: Inputs) -> bool:
        """Whether the model runs on these inputs."""
        try:
            self.on(inputs)
        except Exception:
            return False
        return True

    @property
    def seconds(self) -> float:
        """How long a run takes."""
        return self._spent / max(self.runs, 1)

    @property
    def late(self) -> bool:
        """Whether another run would take longer than there is time."""
        return now() + self.seconds > self.end

    def affordable(self) -> float:
        """How many runs there is time for."""
        return max(0.0, self.end - now()) / max(self.seconds, 1e-6)

    def base(self) -> Any:
        """The tensors of the output on the feeding itself; it is run once."""
        return self._base(0)

    def again(self) -> Any:
        """The same from a second run: what differs from the first moves by itself."""
        return self._base(1)

    def like_runner(self, other: Runner) -> None:
        """Take the two runs of another runner on the same inputs in the same mode for the own ones."""
        self._bases, self.runs, self._spent = list(other._bases), other.runs, other._spent
        self.unread = other.unread

    def _base(self, number: int) -> Any:
        while len(self._bases) <= number:
            # Copies: a model may write its next output into the memory of this one.
            copies: dict[int, torch.Tensor] = {}
            output = self._run(self.inputs, nullcontext(), None)
            self.unread |= unread(output)
            self._bases.append(
                {
                    name: copies.setdefault(id(tensor), tensor.detach().clone())
                    for name, tensor in output_tensors(output)
                }
            )
        return self._bases[number]

    def first_item(self, content: Content) -> Any:
        """The output with other content throughout the first item of the batch; it is run once."""
        if content.name not in self._items:
            self._items[content.name] = self.changed(content, range(content.length), 0)
        return self._items[content.name]

    def places(self) -> list[Place]:
        """Where the rows of the outputs are; of axes of equal size the batch is told by changing one
        sequence."""
        if self._places is None:
            sequences = self.reading.sequences
            other = None
            output, batch = self.base(), self.reading.batch
            sizes = {name: tensor.shape for name, tensor in floating(output)}
            like = {
                name: place
                for name, place in self.like.items()
                if name in sizes and place.fits(sizes[name], batch)
            }
            known = all(place.name in like for place in places(output, self.reading.contents))
            if sequences and sequences[0].batch > 1 and not known:
                try:
                    other = self.first_item(sequences[0])
                except Exception:
                    other = None  # content that cannot be changed is reported where its flow is measured
            made = places(output, self.reading.contents, other, self.fixed, self.reading.labels)
            pairs = self._pairs([name for name, shape in sizes.items() if name not in like], sizes)
            for number, place in enumerate(made):
                told = like.get(place.name)
                if place.name in pairs:
                    told = Place(place.name, None, 0, batch, discrete=place.discrete, pairs=True)
                if told is None and self._of_last_positions(place, sizes[place.name]):
                    made[number] = replace(place, axis=1)
                if told is not None:  # axes of equal size by chance are told by the feeding where they differ
                    room = None if told.filled is None else sequences[0].length
                    made[number] = replace(told, items=batch, filled=room)
            self._places = sorted(made, key=lambda place: place.pooled)
        return self._places

    def _of_last_positions(self, place: Place, shape: torch.Size) -> bool:
        """Whether (batch, k, features) of as many entries at every length are the rows of the last k
        positions.

        Each moves with its own position, and with none behind it; or where all is read, most with its own.
        """
        one = next(iter(self.reading.sequences), None)
        known = len(shape) == 3 and place.pooled and place.batch_axis == 0 and len(self.fixed) > 0
        if not known or one is None or not one.sequence or (one.axis, one.batch_axis) != (1, 0):
            return False
        rows = shape[1]
        if not 2 <= rows < one.length or self.inputs.vary is not None:
            return False
        before, hits, causal = dict(floating(self.base()))[place.name], [], True
        for row in sorted({*range(min(rows, 3)), *range(max(0, rows - 3), rows)}):
            try:
                after = dict(floating(self.changed(one, one.length - rows + row)))[place.name]
            except Exception:
                return False
            size = (after - before).abs().nan_to_num().amax((0, 2))
            causal = causal and bool(size[row] > 0) and not bool(size[:row].any())
            hits.append(bool(size.any()) and int(size.argmax()) == row)
        return causal or (len(hits) > 2 and all(hits))

    def _pairs(self, names: list[str], sizes: dict[str, torch.Size]) -> set[str]:
        """The outputs with an entry for each pair of items: both of their first axes follow the batch."""
        batch = self.reading.batch
        names = [name for name in names if sizes[name][:2] == (batch, batch)]
        if not names or batch < 2 or self.inputs.vary is not None:
            return set()
        axes = {id(one.tensor): one.batch_axis for one in (*self.reading.contents, *self.reading.labels)}

        def first(tensor: torch.Tensor) -> torch.Tensor:
            axis = axes.get(id(tensor), 0)
            if axis is None or tensor.dim() <= axis or tensor.shape[axis] != batch:
                return tensor
            return tensor.narrow(axis, 0, 1)

        try:
            alone = dict(floating(self.on(self.inputs.map(first))))
        except Exception:
            return set()
        return {name for name in names if name in alone and alone[name].shape[:2] == (1, 1)}

    def changed(
        self,
        content: Content,
        positions: Any,
        item: int | None = None,
        *,
        model: nn.Module | None = None,
        recast: torch.dtype | None = None,
        seed: int = 0,
        within: AbstractContextManager[Any] | None = None,
    ) -> Any:
        """The output with other content at these positions, in one batch item or in all.

        `model` is run in place of the own one, `recast` gives floating inputs another type, and the model
        runs inside the context `within`.
        """
        inputs, behind = self.fed(content, positions, item, seed, model)
        return self._run(inputs, behind, model, recast, within)

    def fed(
        self,
        content: Content,
        positions: Any,
        item: int | None = None,
        seed: int = 0,
        model: nn.Module | None = None,
    ) -> tuple[Inputs, AbstractContextManager[Any]]:
        """The inputs with other content at these positions, and the context in which they must be run."""
        places = [int(p) for p in (positions if hasattr(positions, "__iter__") else [positions])]
        if not places:
            return self.inputs, nullcontext()
        if self.inputs.vary is not None:
            return self.inputs.vary(self.inputs, content.name, places, item), nullcontext()
        if content.embedding is not None:
            return self.inputs, noise_behind(model or self.model, content, places, item, seed)
        behind = nullcontext()
        if content.pad is not None:  # what is padding stays, and is changed behind the embedding
            behind = noise_behind(model or self.model, content, places, item, seed)
        return changed_together(self.inputs, content, places, item, seed), behind

    def _run(
        self,
        inputs: Inputs,
        behind: AbstractContextManager[Any],
        model: nn.Module | None,
        recast: torch.dtype | None = None,
        within: AbstractContextManager[Any] | None = None,
    ) -> Any:
        own = model is None
        model = self.model if model is None else model
        if own:
            self.snapshot.restore_state()
        if recast is not None:
            inputs = inputs.map(lambda t: to_precision(t, recast))
        self.random.set()
        begun, copied = now(), inputs.copied()  # outside: a copy is no step of the model
        with ExitStack() as stack:
            stack.enter_context(self.mode.on(model))
            if self.observed:
                stack.enter_context(torch.overrides.BaseTorchFunctionMode())
            stack.enter_context(behind)
            if within is not None:
                stack.enter_context(within)
            output = copied.run(model)
        self.runs += 1
        self._spent += now() - begun
        return output

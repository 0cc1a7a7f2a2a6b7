"""Running a model on changed content: always from the same random state, in one mode, with its state put
back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from erlangen.audit.inputs import Content, Inputs, with_content
from erlangen.audit.outputs import Place, places
from erlangen.audit.reading import Reading
from erlangen.audit.state import RandomState, Snapshot


@dataclass(frozen=True)
class Mode:
    """How a model is run: what training, serving and mixed precision switch on and off."""

    name: str
    train: bool = False
    grad: bool = False
    autocast: bool = False

    @contextmanager
    def on(self, model: nn.Module) -> Iterator[None]:
        """Run a block in this mode; the model's own training flag is put back."""
        device = next((p.device.type for p in model.parameters()), "cpu")
        before = [(module, module.training) for module in model.modules()]
        with ExitStack() as stack:
            stack.enter_context(torch.set_grad_enabled(self.grad))
            if self.autocast:
                stack.enter_context(torch.autocast(device, dtype=torch.bfloat16))
            model.train(self.train)
            try:
                yield
            finally:
                for module, training in before:
                    module.training = training


EVAL = Mode("eval")
TRAINING = Mode("training", train=True, grad=True)
GRADIENTS = Mode("with gradients", grad=True)
AUTOCAST = Mode("autocast", autocast=True)


class Budget:
    """Seconds that an audit may take, and how many are left.

    >>> budget = Budget(60.0)
    >>> 59 < budget.left <= 60, budget.runs(1e-3, 0.5) > 1000
    (True, True)
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._start = time.monotonic()

    @property
    def left(self) -> float:
        """The seconds that are left; never below zero."""
        return max(0.0, self.seconds - (time.monotonic() - self._start))

    def runs(self, seconds: float, share: float) -> int:
        """How many runs of so many seconds fit into a share of what is left."""
        return int(self.left * share / max(seconds, 1e-6))


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
        self.random: RandomState = snapshot.random
        self.runs, self.seconds = 0, 0.0
        self._places: list[Place] | None = None
        self.fixed: dict[str, frozenset[int]] = {}
        """Axes of outputs that do not follow the length of the input."""
        self.like: dict[str, Place] = {}
        """The places of outputs that are known from another feeding."""

    def on(self, inputs: Inputs, within: AbstractContextManager[Any] | None = None) -> Any:
        """The output on other inputs, run inside the context `within`."""
        return self._run(inputs, nullcontext(), None, within=within)

    def base(self) -> Any:
        """The output on the feeding itself."""
        return self._run(self.inputs, nullcontext(), None)

    def places(self) -> list[Place]:
        """Where the rows of the outputs are; of axes of equal size the batch is told by changing one
        sequence."""
        if self._places is None:
            sequences = self.reading.sequences
            other = None
            if sequences and sequences[0].batch > 1:
                try:
                    other = self.changed(sequences[0], range(sequences[0].length), 0)
                except Exception:
                    other = None  # content that cannot be changed is reported where its flow is measured
            made = places(self.base(), self.reading.contents, other, self.fixed)
            for number, place in enumerate(made):
                like = self.like.get(place.name)
                if like is not None:  # axes of equal size by chance are told by the feeding where they differ
                    made[number] = replace(like, items=self.reading.batch)
            self._places = sorted(made, key=lambda place: place.pooled)
        return self._places

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
            return self.inputs, _noise_behind(model or self.model, content, places, item, seed)
        return with_content(self.inputs, content, content.changed(places, item, seed)), nullcontext()

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
            inputs = inputs.map(lambda t: t.to(recast) if t.is_floating_point() else t)
        self.random.set()
        begun = time.monotonic()
        with ExitStack() as stack:
            stack.enter_context(self.mode.on(model))
            if self.observed:
                stack.enter_context(torch.overrides.BaseTorchFunctionMode())
            stack.enter_context(behind)
            if within is not None:
                stack.enter_context(within)
            output = inputs.copied().run(model)
        self.runs += 1
        self.seconds = max(self.seconds, time.monotonic() - begun) if self.runs < 3 else self.seconds
        return output


@contextmanager
def _noise_behind(
    model: nn.Module, content: Content, positions: list[int], item: int | None, seed: int
) -> Iterator[None]:
    """Add noise to what an embedding returns at some positions, the first time it is called with the
    tokens."""
    module = model.get_submodule(content.embedding or "")
    done = False

    def add(_: nn.Module, args: Any, output: Any) -> Any:
        nonlocal done
        if done or not isinstance(output, torch.Tensor) or output.shape[:-1] != content.tensor.shape:
            return None
        done = True
        with torch._C.DisableTorchFunction():  # a tracer must see the same operations as without noise
            return noisy(output)

    def noisy(output: torch.Tensor) -> torch.Tensor:
        generator = torch.Generator().manual_seed(1_000_003 + seed)
        noise = torch.randn(output.shape, generator=generator).to(output)
        spread = float(output.detach().float().std(correction=0).nan_to_num()) or 1.0
        result = output.clone()
        for position in positions:
            where = content.where(position, item)
            result[where] = output[where] + noise[where] * spread
        return result

    handle = module.register_forward_hook(add)
    try:
        yield
    finally:
        handle.remove()

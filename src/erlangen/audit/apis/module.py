"""Modules measured as a whole: attention whose softmax does not run over the keys of one product."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from erlangen.audit.apis.attention_call import Call, register
from erlangen.audit.capture.content_keys import content_key, fingerprint
from erlangen.audit.capture.frames import Frame
from erlangen.audit.capture.tape import mapped, tensors
from erlangen.audit.state import RandomState, holdings_of
from erlangen.audit.witnesses.measured import Probe, read_off
from erlangen.errors import DataError

if TYPE_CHECKING:
    from erlangen.audit.capture.session import Session


@register
@dataclass(eq=False)
class ModuleCall(Call):
    """One call of a module whose attention is chunked, block-sparse or the like: all its heads at once."""

    api = "module"
    whole = True
    watches = "a module whose softmax runs over the keys of no single product (chunked, block-sparse)"
    declares = "nothing: its masks are cut up with its scores"

    run: Callable[[torch.Tensor], torch.Tensor]
    """Hidden states, of the batch or of several copies of it, to the module's output."""
    hidden: torch.Tensor
    key: Any
    """The module, its mode, and everything but the hidden states that its relation may depend on."""

    @classmethod
    def watch(cls, session: Session) -> None:
        session.watch_modules(partial(cls._record, session))

    @classmethod
    def _record(cls, session: Session, frame: Frame) -> ModuleCall:
        """The module as a function of its hidden states (batch, length, dim)."""
        hidden = frame.hidden_states
        if hidden is None or hidden.shape[0] != session.batch:
            raise DataError("its module takes no hidden states of shape (batch, length, dim)")
        others = [t for t in tensors((frame.args, frame.kwargs)) if t is not hidden]
        if any(t.is_floating_point() and t.shape == hidden.shape for t in others):
            # Queries, keys and values apart: changing one of them alone would show another relation.
            raise DataError(
                "its module takes queries, keys and values apart: it is no function of one sequence"
            )
        batch, length, _ = hidden.shape
        given = tuple(content_key(t) for t in others)
        key = frame.name, frame.module.training, hidden.shape, hidden.dtype, given
        source = fingerprint(hidden)
        return cls(
            frame.name, batch, 1, length, length, _runner(frame, hidden), hidden, key,
            fingerprints=(source, source), source=frame.source, replaces=frame.calls,
        )  # fmt: skip

    @property
    def cache_key(self) -> Any:
        return self.key

    def declared(self) -> None:
        """Its masks are cut up with its scores, so that no one tensor says which key a query may read."""

    def measured(self) -> Probe:
        """All heads at once: at zero hidden states, whose output changes with position j's state? (T1)"""
        zero = torch.zeros_like(self.hidden)
        base = self.run(zero)
        generator = torch.Generator(device="cpu").manual_seed(0)
        state = torch.randn(self.hidden.shape[0], self.hidden.shape[-1], generator=generator, device="cpu")
        state = state.to(self.hidden)
        copies = self._copies_that_run(base)
        changes = torch.zeros(self.batch, self.queries, self.keys, dtype=torch.float64, device="cpu")
        for first in range(0, self.keys, copies):
            positions = range(first, min(first + copies, self.keys))
            moved = zero.repeat(copies, 1, 1).reshape(copies, *zero.shape)
            for place, j in enumerate(positions):
                moved[place, :, j] = state
            out = self.run(moved.flatten(0, 1)).reshape(copies, *base.shape)
            size = (out - base).abs().flatten(3).amax(-1).double().cpu()
            changes[:, :, first : positions.stop] = size[: len(positions)].permute(1, 2, 0)
        # A weight is at least 1 / keys of the largest; rounding is below a millionth of it.
        scale = changes.nan_to_num().amax(dim=(1, 2), keepdim=True)
        return read_off((changes > scale * (1e-3 / self.keys))[:, None])

    def _copies_that_run(self, base: torch.Tensor) -> int:
        """How many copies of the batch the module takes at once without their disturbing one another."""
        copies = min(self.keys, max(1, 64 // self.batch))
        try:
            out = self.run(torch.zeros_like(self.hidden).repeat(copies, 1, 1)).reshape(copies, *base.shape)
        except Exception:
            return 1  # an argument that is tied to the size of the batch
        same = torch.allclose(out, base.expand_as(out), rtol=1e-3, atol=1e-5, equal_nan=True)
        return copies if same else 1

    def log_weights(self) -> None:
        """What is added to the scores is cut up with them."""

    def alpha(self) -> None:
        """The weights are inside the module."""

    def vectors(self) -> None:
        """Queries and keys are inside the module."""

    @classmethod
    def diagonal(cls, n: int) -> None:
        """Its attention has no one function to run otherwise."""


def _runner(frame: Frame, hidden: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    """The module call again, as a function of its hidden states; what else is of a batch is copied, too."""
    held = holdings_of(frame.module)

    def run(value: torch.Tensor) -> torch.Tensor:
        copies = value.shape[0] // hidden.shape[0]

        def given(argument: Any) -> Any:
            if argument is hidden:
                return value
            if copies > 1 and isinstance(argument, torch.Tensor) and argument.shape[:1] == hidden.shape[:1]:
                return argument.repeat(copies, *[1] * (argument.dim() - 1))
            return argument

        args, kwargs = mapped((frame.args, frame.kwargs), given)
        random = RandomState.now()
        try:
            out = frame.module(*args, **kwargs)
        finally:
            # The model runs on after the probe: a cache that the probe filled, or a number that it drew,
            # would change what follows.
            held.put_back()
            random.set()
        for made in tensors(out):
            if made.is_floating_point() and made.dim() >= 2 and made.shape[:2] == value.shape[:2]:
                return made
        raise DataError("its module returns nothing of shape (batch, length, ...)")

    return run

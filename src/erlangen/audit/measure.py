"""One observed forward pass, measured: every attention call with its declared and its kernel relation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from erlangen.audit.capture.calls import Call, ModuleCall, Unexplained
from erlangen.audit.capture.session import Session
from erlangen.audit.inputs import Inputs
from erlangen.audit.state import RandomState
from erlangen.audit.support import Support
from erlangen.audit.weights import Weights
from erlangen.audit.witnesses.declared import declared
from erlangen.audit.witnesses.kernel import Probe, kernel
from erlangen.audit.witnesses.weights import weights


@dataclass(eq=False)
class Measured:
    """One attention call and what the declared and the kernel witness say about it."""

    index: int
    module: str
    api: str
    """"sdpa", "mha", "eager", "flex", "pyg", or "module" when its module was probed as a whole."""
    batch: int
    heads: int
    queries: int
    keys: int
    declared: Support | None
    """None where nothing is declared: a probed module."""
    kernel: Support
    nan_rows: tuple[tuple[int, int, int], ...]
    """(item, head, query) of the rows that come out as NaN."""
    fingerprints: tuple[int, int] | None
    kind: str = "self"
    """"self" when queries and keys come from the same sequence, otherwise "cross"."""
    query_inputs: frozenset[str] = frozenset()
    key_inputs: frozenset[str] = frozenset()
    """The names of the inputs that the queries and the keys depend on."""
    weights: Weights | None = None
    """The finite biases added to the scores, where there are any."""

    @property
    def agree(self) -> bool | None:
        """Whether the kernel does what was declared; None when nothing was declared."""
        return None if self.declared is None else self.declared == self.kernel and not self.nan_rows

    @property
    def revived_rows(self) -> tuple[tuple[int, int, int], ...]:
        """(item, head, query) of rows that are fully masked, yet read something: a finite mask value on a row
        with nothing else makes the softmax uniform."""
        if self.declared is None or self.declared == self.kernel:
            return ()
        rows = []
        for b, (said, done) in enumerate(zip(self.declared.items, self.kernel.items, strict=True)):
            for h, (a, c) in enumerate(zip(said, done, strict=True)):
                if a is not c:
                    rows += [(b, h, i) for i in a.empty_queries().tolist() if c.row(i)]
        return tuple(rows)


@dataclass(eq=False)
class Pass:
    """One observed forward pass: its output, its calls, and what could not be explained."""

    inputs: Inputs
    output: Any
    calls: list[Measured] = field(default_factory=list)
    unexplained: list[Unexplained] = field(default_factory=list)
    seen: int = 0
    other_softmaxes: int = 0


Known = dict[Any, tuple[Support | None, Probe, Weights | None]]
"""What was measured already, by the mask, flags and shapes of a call."""


class _Collector:
    """Measures calls as they come; equal masks and flags are probed once."""

    def __init__(self, known: Known) -> None:
        self.calls: list[Measured] = []
        self._known = known

    def __call__(self, call: Call) -> None:
        key = call.cache_key
        measured = None if key is None else self._known.get(key)
        if measured is None:
            probe = kernel(call)
            measured = declared(call), probe, weights(call, probe.support)
            if key is not None:
                self._known[key] = measured
        said, probe, weighed = measured
        if isinstance(call, ModuleCall) and call.replaces:
            del self.calls[-call.replaces :]
        self.calls.append(
            Measured(
                len(self.calls),
                call.module,
                call.api,
                call.batch,
                call.heads,
                call.queries,
                call.keys,
                said,
                probe.support,
                probe.nan_rows,
                call.fingerprints,
                weights=weighed,
            )
        )


def observe(
    model: nn.Module, inputs: Inputs, batch: int, random: RandomState, known: Known | None = None
) -> Pass:
    """Run the model once under observation, from the given random state.

    Passes that share `known` probe equal masks once. A model that fails under observation though it runs
    without leaves one unexplained call and no output.

    >>> causal = nn.Transformer.generate_square_subsequent_mask(3)
    >>> layer, x = nn.MultiheadAttention(4, 2, batch_first=True), torch.zeros(1, 3, 4)
    >>> seen = observe(layer, Inputs((x, x, x), {"attn_mask": causal}), 1, RandomState.now())
    >>> seen.calls[0].kernel.unique[0].num_edges, seen.calls[0].agree
    (6, True)
    """
    collector = _Collector({} if known is None else known)
    session = Session(unwrapped(model), collector, batch)
    random.set()
    output, error = None, None
    with torch.no_grad(), session:
        try:
            output = inputs.run(unwrapped(model))
        except Exception as raised:
            error = raised
    if error is not None:
        random.set()
        inputs.run(model)  # an input that fails anyway fails here, with its own error
        reason = f"it fails under observation: {type(error).__name__}: {str(error).splitlines()[0]}"
        return Pass(inputs, None, [], [Unexplained("", reason)], seen=1)
    unexplained = session.unexplained + session.unfinished()
    seen = session.seen + len(session.unfinished())
    return Pass(inputs, output, collector.calls, unexplained, seen, session.other_softmaxes)


def unwrapped(model: nn.Module) -> nn.Module:
    """The module inside a compiled one: its calls can be seen, those of compiled code cannot."""
    return getattr(model, "_orig_mod", model)

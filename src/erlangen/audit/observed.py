"""One observed forward pass, measured: every attention call with its declared and its measured relation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

from erlangen.audit.apis.attention_call import Call
from erlangen.audit.capture.session import Session
from erlangen.audit.capture.unexplained import Unexplained
from erlangen.audit.inputs import Inputs
from erlangen.audit.log_weights import Weights, weights
from erlangen.audit.state import RandomState
from erlangen.audit.support import Support
from erlangen.audit.witnesses.measured import Probe


@dataclass(eq=False)
class Measured:
    """One attention call and what the declared and the measured witness say about it."""

    index: int
    module: str
    api: str
    """The name of the attention API; `module` when its module was measured as a whole."""
    batch: int
    heads: int
    queries: int
    keys: int
    declared: Support | None
    """None where nothing is declared."""
    kernel: Support
    nan_rows: tuple[tuple[int, int, int], ...]
    """(item, head, query) of the rows that come out as NaN."""
    fingerprints: tuple[int, int] | None
    whole: bool = False
    """Whether its module was measured as a whole."""
    kind: str = "self"
    """"self" when queries and keys are positions of the same sequence, "cross" when of two different ones,
    "derived" when one of them is no sequence of positions: summaries, chunks, memory, single steps."""
    query_inputs: frozenset[str] = frozenset()
    key_inputs: frozenset[str] = frozenset()
    """The names of the inputs that the queries and the keys depend on."""
    query_owner: str | None = None
    key_owner: str | None = None
    """The input whose positions the queries, or the keys, are; None where they are no positions."""
    weights: Weights | None = None
    """The finite biases added to the scores, where there are any."""
    marks: tuple[np.ndarray, np.ndarray] | None = None
    """One number for each query and for each key: which rows moved between two runs."""
    source: str | None = None
    """File and line of the code that made the call."""
    places: tuple[dict[str, np.ndarray], dict[str, np.ndarray]] = field(default_factory=lambda: ({}, {}))
    """Among more queries, and keys, than an input has positions: the name of the input -> where these are."""

    @property
    def agree(self) -> bool | None:
        """Whether the call does what was declared; None when nothing was declared."""
        return None if self.declared is None else self.declared == self.kernel and not self.nan_rows

    @property
    def revived_rows(self) -> tuple[tuple[int, int, int], ...]:
        """(item, head, query) of rows that are fully masked, yet read something: a finite mask value on a row
        with nothing else makes the softmax uniform."""
        unlike = () if self.declared is None else self.declared.unlike(self.kernel)
        return tuple(
            (b, h, i) for b, h, said, done in unlike for i in said.empty_queries().tolist() if done.row(i)
        )


@dataclass(eq=False)
class Pass:
    """One observed forward pass: its output, its calls, and what could not be explained."""

    inputs: Inputs
    output: Any
    calls: list[Measured] = field(default_factory=list)
    unexplained: list[Unexplained] = field(default_factory=list)
    seen: int = 0
    other_softmaxes: int = 0


Known = dict[tuple[str, Any], tuple[Support | None, Probe, Weights | None]]
"""What was measured already, by the mask, flags and shapes of a call."""


class _Collector:
    """Measures calls as they come; equal masks and flags are measured once."""

    def __init__(self, known: Known) -> None:
        self.calls: list[Measured] = []
        self._known = known

    def __call__(self, call: Call) -> None:
        key = call.cache_key
        known = None if key is None else self._known.get((call.api, key))
        if known is None:
            probe = call.measured()
            known = call.declared(), probe, weights(call, probe.support)
            if key is not None:
                self._known[call.api, key] = known
        said, probe, weighed = known
        if call.replaces:
            del self.calls[-call.replaces :]
        vectors = call.vectors()
        measured = Measured(
            len(self.calls), call.module, call.api, call.batch, call.heads, call.queries, call.keys,
            said, probe.support, probe.nan_rows, call.fingerprints, weights=weighed, source=call.source,
            whole=call.whole,
            marks=None if vectors is None else (_marks(vectors[0]), _marks(vectors[1])),
        )  # fmt: skip
        self.calls.append(measured)


def _marks(rows: torch.Tensor) -> np.ndarray:
    """One number for each row along the first axis, over all items and heads."""
    flat = rows.detach().reshape(len(rows), -1).double().nan_to_num()
    generator = torch.Generator(device="cpu").manual_seed(0)
    weights = torch.rand(flat.shape[1], generator=generator, dtype=torch.float64, device="cpu") + 0.5
    return (flat.cpu() @ weights).numpy()


def observe(
    model: nn.Module, inputs: Inputs, batch: int, random: RandomState, known: Known | None = None
) -> Pass:
    """Run the model once under observation, from the given random state.

    Passes that share `known` measure equal masks once. A model that fails under observation though it runs
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
    with session:
        try:
            output = inputs.copied().run(unwrapped(model))
        except Exception as raised:
            error = raised
    if error is not None:
        random.set()
        inputs.copied().run(model)  # an input that fails anyway fails here, with its own error
        first_line = str(error).splitlines()[0] if str(error) else ""
        reason = f"it fails under observation: {type(error).__name__}: {first_line}"
        return Pass(inputs, None, [], [Unexplained("", reason)], seen=1)
    unfinished = session.tape.unfinished()
    unexplained, seen = session.unexplained + unfinished, session.seen + len(unfinished)
    return Pass(inputs, output, collector.calls, unexplained, seen, session.tape.other_softmaxes)


def unwrapped(model: nn.Module) -> nn.Module:
    """The module inside a compiled one: its calls can be seen, those of compiled code cannot."""
    return getattr(model, "_orig_mod", model)

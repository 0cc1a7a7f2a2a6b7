"""Written-out attention: a product of activations, masks, a softmax, a product with the values."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from erlangen.audit.apis.attention_call import Call, Diagonal, fold, register
from erlangen.audit.capture.content_keys import fingerprint
from erlangen.audit.capture.masking import least_logarithm
from erlangen.audit.capture.replay import replay
from erlangen.audit.capture.source import source_line
from erlangen.audit.capture.tape import (
    PRODUCTS,
    Node,
    contracted_axis,
    name_of,
    opaque,
    product_factors,
    tensors,
)
from erlangen.audit.support import Support
from erlangen.audit.witnesses.declared import support_of
from erlangen.audit.witnesses.measured import Probe, read_off

if TYPE_CHECKING:
    from erlangen.audit.capture.session import Session


@register
@dataclass(eq=False)
class EagerCall(Call):
    """Product, softmax, product, written out. The recorded steps lead from the scores to the weights."""

    api = "eager"
    watches = "a product, a softmax and a product, written out"
    declares = "what is added to the scores, or filled into them, before the softmax"

    scores: Node
    weights: Node
    key_factor: int
    """Which factor of the first product holds the keys: 0 or 1. A node knows the axes of both."""

    @classmethod
    def watch(cls, session: Session) -> None:
        session.watch_steps(partial(_step, session))

    @property
    def cache_key(self) -> None:
        """Comparing chains of steps takes as long as replaying them."""

    def declared(self) -> Support:
        scores = replay(self.scores)
        bound = self._query_key_last(scores, self.scores)
        # Weights count as zero in a replay: what is low was masked, though it may have been scaled since.
        allowed = (bound >= least_logarithm(scores.dtype))[..., : self.keys]
        return support_of(allowed.cpu(), self, tuple(bound.shape[:-2]))

    def measured(self) -> Probe:
        return read_off(self._replayed(self.weights, level=True))

    def log_weights(self) -> torch.Tensor:
        return self._replayed(self.scores, level=False)

    def alpha(self) -> torch.Tensor:
        return self._replayed(self.weights, level=False)

    def vectors(self) -> tuple[torch.Tensor, torch.Tensor] | None:
        factors = self.scores.factors
        if factors is None:
            return None
        queries = _by_rows(factors[1 - self.key_factor], self.queries)
        keys = _by_rows(factors[self.key_factor], self.keys)
        return None if queries is None or keys is None else (queries, keys)

    @classmethod
    def diagonal(cls, n: int) -> Diagonal:
        def run(function: Any, args: Any, kwargs: Any) -> Any:
            scores = args[0] if args else kwargs.get("input")
            if name_of(function) != "softmax" or not isinstance(scores, torch.Tensor):
                return NotImplemented
            if scores.dim() <= 2 or scores.shape[-2:] != (n, n):
                return NotImplemented
            out = function(*args, **kwargs)
            return torch.eye(n, dtype=out.dtype, device=out.device).expand_as(out).contiguous()

        return run

    def _replayed(self, node: Node, level: bool) -> torch.Tensor:
        """What a node would be at zero scores, (batch, heads, queries, keys)."""
        last = self._query_key_last(replay(node, level=level), node)[..., : self.keys]
        return self.folded(last.expand(*last.shape[:-2], self.queries, self.keys))

    def _query_key_last(self, tensor: torch.Tensor, node: Node) -> torch.Tensor:
        """A tensor with its query axis and its key axis last, in this order."""
        return tensor.movedim((node.axes[1 - self.key_factor], node.axes[self.key_factor]), (-2, -1))


def _by_rows(factor: torch.Tensor, rows: int) -> torch.Tensor | None:
    """A factor of a product with so many rows along its first axis."""
    for axis in (-2, -1, *range(factor.dim() - 2)):
        if factor.shape[axis] == rows:
            return factor.movedim(axis, 0)
    return None


# ---------------------------------------------------------------------- recording


def _step(session: Session, function: Any, args: Any, kwargs: Any, out: Any) -> None:
    """What one torch function means for attention."""
    name = name_of(function)
    if name == "softmax" and isinstance(out, torch.Tensor):
        _softmax(session, function, args, kwargs, out)
    elif name in PRODUCTS and isinstance(out, torch.Tensor):
        _product(session, function, args, kwargs, out)
    elif nodes := session.tape.tracked((args, kwargs)):
        session.tape.step(function, args, kwargs, out, nodes)


def _softmax(session: Session, function: Any, args: Any, kwargs: Any, out: torch.Tensor) -> None:
    """A softmax turns scores into weights; over anything but a product it may or may not be attention."""
    source = tensors((args, kwargs))[0]
    scores = session.tape.node(source)
    if (
        scores is not None
        and not scores.weights
        and not scores.opaque
        and _dim(args, kwargs, out) in scores.axes
    ):
        session.tape.step(function, args, kwargs, out, [scores])
        made = session.tape.node(out)
    else:
        made = opaque(out, scores)
        session.tape.put(out, made)
    if made is not None:
        made.softmax = made
        made.module = session.frames.name()
        session.tape.softmaxes.append(made)


def _product(session: Session, function: Any, args: Any, kwargs: Any, out: torch.Tensor) -> None:
    """A product of weights with values completes a call; a product of other activations may begin one."""
    name = name_of(function)
    factors = product_factors(name, args, kwargs)
    if factors is None:
        return
    for weights in factors:
        node = session.tape.node(weights)
        if node is None or node.softmax is None:
            continue
        axis = contracted_axis(name, args, kwargs, weights)
        if (
            node.opaque
            or axis not in node.axes
            or _local(session, node.shape[node.axes[1 - node.axes.index(axis)]])
        ):
            _mark_module(session, node.softmax)
        else:
            node.softmax.consumed = True
            session.emit(partial(_record, session, node, axis))
        return
    session.tape.root(function, args, kwargs, out)


def _local(session: Session, queries: int) -> bool:
    """Whether the queries are chunks of the sequence that the running module was given."""
    frame = session.frames.owner()
    hidden = None if frame is None else frame.hidden_states
    return hidden is not None and queries not in hidden.shape[:2]


def _record(session: Session, node: Node, key_axis: int) -> EagerCall:
    assert node.softmax is not None
    assert node.factors is not None
    (scores,) = session.tape.tracked_refs(node.softmax)
    key_factor = node.axes.index(key_axis)
    query_axis = node.axes[1 - key_factor]
    rank = len(node.shape)
    leading = [size for axis, size in enumerate(node.shape) if axis - rank not in node.axes]
    batch, heads = fold(tuple(leading), session.batch)
    query, key = node.factors if key_factor == 1 else node.factors[::-1]
    return EagerCall(
        session.frames.name(), batch, heads, node.shape[query_axis], node.shape[key_axis],
        scores, node, key_factor, fingerprints=(fingerprint(query), fingerprint(key)),
    )  # fmt: skip


def _mark_module(session: Session, softmax: Node) -> None:
    softmax.consumed = True
    frame = session.frames.owner()
    if frame is None:
        return
    if not frame.opaque:
        session.seen += 1
        frame.opaque, frame.source = True, source_line()


def _dim(args: Any, kwargs: Any, out: torch.Tensor) -> int:
    dim = kwargs.get("dim", args[1] if len(args) > 1 else -1)
    return -1 if dim is None else dim if dim < 0 else dim - out.dim()

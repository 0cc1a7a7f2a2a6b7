"""Written-out attention: a product of activations, masks, a softmax, a product with the values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from erlangen.audit.capture.calls import EagerCall, fingerprint
from erlangen.audit.capture.module import hidden_states
from erlangen.audit.capture.sdpa import fold
from erlangen.audit.capture.source import source_line
from erlangen.audit.capture.tape import Node, contracted_axis, name_of, opaque, product_factors, tensors

if TYPE_CHECKING:
    from erlangen.audit.capture.session import Session


def softmax(session: Session, function: Any, args: Any, kwargs: Any, out: torch.Tensor) -> None:
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
        session.softmaxes.append(made)


def product(session: Session, function: Any, args: Any, kwargs: Any, out: torch.Tensor) -> None:
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
            session.emit(lambda node=node, axis=axis: _record(session, node, axis))
        return
    session.tape.root(function, args, kwargs, out)


def _local(session: Session, queries: int) -> bool:
    """Whether the queries are chunks of the sequence that the running module was given."""
    frame = session.frames.owner()
    hidden = None if frame is None else hidden_states(frame)
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
    if frame.opaque is None:
        session.seen += 1
        frame.source = source_line()
    frame.opaque = "its softmax does not run over the keys of one product"


def _dim(args: Any, kwargs: Any, out: torch.Tensor) -> int:
    dim = kwargs.get("dim", args[1] if len(args) > 1 else -1)
    return -1 if dim is None else dim if dim < 0 else dim - out.dim()

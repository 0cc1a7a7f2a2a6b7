"""Calls of torch-geometric's edge softmax, which a function mode cannot see."""

from __future__ import annotations

import sys
import threading
from contextlib import ExitStack
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from erlangen.audit.capture.calls import EdgeSoftmaxCall
from erlangen.audit.capture.watching import arguments_of

if TYPE_CHECKING:
    from erlangen.audit.capture.session import Session

_LIBRARY = "torch_geometric.utils._softmax"


def edge_softmax() -> FunctionType | None:
    """The function to watch; None if torch-geometric was never imported."""
    return getattr(sys.modules.get(_LIBRARY), "softmax", None)


class EdgeSoftmax:
    """Watches the softmax over edges and the `edge_index` of the message passing around it."""

    def __init__(self, session: Session, model: nn.Module) -> None:
        self._session = session
        self._model = model
        self._edge_index: Any = None
        self._thread = 0
        self._stack = ExitStack()

    def __enter__(self) -> EdgeSoftmax:
        self._thread = threading.get_ident()
        with ExitStack() as stack:
            for module in self._model.modules():
                for name in ("register_propagate_forward_pre_hook", "register_edge_update_forward_pre_hook"):
                    if hasattr(module, name):
                        stack.callback(getattr(module, name)(self._see_edges).remove)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)
        self._edge_index = None

    def _see_edges(self, module: nn.Module, inputs: Any) -> None:
        if threading.get_ident() == self._thread:
            self._edge_index = inputs[0]

    def record(self, watched: FunctionType, run: Any, args: Any, kwargs: Any) -> EdgeSoftmaxCall:
        """The record of one call of softmax(src, index, ptr, num_nodes, dim)."""
        given = arguments_of(watched, args, kwargs)
        src = given["src"]
        arguments = {k: v for k, v in given.items() if k != "src"}
        edges = self._edge_index
        if not isinstance(edges, torch.Tensor) or edges.shape != (2, src.shape[0]) or src.dim() > 2:
            raise ValueError("the softmax does not run over the edges of an edge_index of shape (2, edges)")
        index = arguments.get("index")
        sources, targets = edges[0], edges[1]
        if index is not None and torch.equal(index, edges[0]) and not torch.equal(index, edges[1]):
            sources, targets = edges[1], edges[0]
        elif index is not None and not torch.equal(index, targets):
            raise ValueError("the softmax groups edges by something other than their target")
        nodes = arguments.get("num_nodes") or int(edges.max()) + 1
        keys = max(nodes, int(sources.max()) + 1) if sources.numel() else nodes
        return EdgeSoftmaxCall(
            self._session.frames.name(), 1, 1 if src.dim() == 1 else src.shape[1], nodes, keys,
            run, src, arguments, sources, targets,
        )  # fmt: skip

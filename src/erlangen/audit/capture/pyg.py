"""Calls of torch-geometric's edge softmax, which a function mode cannot see."""

from __future__ import annotations

import inspect
import sys
from contextlib import ExitStack
from functools import wraps
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from erlangen.audit.capture.calls import EdgeSoftmaxCall
from erlangen.audit.capture.patches import Rule

if TYPE_CHECKING:
    from erlangen.audit.capture.session import Session

_LIBRARY = "torch_geometric.utils._softmax"


class EdgeSoftmax:
    """Watches the softmax over edges and the `edge_index` of the message passing around it."""

    def __init__(self, session: Session, model: nn.Module) -> None:
        self._session = session
        self._model = model
        self._edge_index: Any = None
        self._stack = ExitStack()

    def __enter__(self) -> EdgeSoftmax:
        with ExitStack() as stack:
            for module in self._model.modules():
                for name in ("register_propagate_forward_pre_hook", "register_edge_update_forward_pre_hook"):
                    if hasattr(module, name):
                        stack.callback(getattr(module, name)(self._see_edges).remove)
            self._stack = stack.pop_all()
        return self

    def rule(self) -> list[Rule]:
        """How to watch the softmax; nothing if torch-geometric was never imported."""
        library = sys.modules.get(_LIBRARY)
        if library is None:
            return []
        original = library.softmax
        return [(lambda value: value is original, self._watched)]

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)
        self._edge_index = None

    def _see_edges(self, module: nn.Module, inputs: Any) -> None:
        self._edge_index = inputs[0]

    def _watched(self, function: Any) -> Any:
        session = self._session

        @wraps(function)
        def watched(src: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            out = function(src, *args, **kwargs)
            if not session.frames.paused:
                session.emit(lambda: self._record(function, src, args, kwargs))
            return out

        return watched

    def _record(self, function: Any, src: torch.Tensor, args: Any, kwargs: Any) -> EdgeSoftmaxCall:
        bound = inspect.signature(function).bind(src, *args, **kwargs)
        bound.apply_defaults()
        arguments = {k: v for k, v in bound.arguments.items() if k != "src"}
        edges = self._edge_index
        if not isinstance(edges, torch.Tensor) or edges.shape != (2, src.shape[0]) or src.dim() > 2:
            raise ValueError("the softmax does not run over the edges of an edge_index of shape (2, edges)")
        index = arguments["index"]
        sources, targets = edges[0], edges[1]
        if index is not None and torch.equal(index, edges[0]) and not torch.equal(index, edges[1]):
            sources, targets = edges[1], edges[0]
        elif index is not None and not torch.equal(index, targets):
            raise ValueError("the softmax groups edges by something other than their target")
        nodes = arguments["num_nodes"] or int(edges.max()) + 1
        keys = max(nodes, int(sources.max()) + 1) if sources.numel() else nodes
        return EdgeSoftmaxCall(
            self._session.frames.name(), 1, 1 if src.dim() == 1 else src.shape[1], nodes, keys,
            function, src, arguments, sources, targets,
        )  # fmt: skip

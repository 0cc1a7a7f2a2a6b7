"""torch-geometric's softmax over the edges that end in the same node, which a function mode cannot see."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from erlangen.audit.apis.attention_call import Call, register
from erlangen.audit.capture.watching import loaded
from erlangen.audit.support import Support
from erlangen.audit.witnesses.measured import Probe
from erlangen.relations import Neighborhoods

if TYPE_CHECKING:
    from erlangen.audit.capture.session import Session


@register
@dataclass(eq=False)
class EdgeSoftmaxCall(Call):
    """One call of `softmax(src, index, ptr, num_nodes, dim)`."""

    api = "pyg"
    watches = "torch-geometric's `softmax` over edges, inside its message passing"
    declares = "the edges"

    function: Callable[..., Any]
    scores: torch.Tensor
    arguments: dict[str, Any]
    sources: torch.Tensor
    targets: torch.Tensor

    @classmethod
    def watch(cls, session: Session) -> None:
        edges: Any = None
        thread = threading.get_ident()

        def see(module: nn.Module, inputs: Any) -> None:
            nonlocal edges
            if threading.get_ident() == thread:
                edges = inputs[0]

        for module in session.model.modules():
            for name in ("register_propagate_forward_pre_hook", "register_edge_update_forward_pre_hook"):
                if hasattr(module, name):
                    session.at_end(getattr(module, name)(see).remove)

        def record(run: Callable[..., Any], src: torch.Tensor, **arguments: Any) -> EdgeSoftmaxCall:
            sources, targets = _by_target(edges, src, arguments.get("index"))
            nodes = arguments.get("num_nodes") or max(int(sources.max()), int(targets.max())) + 1
            keys = max(nodes, int(sources.max()) + 1) if sources.numel() else nodes
            return cls(
                session.frames.name(), 1, 1 if src.dim() == 1 else src.shape[1], nodes, keys,
                run, src, arguments, sources, targets,
            )  # fmt: skip

        session.watch_function(loaded("torch_geometric.utils._softmax", "softmax"), record)

    @property
    def cache_key(self) -> None:
        """Every call has edges of its own, and comparing them takes as long as measuring them."""

    def declared(self) -> Support:
        return self._support(torch.ones(self.sources.shape[0], self.heads, dtype=torch.bool, device="cpu"))

    def measured(self) -> Probe:
        """There are no values here: the softmax gives the weights themselves."""
        weights = self.function(torch.zeros_like(self.scores), **self.arguments).reshape(-1, self.heads)
        broken = weights.isnan()
        rows = {(0, int(h), int(self.targets[e])) for e, h in broken.nonzero().tolist()}
        return Probe(self._support((weights > 0) & ~broken), tuple(sorted(rows)))

    def log_weights(self) -> None:
        """Layers make their scores before the softmax: what was added to them is not seen."""

    def alpha(self) -> None:
        """Without log-weights there is nothing to put in force."""

    def vectors(self) -> None:
        """The softmax gets scores of edges, and never the vectors of nodes."""

    @classmethod
    def diagonal(cls, n: int) -> None:
        """No function mode sees it."""

    def _support(self, kept: torch.Tensor) -> Support:
        """The edges that carry weight, `kept` of shape (edges, heads)."""
        pairs = torch.stack([self.targets, self.sources], dim=1).cpu()
        heads = tuple(
            Neighborhoods.from_edges(self.queries, self.keys, pairs[column].numpy())
            for column in kept.cpu().unbind(dim=1)
        )
        return Support((heads,))


def _by_target(
    edges: Any, scores: torch.Tensor, index: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """(sources, targets) of the edges that the scores belong to, which `index` groups by target."""
    if not isinstance(edges, torch.Tensor) or edges.shape != (2, scores.shape[0]) or scores.dim() > 2:
        raise ValueError("the softmax does not run over the edges of an edge_index of shape (2, edges)")
    sources, targets = edges
    if index is None or torch.equal(index, targets):
        return sources, targets
    if torch.equal(index, sources):
        return targets, sources
    raise ValueError("the softmax groups edges by something other than their target")
